"""A run on EC2 that is taken up: which hosts are made again, for which steps, and what is said of it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from microshard.backends.ec2 import execute as on_ec2
from microshard.backends.ec2.cost_estimate import FleetEstimate, of_the_rest
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.backends.ec2.fleet_records import others_before, record_of
from microshard.backends.local import LocalBackend
from microshard.errors import PlaceError
from microshard.model.plan import Plan
from microshard.plan import Inputs
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.backend import Binaries
from microshard.run.completed_steps import RunProgress, completed_steps
from microshard.run.outcome import Outcome
from microshard.run.prepare import write_request
from microshard.run.runner import Runner
from tests.unit.backends.ec2.test_cost_estimate import FILE

TWO_FLEETS = FILE.replace(
    "matrix: {topology.shards.count: [1, 4]}\n",
    """matrix:
  infrastructure.shard_hosts.instance_type: [c5.4xlarge, m5.4xlarge]
  topology.storage.block_compressor: [none, zlib]
repetitions: 2
""",
)


@pytest.fixture
def seen(tmp_path: Path) -> Ec2Plan:
    (tmp_path / "x.yml").write_text(TWO_FLEETS)
    return plan_ec2(tmp_path / "x.yml")


@pytest.fixture
def folder(seen: Ec2Plan, tmp_path: Path) -> RunFolder:
    """A run that has its plan, and no host yet."""
    made = RunFolder.create(tmp_path / "runs", "x")
    write_request(made, seen.asked)
    write_json(made / "plan.json", dataclasses.asdict(seen.plan))
    return made


class Standing(LocalBackend):
    """Hosts that are there, as far as planning asks them."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.hosts = tuple(dataclasses.replace(h, address=f"10.0.{number}.{n}") for n, h in enumerate(plan.hosts))

    def inputs(self, runs: Path) -> Inputs:  # noqa: ARG002
        return Inputs(hosts=self.hosts)

    @contextlib.contextmanager
    def ports(self, count: int) -> Iterator[int]:  # noqa: ARG002
        yield 28000

    def check_room(self, plan: Plan) -> None:
        pass

    def binaries(self, plan: Plan) -> dict[str, Binaries]:
        return {p.id: Binaries(Path("/bin/mongod"), None, embedded=False, version="7.0") for p in plan.points}


