"""Fleets, prices and limits of a whole experiment, as they are planned and printed."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from microshard.backends.ec2.cost_estimate import GRACE_SECONDS
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.backends.ec2.render import show
from microshard.experiment.errors import DefinitionError

from .definitions import FILE

TYPES = "matrix: {infrastructure.shard_hosts.instance_type: [c5.4xlarge, m5.4xlarge]}"


def planned(tmp_path: Path, text: str = FILE, **overrides: Any) -> Ec2Plan:
    file = tmp_path / "on-ec2.yml"
    file.write_text(text)
    return plan_ec2(file, overrides={k.replace("__", "."): v for k, v in overrides.items()})


def printed(plan: Ec2Plan) -> str:
    file = io.StringIO()
    show(plan.estimate, Console(file=file, width=200))
    return " ".join(file.getvalue().split())


def test_points_that_differ_in_their_topology_share_hosts_and_their_price(tmp_path: Path) -> None:
    estimate = planned(tmp_path).estimate
    (fleet,) = estimate.fleets
    assert fleet.points == ("p01", "p02")
    root, data = 16 * 0.08 / 720, (512 * 0.08 + 3000 * 0.005 + 125 * 0.04) / 720
    journal = (25 * 0.125 + 1000 * 0.065) / 720
    hourly = fleet.price.hourly_usd
    assert hourly == pytest.approx(0.68 + 0.34 + 2 * (root + 0.005) + data + journal)
    assert hourly is not None
    assert estimate.cost_usd == pytest.approx(hourly * fleet.seconds / 3600)
    assert estimate.most_usd == pytest.approx(hourly * (4 + GRACE_SECONDS / 3600))
    assert estimate.violations == ()


def test_the_plan_lists_all_that_will_be_created_and_paid(tmp_path: Path) -> None:
    text = printed(planned(tmp_path))
    for words in (
        "fleet1: 2 hosts in us-east-1 for points p01, p02",
        "shard_hosts 1 c5.4xlarge 16 32 on demand al2023 (newest) 0.6800",
        "shard_hosts: data 1 gp3 512 6,000 250",
        "shard_hosts: root 1 gp3 16 ≤ 3,000 ≤ 125",
        "shard_hosts: journal 1 io2 25 1,000",
        "VPC",
        "cluster placement group",
        "SSH from 192.0.2.7/32 only",
        "prices of 2026-02-27",
        "no AWS credentials",
        "terminate automatically 15 min later",
    ):
        assert words in text, words


def test_an_unknown_price_is_unknown_everywhere_and_no_cost_limit_relies_on_it(tmp_path: Path) -> None:
    text = FILE.replace("{type: gp3, size_gib: 512, iops: 6000, throughput_mibps: 250}", "{type: standard}")
    text = text.replace("us-east-1", "ap-south-1")
    plan = planned(tmp_path, text)
    assert plan.estimate.cost_usd is None
    assert plan.estimate.as_json()["cost_usd"] is None
    assert "Cost of the run: unknown" in printed(plan)
    assert "standard volume in ap-south-1" in printed(plan)
    with pytest.raises(DefinitionError, match=r"on-ec2.yml:18:\d+: budget.max_cost_usd"):
        planned(tmp_path, text.replace("max_hours: 4", "max_hours: 4, max_cost_usd: 9")).raise_on_violations()


def test_other_types_are_other_hosts_launched_one_fleet_after_the_other(tmp_path: Path) -> None:
    both = TYPES.replace("{", "{topology.shards.count: [1, 4], ")
    plan = planned(tmp_path, FILE.replace("matrix: {topology.shards.count: [1, 4]}", both))
    assert [f.points for f in plan.estimate.fleets] == [("p01", "p03"), ("p02", "p04")]
    assert len({point.label for point in plan.plan.points}) == 4, "what tells fleets apart is in the labels"
    assert "infrastructure.shard_hosts.instance_type: c5.4xlarge → m5.4xlarge" in printed(plan)
    order = [s.point for s in plan.plan.steps]
    assert set(order[: len(order) // 2]) == {"p01", "p03"}
    assert [s.index for s in plan.plan.steps] == list(range(len(order)))
    assert plan.estimate.cost_usd == pytest.approx(sum(f.cost_usd or 0 for f in plan.estimate.fleets))


def test_hosts_of_several_fleets_cannot_stay(tmp_path: Path) -> None:
    text = FILE.replace("matrix: {topology.shards.count: [1, 4]}", TYPES)
    with pytest.raises(DefinitionError, match="teardown: keep"):
        planned(tmp_path, text, teardown="keep").raise_on_violations()
    planned(tmp_path, text).raise_on_violations()
    planned(tmp_path, teardown="keep").raise_on_violations()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "iops: 6000, throughput_mibps: 250",
            "iops: 3000, throughput_mibps: 800",
            r"on-ec2.yml:8:\d+: .*throughput_mibps: gp3 volumes of 512 GiB take 125 to 750 MiB/s",
        ),
        (
            'version: "7.0"',
            'version: "6.0"',
            r"shard_hosts.image: MongoDB 6.0 has no packages for al2023 .*: ubuntu-22.04; versions al2023",
        ),
        ("topology:\n", "topology:\n  storage: {cache: {policy: host_total_mb, value: 40000}}\n", "40,000 MiB"),
    ],
)
def test_limits_are_refused_at_their_place_in_the_file(tmp_path: Path, before: str, after: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        planned(tmp_path, FILE.replace(before, after)).raise_on_violations()


def test_a_budget_the_estimate_exceeds_is_a_warning(tmp_path: Path) -> None:
    plan = planned(tmp_path, FILE.replace("max_hours: 4", "max_hours: 0.01, max_cost_usd: 0.001"))
    assert {(v.key, v.severity) for v in plan.estimate.violations} == {
        ("budget.max_hours", "warning"),
        ("budget.max_cost_usd", "warning"),
    }
    plan.raise_on_violations()
