"""For all tests: the end of a run says in one line what this machine could not run, and why."""

import datetime
import re
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import HealthCheck, settings

from microshard.interrupts import SIGNALS

# A test is not timed: the machine may be busy with others.
settings.register_profile("microshard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("microshard")

# Folders of files that take long begin first, so that no process is left alone with one of them at the end.
LONGEST = (
    "tests/hosts/vm/",
    "tests/hosts/",
    "tests/faults/",
    "tests/cluster/experiments/",
    "tests/cluster/",
    "tests/cloud/",
)


def todays(cases: Iterable[str | Path], count: int) -> list[ParameterSet]:
    """The cases of a campaign as parameters: so many of them in `make test`, others each day, the rest are long."""
    names = {case.stem if isinstance(case, Path) else case: case for case in cases}
    first = datetime.datetime.now(datetime.UTC).toordinal() * count
    chosen = {(first + n) % len(names) for n in range(count)}
    return [
        pytest.param(case, marks=[] if n in chosen else [pytest.mark.long], id=name)
        for n, (name, case) in enumerate(names.items())
    ]


# A shell has its background jobs ignore Ctrl-C, and what they start inherits that: here it is to be tried.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A command line that ends in this process ignores signals from then on, and what later tests start would too."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--parts", type=int, default=1, metavar="N", help="of the files of tests, today's one of N parts")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    parts = config.getoption("--parts")
    if parts > 1:
        files = sorted({item.nodeid.partition("::")[0] for item in items})
        today = set(files[datetime.datetime.now(datetime.UTC).toordinal() % parts :: parts])
        chosen = [item for item in items if item.nodeid.partition("::")[0] in today]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
    ranks = {folder: rank for rank, folder in enumerate(LONGEST)}
    items.sort(key=lambda item: min((r for f, r in ranks.items() if item.nodeid.startswith(f)), default=len(ranks)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(skip_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if reasons:
        text = "; ".join(f"{count} because {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"Not run: {text}.")


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    # pytest keeps (file, line, "Skipped: reason") of a skipped test
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return re.sub(r"^Skipped: ", "", text).strip().splitlines()[0]
