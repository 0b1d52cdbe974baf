"""A run on EC2 that is resumed: which hosts are launched again, for which steps, what is said of it, what is paid."""

import contextlib
import dataclasses
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from microshard.backends.ec2 import bring_up, execute, runs
from microshard.backends.ec2.account import AccountLimits, Quota
from microshard.backends.ec2.api import Api
from microshard.backends.ec2.cost_estimate import FleetEstimate, estimate_remaining
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.backends.local import LocalBackend
from microshard.errors import PlaceError
from microshard.model.plan import Inputs, Plan, Step
from microshard.model.run_records import JournalEvent
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.backend import Binaries
from microshard.run.completed_steps import RunProgress, completed_steps
from microshard.run.outcome import Meter, Outcome
from microshard.run.prepare import write_request
from microshard.run.runner import Listener, Runner

from .definitions import FILE, TWO_FLEETS


@pytest.fixture
def plan(tmp_path: Path) -> Ec2Plan:
    (tmp_path / "x.yml").write_text(TWO_FLEETS)
    return plan_ec2(tmp_path / "x.yml")


@pytest.fixture
def folder(plan: Ec2Plan, tmp_path: Path) -> RunFolder:
    """A run that has its plan, and no host yet."""
    folder = RunFolder.create(tmp_path / "runs", "x")
    write_request(folder, plan.request)
    write_json(folder / "plan.json", plan.plan)
    return folder


class FakeHosts(LocalBackend):
    """Hosts that exist as far as planning needs them."""

    hourly_usd: float | None = None
    expires_at = 0

    def __init__(self, plan: Plan, number: int) -> None:
        self.hosts = tuple(dataclasses.replace(h, address=f"10.0.{number}.{n}") for n, h in enumerate(plan.hosts))

    def inputs(self, runs: Path) -> Inputs:  # noqa: ARG002 - as Backend has it
        return Inputs(hosts=self.hosts)

    @contextlib.contextmanager
    def ports(self, count: int, preferred: Sequence[int] = ()) -> Iterator[int]:  # noqa: ARG002 - as Backend has it
        yield 28000

    def check_room(self, plan: Plan) -> None:
        pass

    def binaries(self, plan: Plan) -> dict[str, Binaries]:
        return {p.id: Binaries(Path("/bin/mongod"), None, embedded=False, version="7.0") for p in plan.points}


