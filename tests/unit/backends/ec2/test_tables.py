"""Facts and prices of instance types and volumes."""

import json
from importlib import resources

import pytest

from microshard.backends.ec2.spec import GroupSpec, VolumeSpec
from microshard.backends.ec2.tables import find_instance, fleet_price, instance_price, similar_instances, volume_price
from microshard.model.ec2_facts import ebs_types


def test_the_price_is_that_of_hosts_and_volumes() -> None:
    data = VolumeSpec("data", "gp3", 720, 5000, 225)
    price = fleet_price([GroupSpec("shard_hosts", 2, ("c5.4xlarge",), (data,))], "us-east-1")
    root = 16 * 0.08 / 720
    each = 0.68 + root + (720 * 0.08 + 2000 * 0.005 + 100 * 0.04) / 720
    assert price.hourly_usd == pytest.approx(2 * (each + 0.005))  # a public IPv4 address
    assert price.exact
    assert price.dates == ("2026-02-27",)


def test_one_unknown_part_makes_the_total_unknown_and_never_zero() -> None:
    data = VolumeSpec("data", "standard", 512)
    price = fleet_price([GroupSpec("shard_hosts", 1, ("c5.4xlarge",), (data,))], "ap-south-1", public_addresses=False)
    assert price.hourly_usd is None
    assert price.unknown == ("gp3 volume in ap-south-1", "standard volume in ap-south-1")
    assert price.known_usd > 0


@pytest.mark.parametrize("region", ["us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1"])
def test_every_volume_type_has_a_price_in_the_regions_used_most(region: str) -> None:
    for name, limits in ebs_types().items():
        price = volume_price(VolumeSpec("data", name, 500, limits.iops and 4000), region)
        assert price is not None, name
        assert 0 < price.usd < 1
    io1 = volume_price(VolumeSpec("data", "io1", 100, 1000), "us-east-1")
    assert io1 is not None
    assert io1.usd == pytest.approx((100 * 0.125 + 1000 * 0.065) / 720)
    assert io1.exact


@pytest.mark.parametrize(
    ("region", "exact", "date"),
    # The other source has 0.721 in us-east-1, the price of dedicated tenancy.
    [("us-east-1", True, "2026-02-27"), ("eu-central-1", False, "2025-03-02")],
)
def test_the_exact_table_is_preferred_and_prices_of_the_other_are_marked(region: str, exact: bool, date: str) -> None:
    price = instance_price("c5.4xlarge", region)
    assert price is not None
    assert (price.exact, price.date) == (exact, date)
    assert price.usd == 0.68 or not exact


def test_no_price_in_the_table_is_zero() -> None:
    table = json.loads(resources.files("microshard.backends.ec2.data").joinpath("prices.json").read_text())
    assert all(usd > 0 for quality in ("exact", "at_most") for by in table[quality].values() for usd in by.values())


def test_unknown_types_and_regions_have_no_price() -> None:
    assert instance_price("c99.large", "us-east-1") is None
    assert instance_price("c5.large", "moon-1") is None
    assert volume_price(VolumeSpec("data", "gp3", 100), "cn-north-1") is None


def test_spot_hosts_cost_less_than_the_price() -> None:
    assert fleet_price([GroupSpec("client_hosts", 1, ("c5.large",), market="spot")], "us-east-1").spot


def test_facts_of_a_type() -> None:
    facts = find_instance("c5d.9xlarge")
    assert facts is not None
    assert (facts.vcpus, facts.cores, facts.memory_mib) == (36, 18, 73728)
    assert (facts.ebs_iops, facts.disks, facts.architecture) == (40000, 1, "x86_64")
    assert find_instance("c5.huge") is None
    assert "c5.large" in similar_instances("c5.larg")
