"""`microshard resume` of a run on EC2 before any host has answered: what was left is removed first, then AWS is called.

The simulated hosts answer nobody; what happens on hosts is in tests/hosts/test_ec2.py.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from microshard.backends.local_processes import running
from microshard.records.run_folder import RunFolder
from tests.unit.backends.ec2.definitions import SIMPLE

from .command import Said, microshard, signalled
from .fleets import Lab, client
from .strict import Fault

FULL = "VcpuLimitExceeded"


class KilledRun:
    """A run that was killed while its hosts were made, beside things of somebody else."""

    def __init__(self, lab: Lab, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.simulation, self.folder, self.capsys = lab.simulation, folder, capsys
        self.file = folder / "x.yml"
        self.file.write_text(SIMPLE)
        self.foreign = self._neighbour(lab)
        slow = self.simulation.inject(Fault("DescribeVolumes", delay=2.0, times=None))
        words = ("run", "x.yml", "--on", "ec2", "--set", "repetitions=2")
        signalled(folder, signal.SIGKILL, lambda: "DescribeVolumes" in self.simulation.actions(), *words)
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
        found = {k: [i for i in v if i not in self.foreign.get(k, ())] for k, v in self.simulation.everything().items()}
        return {kind: ids for kind, ids in found.items() if ids}

    def resume(self, *words: str) -> Said:
        return microshard(self.capsys, "resume", self.run.run_id, *words, "--runs-dir", self.folder / "runs")

    def actions(self) -> list[str]:
        """Calls that change something."""
        return [a for a in self.simulation.actions() if not a.startswith(("Describe", "Get"))]


@pytest.fixture
def broken(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[KilledRun]:
    made = KilledRun(lab, tmp_path, capsys)
    yield made
    assert made.mine() == {}
    assert lab.simulation.everything() == made.foreign, "nothing of anybody else's was touched"
    assert running(made.run) == []


@pytest.mark.long
def test_what_was_left_goes_first_and_new_hosts_are_requested_after_their_cost(broken: KilledRun) -> None:
    before = len(broken.actions())
    broken.simulation.inject(Fault("RunInstances", FULL, times=None))
    said = broken.resume()
    assert said.code == 4, said.out + said.err
    done = broken.actions()[before:]
    assert done.index("TerminateInstances") < done.index("RunInstances"), "the old ones go before new ones are made"
    assert not running(broken.run), "the playbook that has outlived the run does not make anything beside it"
    places = [said.out.index(words) for words in ("0 of 2 measured, 2 to go", "Cost of the run: about", "not prepared")]
    assert places == sorted(places), said.out
    assert "Service Quotas" in said.out
    assert broken.mine() == {}
    # and once more: nothing is left that would have to go, the definition is the one of the run's beginning
    again = broken.resume()
    assert (again.code, "0 of 2 measured, 2 to go" in again.out) == (4, True), again.out + again.err


@pytest.mark.long
def test_what_cannot_be_removed_is_named_and_nothing_is_made_beside_it(broken: KilledRun) -> None:
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
def test_a_changed_definition_is_refused_and_as_begun_goes_on(broken: KilledRun) -> None:
    broken.file.write_text(SIMPLE.replace("documents: 600000", "documents: 700000"))
    before = len(broken.actions())
    said = broken.resume()
    assert (said.code, "documents: 600000 → 700000" in said.err) == (2, True), said.err
    assert len(broken.actions()) == before, "nothing was touched"
    broken.simulation.inject(Fault("RunInstances", FULL, times=None))
    said = broken.resume("--as-begun")
    assert (said.code, "Service Quotas" in said.out) == (4, True), said.out + said.err
    request = json.loads((broken.run / "lock.json").read_text())["request"]
    assert request["overrides"] == {"repetitions": 2}


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_resume_that_is_ended_itself_leaves_nothing_that_gc_does_not_find(
    broken: KilledRun, number: signal.Signals
) -> None:
    old = set(broken.left["instance"])

    def launched() -> bool:
        return len(set(broken.mine().get("instance", ())) - old) >= len(old)

    code, output = signalled(broken.folder, number, launched, "resume", broken.run.run_id)
    assert code == (143 if number == signal.SIGTERM else -number), output
    if number == signal.SIGKILL:
        assert broken.mine()["instance"]
        assert microshard(broken.capsys, "gc", "--on", "ec2", "--runs-dir", broken.folder / "runs").code == 0