class Played:
    """The parts of a run, with hosts and measurements that are only written down."""

    def __init__(self, seen: Ec2Plan, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen, self.folder = seen, folder
        self.fleets: list[str] = []
        self.steps: list[tuple[str, str, bool, bool, int]] = []
        self.said = io.StringIO()

        def made(run: Any, fleet: FleetEstimate, stock: RunProgress) -> Standing:
            self.fleets.append(fleet.name)
            number = int(fleet.name.removeprefix("fleet"))
            return Standing(seen.plans[number - 1], 10 * len(self.fleets) + number)

        def ran(runner: Runner) -> Outcome:
            for step in runner.plan.steps:
                order = runner.recorder.first_index + step.index
                self.steps.append((step.point, step.name, step.deploy, step.undeploy, order))
            return runner.outcome

        monkeypatch.setattr(on_ec2._Run, "_made", made)
        monkeypatch.setattr(Runner, "run", ran)
        monkeypatch.setattr(on_ec2, "_allowed", lambda rest: rest.refuse_broken() or {})
        monkeypatch.setattr(on_ec2, "report", lambda _folder, outcome, _console: setattr(self, "outcome", outcome))

    def measured(self, *names: str) -> None:
        """Write results as a part before has left them."""
        for order, name in enumerate(names):
            point, _, step = name.partition(" ")
            result = {
                "phases": [],
                "valid": True,
                "gates": [],
                "order": order,
                "point": point,
                "step": step,
                "purpose": "measure",
            }
            write_json(self.folder / "results" / point / f"{step}.json", result)
            self.folder.journal.append(event="step done", point=point, name=step)

    def go_on(self) -> Outcome:
        """Take the run up."""
        on_ec2.execute_remaining(self.folder, self.seen, Console(file=self.said, width=200))
        outcome: Outcome = vars(self)["outcome"]
        return outcome


@pytest.fixture
def played(seen: Ec2Plan, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(seen, folder, monkeypatch)


def points_of(folder: RunFolder) -> Mapping[str, Any]:
    return {p["id"]: p for p in json.loads((folder / "plan.json").read_text())["points"]}


def test_only_fleets_with_steps_left_are_made_and_only_these_steps_are_taken(played: Played) -> None:
    one, other = (plan.steps for plan in played.seen.plans)
    assert [len({s.point for s in steps}) for steps in (one, other)] == [2, 2]
    played.measured(*(f"{s.point} {s.name}" for s in one), *(f"{s.point} {s.name}" for s in other[:3]))
    recorded = (played.folder / "plan.json").read_text().replace('"address": "shard_hosts-1"', '"address": "10.0.99.1"')
    (played.folder / "plan.json").write_text(recorded)  # as the part before has left it
    before = points_of(played.folder)
    outcome = played.go_on()
    last = other[3]
    assert played.fleets == ["fleet2"]
    assert played.steps == [(last.point, last.name, True, True, 7)]
    assert (outcome.done, outcome.exit_code) == (7, 0)
    assert "7 of 8 measured, 1 to go" in played.said.getvalue()
    now = points_of(played.folder)
    assert {s.point for s in one} == {p for p in now if now[p] == before[p]}, "who is not made again stays as recorded"
    hosts = {h["address"] for h in now[last.point]["hosts"]}
    assert all(address.startswith("10.0.12.") for address in hosts)
    assert hosts <= {h["address"] for h in json.loads((played.folder / "plan.json").read_text())["hosts"]}


def test_what_is_whole_makes_no_host(played: Played) -> None:
    played.measured(*(f"{s.point} {s.name}" for plan in played.seen.plans for s in plan.steps))
    outcome = played.go_on()
    assert (played.fleets, played.steps, outcome.done, outcome.exit_code) == ([], [], 8, 0)


def test_a_run_that_broke_off_before_its_first_measurement_is_taken_as_a_whole(played: Played) -> None:
    played.go_on()
    assert played.fleets == ["fleet1", "fleet2"]
    planned = [(s.point, s.name, s.deploy, s.undeploy, s.index) for s in played.seen.plan.steps]
    assert played.steps == planned


def test_price_and_time_are_those_of_the_steps_that_are_left(played: Played) -> None:
    seen = played.seen
    one, other = seen.plans
    whole = of_the_rest(seen.view, seen.plans, [one.steps, other.steps])
    assert (whole.seconds, whole.cost_usd) == (seen.view.seconds, seen.view.cost_usd)
    played.measured(*(f"{s.point} {s.name}" for s in one.steps), f"{other.steps[0].point} {other.steps[0].name}")
    played.go_on()
    left = [stock.remaining for stock in completed_steps(played.folder, seen.plans, Console(file=io.StringIO()))]
    rest = of_the_rest(seen.view, seen.plans, left)
    assert [fleet.name for fleet in rest.fleets] == ["fleet2"]
    assert rest.cost_usd is not None
    assert seen.view.fleets[1].cost_usd is not None
    assert rest.cost_usd < seen.view.fleets[1].cost_usd
    assert f"Price of the run: about {rest.cost_usd:.3f} USD" in played.said.getvalue()


def test_a_fleet_that_cannot_be_made_fails_only_what_is_left_of_it(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any) -> None:
        raise PlaceError("no room")

    monkeypatch.setattr(on_ec2._Run, "_made", none)
    one, other = (plan.steps for plan in played.seen.plans)
    finished = [s for s in other if s.point == other[0].point]
    played.measured(*(f"{s.point} {s.name}" for s in (*one, *finished)))
    outcome = played.go_on()
    (left,) = {s.point for s in other} - {other[0].point}
    assert (list(outcome.failed), outcome.done, outcome.exit_code) == ([left], 6, 4)


def test_hosts_of_earlier_parts_stay_on_record_and_are_told(folder: RunFolder) -> None:
    def hosts(kind: str, zone: str) -> dict[str, Any]:
        return {"zone": zone, "hosts": [{"group": "shard_hosts", "instance_type": kind, "market": "spot"}] * 2}

    for number, (kind, zone) in enumerate([("c5.xlarge", "us-east-1a"), ("m5.xlarge", "us-east-1b")]):
        path = record_of(folder, "fleet1")
        assert not path.exists()
        assert len(list(others_before(folder, "fleet1", hosts(kind, zone), 3))) == number
        write_json(path, hosts(kind, zone))
    record_of(folder, "fleet1")
    (told,) = others_before(folder, "fleet1", hosts("c5.large", "us-east-1a"), 3)
    assert told == (
        "taken up again on new hosts, shard_hosts: 2 x c5.large spot in us-east-1a; the 3 measurement(s) before were "
        "taken on others (fleet1-1.json: shard_hosts: 2 x c5.xlarge spot in us-east-1a; "
        "fleet1-2.json: shard_hosts: 2 x m5.xlarge spot in us-east-1b)"
    )
    assert not list(others_before(folder, "fleet1", hosts("c5.large", "us-east-1a"), 0)), "nothing was measured there"


def test_what_is_damaged_is_told_once_for_all_fleets(seen: Ec2Plan, folder: RunFolder) -> None:
    (folder / "journal.jsonl").write_text('{"event": "hosts ma\n')
    said = io.StringIO()
    stocks = completed_steps(folder, seen.plans, Console(file=said, width=200))
    assert said.getvalue().count("journal.jsonl: 1 line(s)") == 1
    assert [stock.remaining for stock in stocks] == [plan.steps for plan in seen.plans]
