"""Fleets, prices and limits of a whole experiment."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from microshard.backends.ec2 import render as show
from microshard.backends.ec2.cost_estimate import GRACE_SECONDS
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.experiment.errors import DefinitionError

FILE = """\
microshard: 1
name: on-ec2
infrastructure:
  ec2: {region: us-east-1, controller_cidrs: [192.0.2.7/32], placement_group: true}
  shard_hosts:
    instance_type: c5.4xlarge
    volumes:
      data: {type: gp3, size_gib: 512, iops: 6000, throughput_mibps: 250}
      journal: {type: io2, size_gib: 25, iops: 1000}
  client_hosts: {instance_type: c5.2xlarge}
topology:
  mongodb: {source: packages, version: "7.0"}
  collections: [{namespace: vosa.mot_results, shard_key: {_id: hashed}}]
workload:
  - load: {engine: insert, documents: 600000}
  - measure: {engine: aggregate, pipeline: mot_greenness}
matrix: {topology.shards.count: [1, 4]}
budget: {max_hours: 4}
"""


def foreseen(tmp_path: Path, text: str = FILE, **overrides: Any) -> Ec2Plan:
    file = tmp_path / "on-ec2.yml"
    file.write_text(text)
    return plan_ec2(file, overrides={k.replace("__", "."): v for k, v in overrides.items()})


def shown(seen: Ec2Plan) -> str:
    console = Console(file=io.StringIO(), width=200)
    show.show(seen.view, console)
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_points_that_differ_in_their_topology_share_hosts_and_their_price(tmp_path: Path) -> None:
    seen = foreseen(tmp_path)
    (fleet,) = seen.view.fleets
    assert fleet.points == ("p01", "p02")
    root, data = 16 * 0.08 / 720, (512 * 0.08 + 3000 * 0.005 + 125 * 0.04) / 720
    journal = (25 * 0.125 + 1000 * 0.065) / 720
    assert fleet.cost.hourly_usd == pytest.approx(0.68 + 0.34 + 2 * root + data + journal)
    assert fleet.cost.hourly_usd is not None
    assert seen.view.cost_usd == pytest.approx(fleet.cost.hourly_usd * fleet.seconds / 3600)
    assert seen.view.most_usd == pytest.approx(fleet.cost.hourly_usd * (4 + GRACE_SECONDS / 3600))
    assert seen.view.limits == ()


def test_the_plan_says_all_that_will_be_made_and_paid(tmp_path: Path) -> None:
    text = shown(foreseen(tmp_path))
    for words in (
        "fleet1: 2 hosts in us-east-1 for points p01, p02",
        "shard_hosts 1 c5.4xlarge 16 32 on demand al2023 (newest) 0.6800",
        "shard_hosts: data 1 gp3 512 6,000 250",
        "shard_hosts: root 1 gp3 16 ≤ 3,000 ≤ 125",
        "shard_hosts: journal 1 io2 25 1,000",
        "a VPC made for the run",
        "cluster placement group",
        "SSH from 192.0.2.7/32 only",
        "on-demand prices of 2026-02-27",
        "Quotas: not asked (no AWS credentials).",
        "4 h are over; hosts end themselves 15 min later",
    ):
        assert words in text, words


def test_an_unknown_price_is_unknown_everywhere_and_no_promise_is_made_on_it(tmp_path: Path) -> None:
    text = FILE.replace("{type: gp3, size_gib: 512, iops: 6000, throughput_mibps: 250}", "{type: standard}")
    seen = foreseen(tmp_path, text)
    assert seen.view.cost_usd is None
    assert seen.view.as_json()["cost_usd"] is None
    assert "Price of the run: about unknown" in shown(seen)
    assert "no price of standard volume in us-east-1" in shown(seen)
    with pytest.raises(DefinitionError, match=r"on-ec2.yml:18:\d+: budget.max_cost_usd: cannot be kept"):
        foreseen(tmp_path, text.replace("max_hours: 4", "max_hours: 4, max_cost_usd: 9")).refuse_broken()


def test_other_types_are_other_hosts_made_one_fleet_after_the_other(tmp_path: Path) -> None:
    more = "matrix: {topology.shards.count: [1, 4], infrastructure.shard_hosts.instance_type: [c5.4xlarge, m5.4xlarge]}"
    seen = foreseen(tmp_path, FILE.replace("matrix: {topology.shards.count: [1, 4]}", more))
    assert [f.points for f in seen.view.fleets] == [("p01", "p03"), ("p02", "p04")]
    assert "new hosts, because of infrastructure.shard_hosts.instance_type: c5.4xlarge → m5.4xlarge" in shown(seen)
    order = [s.point for s in seen.plan.steps]
    assert set(order[: len(order) // 2]) == {"p01", "p03"}
    assert [s.index for s in seen.plan.steps] == list(range(len(order)))
    assert seen.view.cost_usd == pytest.approx(sum(f.cost_usd or 0 for f in seen.view.fleets))


def test_hosts_of_several_fleets_cannot_stay(tmp_path: Path) -> None:
    more = "matrix: {infrastructure.shard_hosts.instance_type: [c5.4xlarge, m5.4xlarge]}"
    text = FILE.replace("matrix: {topology.shards.count: [1, 4]}", more)
    with pytest.raises(DefinitionError, match="teardown: keep: hosts can stay where one fleet is enough"):
        foreseen(tmp_path, text, teardown="keep").refuse_broken()
    foreseen(tmp_path, text).refuse_broken()
    foreseen(tmp_path, teardown="keep").refuse_broken()


def test_limits_are_refused_at_their_place_in_the_file(tmp_path: Path) -> None:
    text = FILE.replace("iops: 6000, throughput_mibps: 250", "iops: 3000, throughput_mibps: 800")
    with pytest.raises(DefinitionError, match=r"on-ec2.yml:8:\d+: .*throughput_mibps: gp3 has at most 0.25 MiB/s"):
        foreseen(tmp_path, text).refuse_broken()


def test_a_budget_the_estimate_exceeds_is_a_warning(tmp_path: Path) -> None:
    seen = foreseen(tmp_path, FILE.replace("max_hours: 4", "max_hours: 0.01, max_cost_usd: 0.001"))
    assert {(b.key, b.severity) for b in seen.view.limits} == {
        ("budget.max_hours", "warning"),
        ("budget.max_cost_usd", "warning"),
    }
    seen.refuse_broken()


def test_caches_beyond_the_ram_of_the_type_are_refused(tmp_path: Path) -> None:
    cache = FILE.replace("topology:\n", "topology:\n  storage: {cache: {policy: host_total_mb, value: 40000}}\n")
    with pytest.raises(DefinitionError, match="40,000 MiB"):
        foreseen(tmp_path, cache).refuse_broken()