class FakeRun:
    """A run whose hosts and measurements are only noted."""

    def __init__(self, plan: Ec2Plan, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan, self.folder, self.monkeypatch = plan, folder, monkeypatch
        self.fleets: list[str] = []
        self.steps: list[tuple[str, str, bool, bool, int]] = []
        self.outcome = Outcome()
        self.output = io.StringIO()

        def launch(_run: Any, fleet: FleetEstimate, _progress: RunProgress) -> FakeHosts:
            self.fleets.append(fleet.name)
            number = int(fleet.name.removeprefix("fleet"))
            return FakeHosts(plan.plans[number - 1], 10 * len(self.fleets) + number)

        def run(runner: Runner) -> Outcome:
            for step in runner.plan.steps:
                order = runner.recorder.first_index + step.index
                self.steps.append((step.point, step.name, step.deploy, step.undeploy, order))
            return runner.outcome

        monkeypatch.setattr(execute.Ec2Run, "launch", launch)
        monkeypatch.setattr(Runner, "run", run)
        monkeypatch.setattr(Api, "__init__", lambda *_: None)
        monkeypatch.setattr(Api, "caller", lambda _: ("123456789012", "arn"))
        monkeypatch.setattr(runs, "report", lambda _folder, outcome, _console: setattr(self, "outcome", outcome))

    def measured(self, *steps: Step) -> None:
        """Write results as an earlier session has left them."""
        for order, step in enumerate(steps):
            result = {
                "phases": [], "valid": True, "gates": [], "order": order, "point": step.point, "step": step.name,
                "purpose": "measure",
            }  # fmt: skip
            write_json(self.folder / "results" / step.point / f"{step.name}.json", result)
            self.folder.journal.append(JournalEvent("step done", point=step.point, name=step.name))

    def resume(self) -> Outcome:
        runs.execute_remaining(self.folder, self.plan, Console(file=self.output, width=200))
        return self.outcome


@pytest.fixture
def run(plan: Ec2Plan, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    return FakeRun(plan, folder, monkeypatch)


def points_of(folder: RunFolder) -> Mapping[str, Any]:
    return {p["id"]: p for p in json.loads((folder / "plan.json").read_text())["points"]}


def test_only_fleets_with_steps_left_are_launched_and_only_these_steps_are_executed(run: FakeRun) -> None:
    one, other = (plan.steps for plan in run.plan.plans)
    assert [len({s.point for s in steps}) for steps in (one, other)] == [2, 2]
    run.measured(*one, *other[:3])
    recorded = (run.folder / "plan.json").read_text().replace('"address": "shard_hosts-1"', '"address": "10.0.99.1"')
    (run.folder / "plan.json").write_text(recorded)  # as the earlier session has left it
    before = points_of(run.folder)
    outcome = run.resume()
    last = other[3]
    assert run.fleets == ["fleet2"]
    assert run.steps == [(last.point, last.name, True, True, 7)]
    assert (outcome.done, outcome.exit_code) == (7, 0)
    assert "7 of 8 measured, 1 to go" in run.output.getvalue()
    now = points_of(run.folder)
    assert {s.point for s in one} == {p for p in now if now[p] == before[p]}, "other fleets stay as recorded"
    hosts = {h["address"] for h in now[last.point]["hosts"]}
    assert all(address.startswith("10.0.12.") for address in hosts)
    assert hosts <= {h["address"] for h in json.loads((run.folder / "plan.json").read_text())["hosts"]}


def test_a_complete_run_launches_no_host(run: FakeRun) -> None:
    run.measured(*(step for plan in run.plan.plans for step in plan.steps))
    outcome = run.resume()
    assert (run.fleets, run.steps, outcome.done, outcome.exit_code) == ([], [], 8, 0)


def test_a_run_that_was_aborted_before_its_first_measurement_is_executed_as_a_whole(run: FakeRun) -> None:
    run.resume()
    assert run.fleets == ["fleet1", "fleet2"]
    assert run.steps == [(s.point, s.name, s.deploy, s.undeploy, s.index) for s in run.plan.plan.steps]


def test_cost_and_time_are_those_of_the_steps_that_are_left(run: FakeRun) -> None:
    estimate, plans = run.plan.estimate, run.plan.plans
    one, other = (plan.steps for plan in plans)
    whole = estimate_remaining(estimate, plans, [one, other])
    assert (whole.seconds, whole.cost_usd) == (estimate.seconds, estimate.cost_usd)
    run.measured(*one, other[0])
    run.resume()
    left = [progress.remaining for progress in completed_steps(run.folder, plans, Console(file=io.StringIO()))]
    rest = estimate_remaining(estimate, plans, left)
    assert [fleet.name for fleet in rest.fleets] == ["fleet2"]
    assert rest.cost_usd is not None
    assert estimate.fleets[1].cost_usd is not None
    assert rest.cost_usd < estimate.fleets[1].cost_usd
    assert f"about {rest.cost_usd:.3f} USD" in run.output.getvalue()


def test_a_fleet_that_cannot_be_launched_fails_only_what_is_left_of_it(run: FakeRun) -> None:
    def none(*_: Any) -> None:
        raise PlaceError("no room")

    run.monkeypatch.setattr(execute.Ec2Run, "launch", none)
    one, other = (plan.steps for plan in run.plan.plans)
    run.measured(*one, *(step for step in other if step.point == other[0].point))
    outcome = run.resume()
    (left,) = {step.point for step in other} - {other[0].point}
    assert (list(outcome.failed), outcome.done, outcome.exit_code) == ([left], 6, 4)


def test_hosts_of_earlier_sessions_stay_on_record_and_are_named(folder: RunFolder) -> None:
    def hosts(kind: str, zone: str) -> dict[str, Any]:
        return {"zone": zone, "hosts": [{"group": "shard_hosts", "instance_type": kind, "market": "spot"}] * 2}

    def notes(measured: int) -> list[str]:
        return list(bring_up.earlier_hosts_notes(folder, "fleet1", hosts("c5.large", "us-east-1a"), measured))

    for number, (kind, zone) in enumerate([("c5.xlarge", "us-east-1a"), ("m5.xlarge", "us-east-1b")]):
        path = bring_up.new_fleet_record(folder, "fleet1")
        assert not path.exists()
        assert len(notes(3)) == min(number, 1)
        write_json(path, hosts(kind, zone))
    bring_up.new_fleet_record(folder, "fleet1")
    (note,) = notes(3)
    for words in (
        "shard_hosts: 2 x c5.large spot in us-east-1a; 3 earlier measurements",
        "fleet1-1.json: shard_hosts: 2 x c5.xlarge spot in us-east-1a; fleet1-2.json: shard_hosts: 2 x m5.xlarge spot",
    ):
        assert words in note
    assert not notes(0), "nothing was measured on the earlier hosts"


def test_damage_is_reported_once_for_all_fleets(plan: Ec2Plan, folder: RunFolder) -> None:
    (folder / "journal.jsonl").write_text('{"event": "hosts ma\n')
    output = io.StringIO()
    progress = completed_steps(folder, plan.plans, Console(file=output, width=200))
    assert output.getvalue().count("journal.jsonl:1:") == 1
    assert [each.remaining for each in progress] == [plan.steps for plan in plan.plans]


@pytest.mark.parametrize(
    ("launched", "usd", "note"),
    [
        ("c5.4xlarge", 0.68, ""),
        ("m5.4xlarge", 0.768, ""),  # on demand in us-east-1
        ("zz9.large", 0.68, "no price of zz9.large in us-east-1"),
    ],
)
def test_the_launched_types_are_paid(tmp_path: Path, launched: str, usd: float, note: str) -> None:
    (tmp_path / "x.yml").write_text(FILE)
    (fleet,) = plan_ec2(tmp_path / "x.yml").estimate.fleets
    assert fleet.price.hourly_usd is not None
    meter = Meter(4.0)
    meter.reprice(fleet.price.hourly_usd)
    hosts = [("shard_hosts", launched), ("client_hosts", "c5.2xlarge")]
    created = {"hosts": [{"group": group, "instance_type": kind} for group, kind in hosts]}
    notes = list(bring_up.reprice(meter, fleet, created))
    assert [note in each for each in notes] == ([True] if note else [])
    assert meter.hourly_usd == pytest.approx(fleet.price.hourly_usd - 0.68 + usd)


def test_a_point_that_stays_up_gets_hosts_of_its_own_and_their_price_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.yml").write_text(TWO_FLEETS)
    brought_up: list[Plan] = []

    def launch(_folder: Any, plan: Ec2Plan, fleet: FleetEstimate, _listener: Any, **options: Any) -> Any:
        hosts = FakeHosts(plan.plans[0], 10)
        hosts.expires_at = options["expires_at"]
        types = [{"group": group.name, "instance_type": group.instance_types[0]} for group in fleet.groups]
        return hosts, {"notes": ["the second zone"], "hosts": types, "zone": "us-east-1b"}

    monkeypatch.setattr(bring_up, "launch_hosts", launch)
    monkeypatch.setattr(bring_up, "bring_up", lambda _folder, plan, *_: brought_up.append(plan))
    monkeypatch.setattr(Api, "__init__", lambda *_: None)
    monkeypatch.setattr(Api, "caller", lambda _: ("123456789012", "arn"))
    output = io.StringIO()
    folder, point = bring_up.up_on_ec2(
        tmp_path / "x.yml", None, {}, tmp_path / "runs", "p03", Console(file=output, width=300), cast(Listener, None)
    )
    (plan,) = brought_up
    assert (point.id, point.axes["infrastructure.shard_hosts.instance_type"]) == ("p03", "m5.4xlarge")
    assert [p.id for p in plan.points] == ["p03"] == [p.id for p in folder.plan().points]
    assert {host.address for host in point.hosts} == {"10.0.10.0", "10.0.10.1"}
    first, second = output.getvalue().splitlines()
    assert first.startswith("1.301 USD an hour for 2 hosts in us-east-1, ")
    assert second == "warning: the second zone"
    assert (folder / "points" / "p03" / "vars.json").exists()


def test_fleets_side_by_side_take_the_time_of_the_longest_and_wait_where_a_quota_has_no_room(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(
        TWO_FLEETS.replace("[c5.4xlarge, m5.4xlarge]", "[c5.4xlarge, m5.4xlarge, r5.4xlarge]")
    )
    estimate = plan_ec2(tmp_path / "x.yml", parallel=3).estimate
    one = estimate.fleets[0].seconds
    assert [fleet.seconds for fleet in estimate.fleets] == [one] * 3
    assert (estimate.seconds, dataclasses.replace(estimate, parallel=1).seconds) == (one, 3 * one)
    assert dataclasses.replace(estimate, parallel=2).seconds == 2 * one
    # 16 vCPUs of a shard host and 8 of a client host, each
    for vcpus, vpcs, rounds in ((3 * 24, 3, 1), (2 * 24, 3, 2), (3 * 24 - 1, 3, 2), (3 * 24, 2, 2), (10, 3, 3)):
        account = AccountLimits(
            quotas={"us-east-1": {("Standard", "on_demand"): Quota("L-1216C47A", vcpus + 8, used=8)}},
            free_vpcs={"us-east-1": vpcs},
        )
        assert dataclasses.replace(estimate, account=account).seconds == rounds * one
    hourly = [fleet.price.hourly_usd for fleet in estimate.fleets]
    assert estimate.most_usd == pytest.approx(sum(usd for usd in hourly if usd) * 4.25)
