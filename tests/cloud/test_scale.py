"""docs/scale.md says what the plan and the simulated EC2 say: every figure of its tables is computed here again."""

import re
from collections import Counter
from pathlib import Path

import pytest

from microshard.backends.ec2.bring_up import most_ports
from microshard.backends.ec2.cost_estimate import PREPARE_SECONDS_EACH
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.backends.ec2.spec import fleet_spec
from microshard.backends.ec2.tables import find_instance
from microshard.plan.estimate import ADD_SHARD_SECONDS

from .fleets import Lab

DOCUMENT = Path(__file__).parents[2] / "docs" / "scale.md"


@pytest.fixture(scope="module")
def text() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


@pytest.fixture
def planned(text: str, tmp_path: Path) -> Ec2Plan:
    (block,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    file = tmp_path / "scale.yml"
    file.write_text(block)
    return plan_ec2(file)


def by_point(planned: Ec2Plan) -> list[str]:
    """A row a point: processes in all and on the fullest host, seconds, RAM of that host, disk of all."""
    rows = []
    for point in planned.plan.points:
        fullest = max(Counter(process.host for process in point.processes).values())
        ram = max(needs.memory_mib for needs in point.needs.values())
        rows.append(
            f"| {point.shards:,} | {len(point.processes):,} | {fullest} | {point.deploy_seconds:.0f} "
            f"| {point.load_seconds:.0f} | {point.measure_seconds:.0f} | {ram:,} | {point.disk_bytes / 1e9:.0f} |"
        )
    return rows


def whole(planned: Ec2Plan) -> list[str]:
    """The sweep: hosts, vCPUs, time, money."""
    (fleet,) = planned.estimate.fleets
    facts = [(group.count, find_instance(group.instance_types[0])) for group in fleet.groups]
    vcpus = sum(count * found.vcpus for count, found in facts if found is not None)
    working = sum(
        point.measure_seconds + (point.deploy_seconds + point.load_seconds if step.deploy else 0.0)
        for step in planned.plan.steps
        for point in [planned.plan.point(step.point)]
    )
    assert fleet.price.hourly_usd is not None
    assert planned.estimate.cost_usd is not None
    assert planned.estimate.most_usd is not None
    return [
        f"| hosts, vCPUs | {sum(group.count for group in fleet.groups)}, {vcpus:,} |",
        f"| price of the hosts with their volumes, on demand | {fleet.price.hourly_usd:.2f} USD an hour |",
        f"| making, preparing and removing the hosts | {(fleet.seconds - working) / 60:.0f} min |",
        f"| deploying, loading and measuring 5 points, 3 repetitions | {working / 60:.0f} min |",
        f"| the sweep | {fleet.seconds / 60:.0f} min, {planned.estimate.cost_usd:.0f} USD |",
        f"| most it can cost, by its budget of 4 hours | {planned.estimate.most_usd:.0f} USD |",
    ]


def limits(planned: Ec2Plan) -> list[str]:
    """Parts of the sentences about what breaks first."""
    largest = planned.plan.points[-1]
    loading = largest.load_seconds / (largest.deploy_seconds + largest.load_seconds + 3 * largest.measure_seconds)
    (fleet,) = planned.estimate.fleets
    hosts = sum(group.count for group in fleet.groups)
    return [
        f"{loading:.0%} of the time of a point with 1,024 shards is spent loading",
        f"{ADD_SHARD_SECONDS * largest.shards:.0f} s of the deployment",
        f"{max(needs.memory_mib for needs in largest.needs.values()):,} MiB of a host's 32,768",
        f"{PREPARE_SECONDS_EACH * (hosts - 1):.0f} s longer than one",
        f"{most_ports(planned.plan)} for all points side by side",
    ]


def changes(actions: list[str]) -> list[str]:
    """Calls that make or remove something: how often is looked depends on how long things take."""
    return [action for action in actions if not action.startswith(("Describe", "Get"))]


def stated(text: str, lines: list[str]) -> None:
    words = " ".join(text.split())
    wrong = [line for line in lines if " ".join(line.split()) not in words]
    assert not wrong, "docs/scale.md does not say any more:\n" + "\n".join(wrong)


def test_the_tables_and_limits_are_those_of_the_plan(text: str, planned: Ec2Plan, lab: Lab) -> None:
    lab.simulation.quota = 5000
    stated(text, [*by_point(planned), *whole(planned), *limits(planned)])
    assert not planned.estimate.violations, "nothing of it is refused"


def test_the_calls_are_those_the_simulated_account_gets(text: str, planned: Ec2Plan, lab: Lab) -> None:
    lab.simulation.quota = 5000
    (fleet,) = planned.estimate.fleets
    lab.spec = fleet_spec(
        fleet.infrastructure,
        run="scale-1",
        owner="tester",
        experiment="scale",
        expires_at=4_000_000_000,
        controller_cidrs=("192.0.2.7/32",),
    )
    before = len(lab.simulation.actions())
    made = lab.provision()
    making = changes(lab.simulation.actions()[before:])
    before = len(lab.simulation.actions())
    assert lab.teardown().clean
    removing = changes(lab.simulation.actions()[before:])
    assert len(lab.simulation.actions()) < 2 * len(made.hosts), "calls by pages, not by hosts"
    volumes = sum(len(host.volumes) for host in made.hosts)
    launches = making.count("RunInstances")
    stated(
        text,
        [
            f"| make {len(made.hosts)} hosts with {volumes} volumes | {len(making)}, {launches} of them RunInstances |",
            f"| remove them | {len(removing)}, {removing.count('TerminateInstances')} of them TerminateInstances |",
        ],
    )
    assert lab.simulation.everything() == {}
