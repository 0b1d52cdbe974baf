"""Which volume of a host holds the files of a process."""

from typing import Any

import pytest

from microshard.plan import Inputs, PlanError
from microshard.plan.volumes import homes
from tests.unit.plan.test_placement import lab, on

VOLUME: dict[str, Any] = {"type": "existing", "size_gib": 10}


def given(count: int, **volumes: Any) -> dict[str, Any]:
    return {"infrastructure": {"shard_hosts": {"count": count, "volumes": volumes}}}


def test_journal_and_log_have_their_volumes_and_one_data_volume_is_where_the_run_lies(planned):
    plan = planned([2], on(lab(1)), **given(1, data=VOLUME, journal=VOLUME, log=VOLUME))
    found = homes(plan.points[0])
    assert found["shard01"] == {"journal": "journal", "log": "log"}
    assert found["config1"] == {"journal": "journal", "log": "log"}
    assert found["mongos1"] == {}  # on the client host


def test_shards_of_a_host_get_its_data_volumes_in_turns(planned):
    several = {**VOLUME, "policy": "per_shard", "count": 2}
    found = homes(planned([6], on(lab(2)), **given(2, data=several)).points[0])
    # Shards go round the hosts: 1, 3, 5 are on the first.
    assert [found[f"shard0{n}"]["data"] for n in (1, 3, 5)] == ["data-01", "data-02", "data-01"]
    assert [found[f"shard0{n}"]["data"] for n in (2, 4, 6)] == ["data-01", "data-02", "data-01"]


def test_this_machine_has_none(planned):
    assert not any(homes(planned([2], Inputs(cores=2)).points[0]).values())


def test_what_the_data_volume_holds_counts_and_not_what_is_free_before_it_is_mounted(planned):
    full = [
        host.__class__(**{**{f: getattr(host, f) for f in host.__slots__}, "free_disk_bytes": 10**6}) for host in lab(1)
    ]
    inputs = on(tuple(full))
    with pytest.raises(PlanError, match="GB are free"):
        planned([2], inputs, **given(1))
    room: dict[str, Any] = {
        "infrastructure": {
            "shard_hosts": {"count": 1, "volumes": {"data": VOLUME}},
            "client_hosts": {"volumes": {"data": VOLUME}},
        }
    }
    assert planned([2], inputs, **room).points
    room["infrastructure"]["shard_hosts"]["volumes"] = {"data": {**VOLUME, "size_gib": 1}}
    with pytest.raises(PlanError, match="a larger size_gib"):
        planned([32], inputs, **room)


def test_logins_and_encryption_are_for_places_with_a_network(planned):
    assert planned([1], on(lab(1)), **given(1)).points[0].security == {"authorization": True, "tls": True}
    assert planned([1], Inputs(cores=2)).points[0].security == {"authorization": False, "tls": False}
    told = {**given(1), "topology": {"security": {"tls": False}}}
    assert planned([1], on(lab(1)), **told).points[0].security == {"authorization": True, "tls": False}
