"""`microshard watch` beside a real run, in a real browser: while it goes on, after its end, and after kill -9."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.run.conftest import Cli
from tests.report.browser import Browser, browser, executable

pytestmark = pytest.mark.cluster

LOOK = (Path(__file__).parents[2] / "report" / "look.js").read_text(encoding="utf-8")
MOST_CPU = 0.1  # of a core, with one window that asks once a second


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if executable() is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def _start(cli: Cli, **changes: Any) -> tuple[subprocess.Popen[str], subprocess.Popen[str], str]:
    """A run, `watch` beside it, and the address of its page."""
    run = cli.start("run", cli.write(**changes))
    cli.wait_for(lambda: (cli.folders[0] / "plan.json").exists() and cli.folders[0].is_executed())
    watch = cli.start("watch")
    assert watch.stdout is not None
    return run, watch, watch.stdout.readline().split(": ", 1)[1].strip()


def _cpu(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _text(window: Browser) -> str:
    return str(window.js("document.body.innerText"))


def test_a_run_is_seen_from_its_first_phase_to_its_report(cli: Cli, window: Browser) -> None:
    load = {"load": {"engine": "insert", "documents": 30_000, "seed": 7, "rate": 2000}}  # 15 s on any machine
    measure = {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 10}}
    run, watch, url = _start(cli, workload=[load, measure], repetitions=1)
    try:
        used = _cpu(watch.pid)
        window.open(url, 1300)
        cli.wait_for(lambda: "writes/s" in _text(window) and "CPU by process\n" in _text(window))
        during = _text(window)
        assert "running" in during
        assert "documents/s" in during
        assert "shard01" in during
        assert window.js("document.querySelectorAll('#series svg path').length") >= 2
        for width, dark in ((1300, True), (390, False), (390, True)):
            window.open(url, width, dark)
            cli.wait_for(lambda: "left" in _text(window))
            assert window.js(LOOK) == []
        cli.wait_for(lambda: "1 of 1" in _text(window), 240)  # the first point is filled in while the second is not
        assert run.poll() is None
        run.communicate(timeout=300)
        cli.wait_for(lambda: not window.js("document.getElementById('report').hidden"), 15)
        inside = "document.getElementById('report').contentDocument"
        cli.wait_for(lambda: window.js(f"{inside}.querySelector('#summary')?.textContent"))
        assert window.js("document.getElementById('live').hidden") is True
        assert window.complaints() == []
        (events,) = [list(folder.journal.records()) for folder in cli.folders]
        seconds = events[-1].t - events[0].t
        assert _cpu(watch.pid) - used < MOST_CPU * seconds + 0.5  # the half second: its imports and first page
    finally:
        run.kill()
        watch.send_signal(signal.SIGINT)
    assert watch.wait(timeout=10) == 0


@pytest.mark.long
def test_after_kill_9_it_says_what_to_do(cli: Cli, window: Browser) -> None:
    run, watch, url = _start(cli, repetitions=1)
    try:
        window.open(url, 1300)
        cli.wait_for(lambda: len(cli.running()) > 2)
        run.kill()
        run.wait()
        cli.wait_for(lambda: "orphaned" in _text(window), 15)
        assert f"microshard down {cli.folders[0].run_id}" in _text(window).replace(f"{cli.runs}/", "")
    finally:
        run.kill()
        watch.send_signal(signal.SIGINT)
        watch.wait(timeout=10)


def test_without_a_run_it_says_so(cli: Cli) -> None:
    code, output = cli.run("watch")
    assert code != 0
    assert "no runs yet" in output
