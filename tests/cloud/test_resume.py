"""`microshard resume` of a run on EC2 before any host has answered: what was left is removed first, then AWS is asked.

The simulated hosts answer nobody; what happens on hosts is in tests/hosts/test_ec2.py.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from microshard.backends.local_processes import running
from microshard.records.run_folder import RunFolder
from tests.unit.backends.ec2.definitions import SIMPLE

from .command import Said, microshard
from .fleets import Lab, client
from .strict import Fault

FULL = "VcpuLimitExceeded"


class LimitViolation:
    """A run that was killed while its hosts were made, beside things of somebody else."""

    def __init__(self, lab: Lab, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.simulation, self.folder, self.capsys = lab.simulation, folder, capsys
        self.file = folder / "x.yml"
        self.file.write_text(SIMPLE)
        self.foreign = self._neighbour(lab)
        slow = self.simulation.inject(Fault("DescribeVolumes", delay=2.0, times=None))
        words = [str(Path(sys.executable).with_name("microshard")), "run", "x.yml", "--on", "ec2"]
        words += ["--set", "repetitions=2"]
        with subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while "DescribeVolumes" not in self.simulation.actions() and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        slow.times = 0
        (path,) = (folder / "runs").iterdir()
        self.run = RunFolder.open(path)
        self.left = self.mine()
        assert self.left["instance"]

    @staticmethod
    def _neighbour(lab: Lab) -> dict[str, list[str]]:
        """A run of the same owner with a name that begins alike."""
        tags = [{"Key": "microshard:run", "Value": "on-ec2"}]
        client(lab.simulation.url).create_volume(
            AvailabilityZone="us-east-1a", Size=8, TagSpecifications=[{"ResourceType": "volume", "Tags": tags}]
        )
        return lab.simulation.everything()

    def mine(self) -> dict[str, list[str]]:
        """What is in the account beside the neighbour's."""
        there = {k: [i for i in v if i not in self.foreign.get(k, ())] for k, v in self.simulation.everything().items()}
        return {kind: ids for kind, ids in there.items() if ids}

    def resume(self, *words: str) -> Said:
        return microshard(self.capsys, "resume", self.run.run_id, *words, "--runs-dir", self.folder / "runs")

    def actions(self) -> list[str]:
        """Calls that change something."""
        return [a for a in self.simulation.actions() if not a.startswith(("Describe", "Get"))]


@pytest.fixture
def broken(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[LimitViolation]:
    made = LimitViolation(lab, tmp_path, capsys)
    yield made
    assert made.mine() == {}
    assert lab.simulation.everything() == made.foreign, "nothing of anybody else's was touched"
    assert running(made.run) == []


@pytest.mark.long
def test_what_was_left_goes_first_and_new_hosts_are_asked_for_after_their_price(broken: LimitViolation) -> None:
    before = len(broken.actions())
    broken.simulation.inject(Fault("RunInstances", FULL, times=None))
    said = broken.resume()
    assert said.code == 4, said.out + said.err
    done = broken.actions()[before:]
    assert done.index("TerminateInstances") < done.index("RunInstances"), "the old ones go before new ones are made"
    assert not running(broken.run), "the playbook that has outlived the run does not make anything beside it"
    told = [said.out.index(words) for words in ("0 of 2 measured, 2 to go", "Cost of the run: about", "not prepared")]
    assert told == sorted(told), said.out
    assert "Service Quotas" in said.out
    assert broken.mine() == {}
    # and once more: nothing is left that would have to go, the definition is the one of the run's beginning
    again = broken.resume()
    assert (again.code, "0 of 2 measured, 2 to go" in again.out) == (4, True), again.out + again.err


@pytest.mark.long
def test_what_cannot_be_removed_is_named_and_nothing_is_made_beside_it(broken: LimitViolation) -> None:
    stubborn = broken.simulation.inject(Fault("DeleteVpc", "UnauthorizedOperation", times=None))
    made = broken.simulation.actions().count("RunInstances")
    said = broken.resume()
    assert said.code == 5, said.out + said.err
    assert "so nothing new is started" in said.err
    assert all(f"EC2 us-east-1: vpc {name}" in said.err for name in broken.mine()["vpc"]), said.err
    stubborn.times = 0
    stranger = broken.simulation.inject(Fault("*", "ExpiredToken", times=None))
    said = broken.resume()
    assert (said.code, "not known" in said.err) == (5, True), said.err
    stranger.times = 0
    assert broken.simulation.actions().count("RunInstances") == made
    assert microshard(broken.capsys, "down", broken.run.run_id, "--runs-dir", broken.folder / "runs").code == 0


@pytest.mark.long
def test_a_changed_definition_is_refused_and_as_begun_goes_on(broken: LimitViolation) -> None:
    broken.file.write_text(SIMPLE.replace("documents: 600000", "documents: 700000"))
    before = len(broken.actions())
    said = broken.resume()
    assert (said.code, "documents: 600000 → 700000" in said.err) == (2, True), said.err
    assert len(broken.actions()) == before, "nothing was touched"
    broken.simulation.inject(Fault("RunInstances", FULL, times=None))
    said = broken.resume("--as-begun")
    assert (said.code, "Service Quotas" in said.out) == (4, True), said.out + said.err
    asked = json.loads((broken.run / "lock.json").read_text())["asked"]
    assert asked["overrides"] == {"repetitions": 2}


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_resume_that_is_ended_itself_leaves_nothing_that_gc_does_not_find(
    broken: LimitViolation, number: signal.Signals
) -> None:
    old = set(broken.left["instance"])
    words = [str(Path(sys.executable).with_name("microshard")), "resume", broken.run.run_id]
    with subprocess.Popen(
        words, cwd=broken.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while len(set(broken.mine().get("instance", ())) - old) < len(old) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        assert process.stdout is not None
        said = process.stdout.read() if number == signal.SIGTERM else ""
    if number == signal.SIGTERM:
        assert process.returncode == 143, said
    else:
        assert broken.mine()["instance"]
        assert microshard(broken.capsys, "gc", "--on", "ec2", "--runs-dir", broken.folder / "runs").code == 0
