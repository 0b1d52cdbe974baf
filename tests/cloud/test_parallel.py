"""`microshard run --parallel` before any host has answered: which fleets exist side by side, and what their ends leave.

The simulated hosts answer nobody; what fleets measure side by side is in tests/hosts/test_ec2.py.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from microshard.hostlib import proc
from microshard.records.run_folder import RunFolder, find_runs
from tests.unit.backends.ec2.definitions import TWO_FLEETS

from .command import microshard
from .fleets import Lab
from .strict import Fault

RUN = ("run", "x.yml", "--on", "ec2", "--parallel", "2")
FULL = "InsufficientVolumeCapacity"  # ends a launch for good


class Account:
    """A simulated account, and a run of two fleets in it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.simulation, self.folder = lab.simulation, folder
        (folder / "x.yml").write_text(TWO_FLEETS)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(Path(sys.executable).with_name("microshard")), *RUN]
        with (self.folder / "output").open("w") as output:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT)

    def until(self, what: Callable[[], bool], seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def said(self) -> str:
        return (self.folder / "output").read_text()

    def run(self) -> RunFolder:
        (run,) = find_runs(self.folder / "runs")
        return run

    def fleets(self) -> dict[str, int]:
        """Fleet → pid of its process, of those that run."""
        found = {}
        for fleet in self.run().fleets() if (self.folder / "runs").exists() else ():
            for process in proc.all_processes():
                if process.command[-2:] == ("microshard.backends.ec2.fleet_process", str(fleet.path)):
                    found[fleet.run_id.rpartition("-")[2]] = process.pid
        return found

    def count(self, action: str) -> int:
        return self.simulation.actions().count(action)


@pytest.fixture
def account(lab: Lab, tmp_path: Path) -> Iterator[Account]:
    made = Account(lab, tmp_path)
    yield made
    if made.process is not None:
        made.process.wait(timeout=60)
    assert lab.simulation.everything() == {}
    assert made.fleets() == {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("quota", "most"), [pytest.param(None, 2, id="side by side"), pytest.param(40, 1, id="no room for two")]
)
def test_fleets_exist_side_by_side_as_far_as_the_quota_allows(
    account: Account, capsys: pytest.CaptureFixture[str], quota: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.simulation.quota = quota
    account.simulation.inject(Fault("RunInstances", FULL, delay=4.0, times=None))
    monkeypatch.chdir(account.folder)
    said = microshard(capsys, *RUN)
    assert (said.code, said.out.count(FULL) >= 2) == (4, True), said.out + said.err
    alive = peak = 0
    for action in account.simulation.actions():
        alive += {"CreateVpc": 1, "DeleteVpc": -1}.get(action, 0)
        peak = max(peak, alive)
    assert peak == most
    for fleet in ("fleet1", "fleet2"):
        assert f"{fleet}: " in said.out
    assert "up to 2 fleets at a time" in said.out
    assert re.search(r"Hosts on EC2: 0.0\d h and .*; estimated: \d.\d\d h and \d.\d\d USD", said.out)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_a_run_that_is_stopped_or_killed_leaves_nothing_of_any_fleet(account: Account, number: signal.Signals) -> None:
    slow = account.simulation.inject(Fault("DescribeVolumes", delay=5.0, times=None))
    account.start()
    account.until(lambda: account.count("DescribeVolumes") >= 2)
    assert len(account.simulation.everything()["vpc"]) == 2
    assert account.process is not None
    account.process.send_signal(number)
    slow.times = 0
    code = account.process.wait(timeout=120)
    assert code == (130 if number == signal.SIGINT else -9), account.said()
    account.until(lambda: not account.fleets())  # each ends itself when the run's process is gone
    assert account.simulation.everything() == {}


@pytest.mark.long
def test_a_fleet_whose_process_is_killed_is_removed_and_the_other_goes_on(account: Account) -> None:
    slow = account.simulation.inject(Fault("DescribeVolumes", delay=5.0, times=None))
    account.start()
    account.until(lambda: account.count("DescribeVolumes") >= 2)
    os.kill(account.fleets()["fleet1"], signal.SIGKILL)
    account.until(lambda: len(account.simulation.everything().get("vpc", ())) == 1)
    assert list(account.fleets()) == ["fleet2"]
    assert account.process is not None
    assert account.process.poll() is None
    account.process.send_signal(signal.SIGINT)
    slow.times = 0
    assert account.process.wait(timeout=120) == 130
    assert "fleet1: its process ended with SIGKILL" in account.said()


def test_it_is_refused_where_hosts_exist_already(capsys: pytest.CaptureFixture[str]) -> None:
    said = microshard(capsys, "run", "quickstart", "--parallel", "2")
    assert (said.code, "--parallel goes with --on ec2 only" in said.err) == (2, True)
