"""Cost, limits and sharing of hosts."""

from __future__ import annotations

import pytest

from microshard.backends.ec2 import fleet_plan as plan
from microshard.backends.ec2 import instances, prices
from microshard.backends.ec2.quota import Quota, Quotas, bucket
from microshard.backends.ec2.spec import GroupSpec, SpecError, VolumeSpec, group_spec
from microshard.model.infrastructure import HostGroup, Infrastructure


def group(type_: str = "c5.4xlarge", *volumes: VolumeSpec, count: int = 1, name: str = "shard_hosts") -> GroupSpec:
    return GroupSpec(name, count, (type_,), volumes)


def keys(found: list[plan.LimitViolation]) -> list[tuple[str, str]]:
    return [(b.key.removeprefix("infrastructure.shard_hosts."), b.severity) for b in found]


def test_the_price_is_that_of_hosts_and_volumes() -> None:
    cost = plan.cost([group("c5.4xlarge", VolumeSpec("data", "gp3", 720, 5000, 225), count=2)], "us-east-1")
    root = 16 * 0.08 / 720
    data = (720 * 0.08 + 2000 * 0.005 + 100 * 0.04) / 720
    assert cost.hourly_usd == pytest.approx(2 * (0.68 + root + data))
    assert cost.total(10) == pytest.approx(20 * (0.68 + root + data))
    assert cost.exact
    assert cost.dates == ("2026-02-27",)


def test_one_unknown_part_makes_the_total_unknown_and_never_zero() -> None:
    cost = plan.cost([group("c4.4xlarge", VolumeSpec("data", "standard", 512))], "us-east-1")
    assert cost.hourly_usd is None
    assert cost.total(5) is None
    assert cost.unknown == ("standard volume in us-east-1",)
    assert cost.known_usd > 0.796


def test_a_price_only_the_loose_table_has_is_marked() -> None:
    price = prices.instance("c5.4xlarge", "eu-central-1")
    assert price is not None
    assert not price.exact
    assert price.date == "2025-03-02"


def test_where_both_tables_know_a_type_the_exact_one_is_taken() -> None:
    # apache-libcloud has 0.721 here, the price of dedicated tenancy.
    price = prices.instance("c5.4xlarge", "us-east-1")
    assert price is not None
    assert (price.usd, price.exact) == (0.68, True)


def test_no_price_in_the_table_is_zero() -> None:
    table = prices._table()
    assert all(usd > 0 for quality in ("exact", "at_most") for by in table[quality].values() for usd in by.values())


def test_unknown_types_and_regions_have_no_price() -> None:
    assert prices.instance("c99.large", "us-east-1") is None
    assert prices.instance("c5.large", "moon-1") is None
    assert prices.volume(VolumeSpec("data", "gp3", 100), "eu-west-1") is None


def test_spot_hosts_are_said_to_cost_less() -> None:
    assert plan.cost([GroupSpec("client_hosts", 1, ("c5.large",), market="spot")], "us-east-1").spot


def test_facts_of_a_type() -> None:
    facts = instances.find("c5d.9xlarge")
    assert facts is not None
    assert (facts.vcpus, facts.cores, facts.memory_mib) == (36, 18, 73728)
    assert (facts.ebs_iops, facts.nvme_disks, facts.architecture) == (40000, 1, "x86_64")
    assert instances.find("c5.huge") is None
    assert "c5.large" in instances.near("c5.larg")


@pytest.mark.parametrize(
    ("volume", "key"),
    [
        (VolumeSpec("data", "gp3", 10, 6000), "volumes.data.iops"),
        (VolumeSpec("data", "io1", 10, 501), "volumes.data.iops"),
        (VolumeSpec("data", "io2", 10, 10001), "volumes.data.iops"),
        (VolumeSpec("log", "gp3", 100, 3000, 751), "volumes.log.throughput_mibps"),
        (VolumeSpec("data", "instance_store", 100), "volumes"),
    ],
)
def test_a_volume_beyond_its_type_is_an_error(volume: VolumeSpec, key: str) -> None:
    assert (key, "error") in keys(plan.broken_limits([group("m5.24xlarge", volume)]))


@pytest.mark.parametrize(
    "volume",
    [
        VolumeSpec("data", "gp3", 10, 5000),
        VolumeSpec("data", "gp3", 10, 3000, 750),
        VolumeSpec("data", "io1", 10, 500),
        VolumeSpec("data", "io2", 10, 10000),
        VolumeSpec("data", "standard", 10),
    ],
)
def test_a_volume_at_its_limit_is_right(volume: VolumeSpec) -> None:
    assert plan.broken_limits([group("m5.24xlarge", volume)]) == []


def test_volumes_beyond_what_the_instance_carries_are_told() -> None:
    fast = VolumeSpec("data", "io2", 500, 60000)
    told = plan.broken_limits([group("c4.4xlarge", fast)])
    assert [b.severity for b in told] == ["warning", "warning"]
    assert "carries at most 16000 to EBS" in told[0].message
    burst = plan.broken_limits([group("c5.large", VolumeSpec("data", "gp3", 500, 10000))])
    assert "4000 to EBS and 20000 only for half an hour a day" in burst[0].message


