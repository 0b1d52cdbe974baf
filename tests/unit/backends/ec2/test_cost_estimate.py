"""Which points share a fleet."""

from microshard.backends.ec2.cost_estimate import group_into_fleets
from microshard.model.infrastructure import Infrastructure


def infrastructure(**shard_hosts: object) -> Infrastructure:
    return Infrastructure.model_validate({"shard_hosts": {"instance_type": "c5.large", **shard_hosts}})


def test_points_share_hosts_of_one_kind_and_the_most_of_them_are_launched() -> None:
    (fleet,) = group_into_fleets(
        [
            ("p01", infrastructure(count=1)),
            ("p02", infrastructure(count=4, kernel={"swappiness": 1})),
            ("p03", infrastructure(count=2, numa={"policy": "interleave"})),
        ]
    )
    assert fleet.points == ("p01", "p02", "p03")
    assert fleet.infrastructure.shard_hosts.count == 4
    assert fleet.forced_by == ()


def test_another_type_or_volume_forces_new_hosts_and_the_reason_is_named() -> None:
    small = {"data": {"type": "gp3", "size_gib": 100}}
    fleets = group_into_fleets(
        [
            ("p01", infrastructure()),
            ("p02", infrastructure(instance_type="c5.xlarge")),
            ("p03", infrastructure()),
            ("p04", infrastructure(volumes=small)),
        ]
    )
    assert [fleet.points for fleet in fleets] == [("p01", "p03"), ("p02",), ("p04",)]
    assert fleets[1].forced_by == ("infrastructure.shard_hosts.instance_type: c5.large → c5.xlarge",)
    assert "infrastructure.shard_hosts.volumes.data: none → gp3 100" in fleets[2].forced_by
