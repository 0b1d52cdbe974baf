"""`microshard run --on ec2` where AWS says no: the reason by name, the right exit code, and nothing left."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from microshard.model.run_records import JournalEvent
from microshard.records.run_folder import RunFolder
from tests.unit.backends.ec2.definitions import FILE, SIMPLE

from .command import Said, microshard, signalled
from .fleets import Lab
from .strict import Fault

Run = Callable[..., Said]


@pytest.fixture
def run(lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Run]:
    def at(text: str = SIMPLE, command: str = "run") -> Said:
        (tmp_path / "x.yml").write_text(text)
        return microshard(capsys, command, tmp_path / "x.yml", "--on", "ec2", "--runs-dir", tmp_path / "runs")

    yield at
    assert lab.simulation.everything() == {}


def test_without_credentials_nothing_is_begun(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    said = run()
    assert (said.code, "NoCredentials" in said.err, "AWS_PROFILE" in said.err) == (4, True, True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("code", "words"), [("ExpiredToken", "log in again"), ("InvalidClientTokenId", "unknown or disabled")]
)
def test_credentials_that_are_refused(run: Run, lab: Lab, tmp_path: Path, code: str, words: str) -> None:
    lab.simulation.inject(Fault("*", code, times=None))
    said = run()
    assert (said.code, words in said.err) == (4, True), said.err
    assert not (tmp_path / "runs").exists()


def test_a_region_that_is_not_there(run: Run, tmp_path: Path) -> None:
    said = run(SIMPLE.replace("us-east-1", "us-east-9"))
    assert said.code == 4
    assert "no region is named us-east-9; did you mean us-east-" in said.err
    assert not (tmp_path / "runs").exists()


def test_a_quota_is_known_before_anything_is_made(run: Run, lab: Lab, tmp_path: Path) -> None:
    lab.simulation.quota = 8
    said = run()
    assert said.code == 2
    assert "24 vCPUs of Standard" in said.err
    assert "quota is 8" in said.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "fault", "words"),
    [
        (SIMPLE.replace("c5.2xlarge", "c5.9xlarg"), None, "InvalidInstanceType"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                (SIMPLE.replace("c5.2xlarge}", "c5.2xlarge, image: ami-0123456789abcdef0}"), None, "InvalidAMIID"),
                (SIMPLE, Fault("RunInstances", "InsufficientInstanceCapacity", times=None), "no capacity for shard_"),
                (SIMPLE, Fault("RunInstances", "VcpuLimitExceeded", skip=1, times=None), "Service Quotas"),
            )
        ),
    ],
)
def test_what_ec2_refuses_when_hosts_are_made_is_reported_and_nothing_stays(
    run: Run, lab: Lab, tmp_path: Path, text: str, fault: Fault | None, words: str
) -> None:
    if fault is not None:
        lab.simulation.inject(fault)
    said = run(text)
    assert said.code == 4, said.out + said.err
    assert words in said.out
    assert "not prepared: no hosts on EC2" in said.out
    (folder,) = (tmp_path / "runs").iterdir()
    ledger = folder / "ledger.jsonl"
    assert not ledger.exists() or '"state": "gone"' in ledger.read_text()


@pytest.mark.long
def test_hosts_of_a_fleet_that_failed_are_gone_before_the_next_is_made(run: Run, lab: Lab) -> None:
    volumes = FILE[FILE.index("    volumes:") : FILE.index("  client_hosts:")]
    types = "matrix: {infrastructure.shard_hosts.instance_type: [c5.4xlarge, m5.4xlarge]}\n"
    lab.simulation.inject(Fault("RunInstances", alter="iops=3000", instance_type="c5.4xlarge"))
    lab.simulation.inject(Fault("RunInstances", "VcpuLimitExceeded", instance_type="m5.4xlarge"))
    said = run(SIMPLE.replace("  client_hosts:", f"{volumes}  client_hosts:") + types)
    assert said.code == 4, said.out + said.err
    assert "not prepared: fleet1: no hosts on EC2" in said.out
    assert "IOPS is 3000, requested 6000" in said.out
    assert "fleet2: no hosts on EC2" in said.out
    done = [(c.action, c.get("InstanceType")) for c in lab.simulation.calls]
    tried = [kind for action, kind in done if action == "RunInstances"]
    assert tried == ["c5.4xlarge", "c5.2xlarge", "m5.4xlarge"], "the second fleet took none of the first one's hosts"
    ended = [number for number, (action, _) in enumerate(done) if action == "TerminateInstances"]
    assert ended[0] < done.index(("RunInstances", "m5.4xlarge"))


def test_up_says_what_an_hour_costs_first_and_leaves_nothing_where_hosts_are_refused(run: Run, lab: Lab) -> None:
    lab.simulation.inject(Fault("RunInstances", "VcpuLimitExceeded", skip=1, times=None))
    said = run(command="up")
    assert said.code == 4
    first = said.err.splitlines()[0]
    assert first.startswith("1.034 USD an hour for 2 hosts in us-east-1, ")
    assert "VcpuLimitExceeded" in said.err


@pytest.mark.long
def test_a_down_that_was_killed_is_finished_by_gc(
    run: Run, lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    runs = ("--runs-dir", tmp_path / "runs")
    lab.simulation.inject(Fault("RunInstances", "VcpuLimitExceeded", skip=1))
    faults = [Fault(f"Delete{kind}", "UnauthorizedOperation", times=None) for kind in ("Vpc", "Subnet")]
    refused = [lab.simulation.inject(fault) for fault in faults]
    said = run(command="up")
    assert said.code == 5
    for words in ("us-east-1: vpc vpc-", "(console: VPC, Your VPCs)", "(console: VPC, Subnets)"):
        assert words in said.err
    (path,) = (tmp_path / "runs").iterdir()
    folder = RunFolder.open(path)
    assert "left on EC2: subnet subnet-" in microshard(capsys, "status", *runs).out
    again = microshard(capsys, "down", *runs)
    assert (again.code, "left behind: EC2 us-east-1: subnet" in again.err) == (5, True)
    for fault in refused:
        fault.times = 0

    # As if it had come up and the command had ended
    folder.journal.append(JournalEvent("up", point="p01"))
    (folder / "run.json").write_text((folder / "run.json").read_text().replace(str(os.getpid()), "999999999"))
    assert microshard(capsys, "gc", *runs).out == "Nothing is left of any run.\n"
    slow = lab.simulation.inject(Fault("DescribeVpcs", delay=3.0, times=None))
    seen = lab.simulation.actions().count("DescribeVpcs")
    going_down = ("down", folder.run_id, "--runs-dir", "runs")
    signalled(tmp_path, signal.SIGKILL, lambda: lab.simulation.actions().count("DescribeVpcs") > seen, *going_down)
    slow.times = 0
    assert lab.simulation.everything()
    assert f"{folder.run_id} (ec2 us-east-1): removed" in microshard(capsys, "gc", *runs).out


def test_what_cannot_be_removed_is_an_exit_code_and_gc_removes_it(
    lab: Lab, capsys: pytest.CaptureFixture[str], run: Run, tmp_path: Path
) -> None:
    lab.simulation.inject(Fault("RunInstances", "VcpuLimitExceeded", skip=1))
    stubborn = lab.simulation.inject(Fault("DeleteVpc", "UnauthorizedOperation", times=None))
    said = run()
    assert said.code == 5
    assert "left behind: EC2 us-east-1: vpc vpc-" in said.out
    stubborn.times = 0
    (folder,) = (tmp_path / "runs").iterdir()
    marker = (folder / "run.json").read_text().replace(str(os.getpid()), "999999999")  # the run's process is gone
    (folder / "run.json").write_text(marker)
    assert (
        f"{folder.name} (ec2 us-east-1): removed vpc" in microshard(capsys, "gc", "--runs-dir", tmp_path / "runs").out
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_controller_that_is_ended_while_hosts_are_made(
    run: Run, lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path, number: signal.Signals
) -> None:
    slow = lab.simulation.inject(Fault("DescribeVolumes", delay=2.0, times=None))
    (tmp_path / "x.yml").write_text(SIMPLE)
    code, output = signalled(
        tmp_path, number, lambda: "DescribeVolumes" in lab.simulation.actions(), "run", "x.yml", "--on", "ec2"
    )
    slow.times = 0
    assert code == (143 if number == signal.SIGTERM else -number), output
    if number == signal.SIGKILL:
        assert lab.simulation.everything()
        assert microshard(capsys, "gc", "--on", "ec2", "--runs-dir", tmp_path / "runs").code == 0
