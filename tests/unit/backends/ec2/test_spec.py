"""From the experiment file to the specification of a fleet, and that to plain data and back."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microshard.backends.ec2.spec import FleetSpec, GroupSpec, SpecError, VolumeSpec, from_mapping, group_spec
from microshard.backends.ec2.tables import fleet_price
from microshard.model.infrastructure import HostGroup

GROUP = GroupSpec("shard_hosts", 2, ("c5.4xlarge",), (VolumeSpec("data", "gp3", 100, 4000, 250),))
SPEC = FleetSpec("run-1", "me", "x", 1_900_000_000, (GROUP,), ("192.0.2.1/32",))


@given(
    run=st.text("abcdef0123456789-", min_size=1, max_size=40),
    count=st.integers(1, 50),
    iops=st.one_of(st.none(), st.integers(3000, 16000)),
)
def test_a_spec_survives_being_written_and_read(run: str, count: int, iops: int | None) -> None:
    group = dataclasses.replace(GROUP, count=count, volumes=(VolumeSpec("data", "gp3", 500, iops),))
    spec = dataclasses.replace(SPEC, run=run, groups=(group,))
    assert from_mapping(dataclasses.asdict(spec)) == spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": []}, "groups"),
        ({"groups": [{"name": "a", "count": 0, "instance_types": ["c5.large"]}]}, "groups.0.count"),
        ({"groups": [dataclasses.asdict(GROUP)] * 2}, "same name"),
        ({"controller_cidrs": []}, "controller_cidrs"),
        ({"controller_cidrs": ["::/0"]}, "whole Internet"),
        ({"controller_cidrs": ["0.0.0.0/0"]}, "whole Internet"),
        ({"controller_cidrs": ["2001:db8::1/128"]}, "IPv4"),
        ({"controller_cidrs": ["192.0.2.7/24"]}, "has host bits set"),
        ({"colour": "red"}, "colour"),
        ({"groups": None}, "groups: .*required"),
    ],
)
def test_a_wrong_spec_is_refused_by_its_key(change: dict[str, Any], message: str) -> None:
    given = {key: value for key, value in {**dataclasses.asdict(SPEC), **change}.items() if value is not None}
    with pytest.raises(SpecError, match=message):
        from_mapping(given)


def test_a_group_of_the_experiment_file_becomes_hosts_of_ec2() -> None:
    volumes = {"journal": {"type": "io1", "size_gib": 25, "iops": 1000}}
    group = HostGroup.model_validate({"count": 2, "instance_type": "c4.4xlarge", "volumes": volumes})
    journal = VolumeSpec("journal", "io1", 25, 1000)
    assert group_spec("shard_hosts", group) == GroupSpec("shard_hosts", 2, ("c4.4xlarge",), (journal,))
    with pytest.raises(SpecError, match=r"infrastructure\.client_hosts\.instance_type"):
        group_spec("client_hosts", HostGroup())
    emulated = HostGroup.model_validate({"instance_type": "c5.large", "volumes": {"data": {"type": "emulated"}}})
    with pytest.raises(SpecError, match="emulated"):
        group_spec("shard_hosts", emulated)


def test_several_volumes_of_a_purpose_are_each_attached_and_paid() -> None:
    data = {"type": "gp3", "size_gib": 720, "policy": "raid0", "count": 4}
    volumes = HostGroup.model_validate({"instance_type": "c5.large", "volumes": {"data": data}})
    group = group_spec("shard_hosts", volumes)
    assert [v.device for v in group.volumes] == ["/dev/sdf", "/dev/xvdba", "/dev/xvdbb", "/dev/xvdbc"]
    alone = fleet_price([dataclasses.replace(group, volumes=())], "us-east-1").hourly_usd
    assert fleet_price([group], "us-east-1").hourly_usd == pytest.approx((alone or 0) + 4 * 0.08)
