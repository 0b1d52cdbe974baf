"""Gone means gone: in order, in spite of errors, more than once, and after the controller was killed."""

import concurrent.futures
import dataclasses
import datetime
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.backends.ec2.api import RetryPolicy
from microshard.backends.ec2.teardown import find_leftover_runs, remove_leftover_runs
from microshard.records.run_folder import Ledger

from .fleets import REGION, RETRY_POLICY, SMALL, Lab, client
from .strict import Fault, Simulation

_EXPIRY = SMALL.expires_at


def test_teardown_twice_finds_nothing_the_second_time(lab: Lab) -> None:
    lab.provision()
    first, second = lab.teardown(), lab.teardown()
    assert first.clean
    assert second.clean
    assert {"instance", "security-group", "vpc", "key-pair"} <= {entry.split()[0] for entry in first.removed}
    assert second.removed == []


def test_teardown_of_a_run_that_never_was(lab: Lab) -> None:
    assert lab.teardown().clean


class Clock:
    """A clock that a pause turns on, without waiting."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("refusals", "clean"), [(25, True), (None, False)])
def test_what_still_uses_a_network_is_waited_for_by_time(lab: Lab, refusals: int | None, clean: bool) -> None:
    lab.provision()
    clock = Clock()
    # The default patience: what ended minutes ago may still hold its interface.
    lab.retry = RetryPolicy(clock=lambda: clock.now, sleep=clock.sleep)
    lab.simulation.inject(Fault("DetachInternetGateway", "DependencyViolation", times=refusals))
    result = lab.teardown()
    assert result.clean is clean
    if clean:
        assert 60 < clock.now < 1200
    else:
        assert clock.now >= 1200
        assert {left.split()[0] for left in result.left} == {"internet-gateway", "vpc"}
        assert len(result.errors) == len(set(result.errors)), "each is named once"
        lab.simulation.faults.clear()
        assert lab.teardown().clean


def test_other_runs_and_other_things_stay(lab: Lab) -> None:
    lab.provision()
    own = lab.simulation.everything()
    lab.change(run="other-1").provision()
    assert lab.teardown().clean
    assert lab.simulation.everything() == own


def test_two_runs_of_one_account_at_once_do_not_disturb_one_another(simulation: Simulation, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = Lab(simulation, tmp_path / "one", SMALL).change(run="run-1")
    two = Lab(simulation, tmp_path / "two", SMALL).change(run="run-2")

    def ids(lab: Lab) -> set[str]:
        return {host.instance_id for host in lab.provision().hosts}

    with concurrent.futures.ThreadPoolExecutor() as pool:
        ones, twos = pool.map(ids, (one, two))  # both are made at the same time
        assert len(ones | twos) == 6
        again = pool.submit(ids, two)  # found again while the other one is removed
        assert one.teardown().clean
        assert again.result() == ids(two) == twos
        other = pool.submit(two.teardown)  # and removed while the other one is made anew
        anew = ids(one)
        assert other.result().clean
        assert ids(one) == anew
        assert anew.isdisjoint(ones | twos)
    assert one.teardown().clean
    assert simulation.everything() == {}


def test_an_error_does_not_stop_the_rest(lab: Lab) -> None:
    lab.provision()
    lab.simulation.inject(Fault("DeleteSecurityGroup", "UnauthorizedOperation", times=None))
    result = lab.teardown()
    assert not result.clean
    assert {entry.split()[0] for entry in result.left} == {"security-group", "vpc"}
    assert any("DeleteSecurityGroup: UnauthorizedOperation" in e for e in result.errors)
    assert set(lab.simulation.everything()) == {"security-group", "vpc", "route-table"}
    lab.simulation.faults.clear()
    assert lab.teardown().clean
    assert lab.simulation.everything() == {}


@pytest.mark.parametrize("lost", ["before", "after"])
def test_the_network_is_gone_for_a_while(lab: Lab, lost: Any) -> None:
    lab.provision()
    lab.simulation.inject(Fault("Delete*", lost=lost, times=6))
    lab.simulation.inject(Fault("TerminateInstances", lost=lost, times=2))
    assert lab.teardown().clean
    assert lab.simulation.everything() == {}


def test_without_a_network_it_says_that_it_does_not_know(lab: Lab) -> None:
    lab.provision()
    lab.simulation.inject(Fault("*", lost="before", times=None))
    lab.retry = dataclasses.replace(lab.retry, attempts=1)
    result = lab.teardown()
    assert "not known" in result.left[0]
    lab.simulation.faults.clear()
    assert lab.teardown().clean


@pytest.mark.long
def test_an_instance_that_does_not_end_is_listed(lab: Lab) -> None:
    lab.retry = dataclasses.replace(lab.retry, terminate=0.05)
    fleet = lab.provision()
    lab.simulation.timing.terminating = 3600
    result = lab.teardown()
    assert f"instance {fleet.hosts[0].instance_id} (console: EC2, Instances)" in result.left
    lab.simulation.timing.terminating = 0
    for host in fleet.hosts:
        lab.simulation.end_instance(host.instance_id)
    assert lab.teardown().clean


def test_a_volume_that_stayed_behind_is_deleted(lab: Lab) -> None:
    fleet = lab.provision()
    data = next(v for v in fleet.hosts[0].volumes if v.purpose == "data")
    keep = [{"DeviceName": data.device, "Ebs": {"DeleteOnTermination": False}}]
    client(lab.simulation.url).modify_instance_attribute(
        InstanceId=fleet.hosts[0].instance_id, BlockDeviceMappings=keep
    )
    result = lab.teardown()
    assert result.clean
    assert f"volume {data.id}" in result.removed


@pytest.mark.parametrize("hangs_on", ["key", "security group", "subnet"])
def test_an_untagged_instance_is_found_by_what_it_hangs_on(lab: Lab, hangs_on: str) -> None:
    fleet = lab.provision()
    ec2 = client(lab.simulation.url)
    own = next(s for s in ec2.describe_subnets()["Subnets"] if s["VpcId"] == fleet.vpc_id)["SubnetId"]
    request = {"ImageId": fleet.images["client_hosts"], "InstanceType": "c5.large", "MinCount": 1, "MaxCount": 1}
    more: dict[str, dict[str, Any]] = {
        "key": {"KeyName": "microshard-small-1"}, "security group": {"SecurityGroupIds": [fleet.security_group]},
    }  # fmt: skip
    stray = ec2.run_instances(**request, **more.get(hangs_on, {}), SubnetId=own)["Instances"][0]["InstanceId"]
    result = lab.teardown()
    assert result.clean
    assert f"instance {stray}" in result.removed
    assert lab.simulation.everything() == {}


def test_gc_takes_expired_and_finished_runs_of_the_owner_and_no_other(lab: Lab) -> None:
    for run, owner, expires in (
        ("old", "tester", 1000),
        ("over", "tester", 9000),
        ("busy", "tester", 9000),
        ("his", "else", 1),
    ):
        lab.change(run=run, owner=owner, expires_at=expires).provision()
    found = find_leftover_runs(lab.api(), "tester", now=5000, over=lambda run: run == "over")
    assert {run: reason for run, (reason, _) in found.items()} == {"old": "expired", "over": "over"}
    assert len(lab.simulation.everything()["vpc"]) == 4, "a look removes nothing"
    results = remove_leftover_runs(lab.api(), "tester", now=5000, over=lambda run: run == "over")
    assert [r.run for r in results] == ["old", "over"]
    assert all(r.clean for r in results)
    assert len(lab.simulation.everything()["vpc"]) == 2


class Controller:
    """Runs the whole life of a fleet in processes that are killed with -9 after their Nth call."""

    def __init__(self, simulation: Simulation, folder: Path) -> None:
        self.simulation = simulation
        numbers = {key: value for key, value in dataclasses.asdict(RETRY_POLICY).items() if not callable(value)}
        options = {"region": REGION, "endpoint": simulation.url, "retry": numbers}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("controller.py")), json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
        )  # fmt: skip

    def life(self, kill_after: int, folder: Path) -> bool:
        """Provision and tear down; True when it got to its end before call `kill_after`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        spec = dataclasses.asdict(dataclasses.replace(SMALL, run=f"killed-{kill_after}", placement_group=True))
        self._process.stdin.write(json.dumps({"spec": spec, "kill_after": kill_after, "folder": str(folder)}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer in {"killed", "done"}, answer
        return answer == "done"

    def close(self) -> None:
        self._process.communicate(timeout=10)


@pytest.fixture
def controller(simulation: Simulation, tmp_path: Path) -> Iterator[Controller]:
    running = Controller(simulation, tmp_path)
    yield running
    running.close()


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)])  # an eighth of them, another each day
def test_a_controller_killed_after_any_call_leaves_nothing_gc_does_not_find(
    controller: Controller, lab: Lab, tmp_path: Path, every: int
) -> None:
    api = lab.api(visible=0.0)  # the simulation shows everything at once; what is in flight is over
    kill_after, done = datetime.date.today().toordinal() % every - every + 1, False
    while not done:
        kill_after += every
        folder = tmp_path / str(kill_after)
        folder.mkdir()
        lab.simulation.calls.clear()
        done = controller.life(kill_after, folder)
        made = len(lab.simulation.calls)
        assert made < kill_after if done else made == kill_after
        if not lab.simulation.everything():
            continue  # killed before the first creation or after the last result: there is nothing to find
        run = f"killed-{kill_after}"
        book = Ledger(folder / "ledger.jsonl")
        remove_leftover_runs(api, "tester", now=0, over=lambda name, run=run: name == run, ledgers={run: book})  # type: ignore[misc]
        assert lab.simulation.everything() == {}, f"after call {kill_after}"
    assert kill_after > 40, "it was killed in every stage of the life"


def test_gc_without_the_ledger_finds_the_same(controller: Controller, lab: Lab, tmp_path: Path) -> None:
    for kill_after in range(4, 24, 3):
        (tmp_path / str(kill_after)).mkdir()
        controller.life(kill_after, tmp_path / str(kill_after))
        remove_leftover_runs(
            lab.api(), "tester", now=_EXPIRY, ledgers={"unrelated": Ledger(tmp_path / "unrelated.jsonl")}
        )
        assert lab.simulation.everything() == {}, f"after call {kill_after}"