def test_quota_counts_all_hosts() -> None:
    groups = [group(count=2), group("c5.large", name="client_hosts")]
    kind = ("Standard", "on_demand")
    assert plan.broken_limits(groups, quotas=Quotas({kind: Quota("L-1", 44, 10)})) == []
    (told,) = plan.broken_limits(groups, quotas=Quotas({kind: Quota("L-1", 43, 10)}))
    assert told.severity == "error"
    assert told.message.startswith("34 vCPUs of Standard on demand instances are needed; the account's quota is 43, 10")
    assert plan.broken_limits(groups, quotas=Quotas({("Standard", "spot"): Quota("L-1", 1, 0)})) == []


def test_quotas_of_other_kinds_and_markets_are_kept_apart() -> None:
    groups = [group("x1e.xlarge"), GroupSpec("client_hosts", 2, ("c5.large",), market="spot_or_on_demand")]
    quotas = Quotas({("X", "on_demand"): Quota("L-X", 4, 0), ("Standard", "spot"): Quota("L-S", 3, 0)})
    (told,) = plan.broken_limits(groups, quotas=quotas)
    assert (told.severity, told.message[:21]) == ("warning", "4 vCPUs of Standard s"), "on demand stands in for spot"


@pytest.mark.parametrize(
    ("type_", "kind"),
    [("c5.large", "Standard"), ("i4i.large", "Standard"), ("im4gn.large", "Standard"), ("x2idn.16xlarge", "X"),
     ("u-6tb1.metal", "High Memory"), ("g5.xlarge", "G and VT"), ("hpc7g.4xlarge", "HPC"), ("mac1.metal", "Standard")],
)  # fmt: skip
def test_what_a_type_counts_as(type_: str, kind: str) -> None:
    assert bucket(type_) == kind


@pytest.mark.parametrize(("cache", "severity"), [(20000, None), (30000, "warning"), (33000, "error")])
def test_caches_against_ram(cache: float, severity: str | None) -> None:
    told = plan.broken_limits([group()], cache_mib={"shard_hosts": cache})  # 32,768 MiB
    assert [b.severity for b in told] == ([severity] if severity else [])


def test_an_unknown_type_is_told_with_its_neighbours() -> None:
    assert "near it: c5.4xlarge" in plan.broken_limits([group("c5.4xlarg")])[0].message


def infrastructure(**shard_hosts: object) -> Infrastructure:
    return Infrastructure.model_validate({"shard_hosts": {"instance_type": "c5.large", **shard_hosts}})


def test_points_share_hosts_of_one_kind_and_the_most_of_them_are_made() -> None:
    shared = plan.share_hosts(
        [
            ("p01", infrastructure(count=1)),
            ("p02", infrastructure(count=4, kernel={"swappiness": 1})),
            ("p03", infrastructure(count=2, numa={"policy": "interleave"})),
        ]
    )
    assert [s.points for s in shared] == [("p01", "p02", "p03")]
    assert shared[0].infrastructure.shard_hosts.count == 4
    assert shared[0].forced_by == ()


def test_another_type_or_volume_forces_new_hosts_and_says_why() -> None:
    small = {"data": {"type": "gp3", "size_gib": 100}}
    shared = plan.share_hosts(
        [
            ("p01", infrastructure()),
            ("p02", infrastructure(instance_type="c5.xlarge")),
            ("p03", infrastructure()),
            ("p04", infrastructure(volumes=small)),
        ]
    )
    assert [s.points for s in shared] == [("p01", "p03"), ("p02",), ("p04",)]
    assert shared[1].forced_by == ("infrastructure.shard_hosts.instance_type: c5.large → c5.xlarge",)
    assert "infrastructure.shard_hosts.volumes.data: none → gp3 100" in shared[2].forced_by


def test_several_volumes_of_a_purpose_are_each_made_attached_and_paid() -> None:
    data = {"type": "gp3", "size_gib": 720, "policy": "raid0", "count": 4}
    made = group_spec("shard_hosts", HostGroup.model_validate({"instance_type": "c5.large", "volumes": {"data": data}}))
    assert [v.device for v in made.volumes] == ["/dev/sdf", "/dev/xvdba", "/dev/xvdbb", "/dev/xvdbc"]
    alone = plan.cost([group("c5.large")], "us-east-1").hourly_usd
    assert plan.cost([made], "us-east-1").hourly_usd == pytest.approx((alone or 0) + 4 * 0.08)
    many = HostGroup.model_validate({"instance_type": "c5.large", "volumes": {"data": {**data, "count": 24}}})
    three = {"journal": {"count": 3, "policy": "per_shard"}}
    more = many.model_copy(update={"volumes": many.volumes.model_validate({"data": {**data, "count": 24}, **three})})
    assert "27 volumes beside the root" in str(plan.broken_limits([group_spec("shard_hosts", more)]))


def test_a_group_of_the_experiment_file_becomes_hosts_of_ec2() -> None:
    wish = HostGroup.model_validate(
        {
            "count": 2,
            "instance_type": "c4.4xlarge",
            "volumes": {"journal": {"type": "io1", "size_gib": 25, "iops": 1000}},
        }
    )
    assert group_spec("shard_hosts", wish) == GroupSpec(
        "shard_hosts", 2, ("c4.4xlarge",), (VolumeSpec("journal", "io1", 25, 1000),)
    )
    with pytest.raises(SpecError, match=r"infrastructure\.client_hosts\.instance_type"):
        group_spec("client_hosts", HostGroup())
    emulated = HostGroup.model_validate({"instance_type": "c5.large", "volumes": {"data": {"type": "emulated"}}})
    with pytest.raises(SpecError, match="EC2 has no emulated volumes"):
        group_spec("shard_hosts", emulated)
