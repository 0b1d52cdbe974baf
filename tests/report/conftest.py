import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from microshard.report import figures, write
from tests.cluster.mongosh import npm_package
from tests.report.browser import Browser, browser, executable
from tests.report.make_run import Shape, make_run, tear

AXE = "axe-core@4.14.1"  # MPL-2.0, for tests alone
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"  # of axe.min.js

SHAPES = {
    "whole": Shape(),
    "troubled": Shape(failed_point=8, wrong_answer=4, spread=0.12, drift_factor=1.5, repeated=2, limit="client"),
    "going": Shape(steps=8),
    "bare": Shape(repetitions=1, drift=False, telemetry=False, reference=False),
    "two axes": Shape(second_axis=("4 KiB", "8 KiB", "a long name of a block size that has to wrap")),
    "no order": Shape(shards=(4,), second_axis=("zlib", "snappy", "none"), others=0.8),
    "ladder": Shape(
        shards=(2,),
        kind="ladder",
        phases=("read-mostly", "inserts"),
        drift=False,
        published=({"at": 2, "value": 130000, "phase": "inserts", "label": "more than this"},),
    ),
    "ladders": Shape(shards=(1, 2, 4), kind="ladder", drift=False),
    "many ladders": Shape(shards=(1, 2, 3, 4, 6, 8, 12, 16, 24), kind="ladder", repetitions=2, drift=False),
    "balance": Shape(shards=(1, 2, 4, 9), kind="balance", repetitions=2, drift=False),
    "sync": Shape(shards=(1, 3), kind="sync", drift=False),
    "forms": Shape(shards=(1, 2), kind="forms", drift=False, reference=False),
    "many shards": Shape(shards=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)),
}


class Reports(dict[str, Path]):
    """Pages of runs of several kinds, by name, each made when it is first wanted."""

    def __init__(self, new_folder: Callable[[str], Path]) -> None:
        super().__init__()
        self._new_folder = new_folder

    def __missing__(self, name: str) -> Path:
        run = make_run(self._new_folder("run"), SHAPES[name])
        if name == "troubled":
            tear(run, "p02", "r3")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(figures, "PNG_DPI", 30)  # the page has none of these files, which take half the time
            self[name] = write(run)
        return self[name]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    return Reports(tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless browser."""
    if executable() is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="session")
def axe() -> str:
    """The program of axe-core, which looks for what keeps people from reading a page."""
    source = (npm_package(AXE) / "axe-core" / "axe.min.js").read_bytes()
    assert hashlib.sha256(source).hexdigest() == AXE_SHA256
    return source.decode("utf-8")
