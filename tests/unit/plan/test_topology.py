from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microshard.model.plan import Inputs, Point
from microshard.model.topology import Cache
from microshard.plan.topology import cache_budget


@given(st.floats(1, 1e6), st.integers(1, 512))
def test_a_host_total_is_never_exceeded(total, processes):
    shared = cache_budget(Cache(policy="host_total_mb", value=total), processes, 8192.0)
    assert shared.total_mib <= total
    assert shared.total_mib == pytest.approx(total, abs=processes / 1024)


@given(st.floats(0.01, 1.0), st.integers(1, 512), st.floats(512, 1e6))
def test_a_fraction_of_ram_is_never_exceeded(fraction, processes, ram):
    shared = cache_budget(Cache(policy="fraction_of_ram", value=fraction), processes, ram)
    assert shared.total_mib <= fraction * ram


@given(st.floats(0.5, 1e5), st.integers(1, 512))
def test_per_process_is_the_same_whatever_the_number_of_processes(value, processes):
    shared = cache_budget(Cache(policy="per_process_mb", value=value), processes, None)
    assert shared.per_process_mib == pytest.approx(value, abs=1 / 1024)


@pytest.mark.parametrize(("value", "through"), [(255.9, True), (256.0, False), (2.0, True)])
def test_below_the_options_minimum_the_configuration_string_is_used(value, through):
    assert cache_budget(Cache(policy="per_process_mb", value=value), 1, None).through_config_string is through


def test_a_fraction_of_an_unknown_ram_is_refused():
    with pytest.raises(ValueError, match="RAM"):
        cache_budget(Cache(policy="fraction_of_ram", value=0.5), 1, None)


INPUTS = Inputs(cores=4, ram_mib=16384.0)


def test_a_cache_of_its_own_is_added_to_what_the_others_share(planned: Any) -> None:
    members = [{}, {}, {"cache_mb": 100.0, "hidden": True}, {"arbiter": True}]
    topology = {
        "kind": "replica_set",
        "replica_set": {"members": members},
        "storage": {"cache": {"policy": "host_total_mb", "value": 1000}},
    }
    (point,) = planned([1], INPUTS, topology=topology).points
    assert [p.cache_mib for p in point.processes] == [500.0, 500.0, 100.0, 64.0]
    assert (point.cache.processes, point.cache.own_mib, point.cache.total_mib) == (2, 164.0, 1164.0)
    assert [p.cpu_share for p in point.processes] == [4 / 3, 4 / 3, 4 / 3, 0.0]


def test_clients_know_the_members_they_may_connect_to(planned: Any) -> None:
    members = [{}, {"priority": 0.5}, {"hidden": True}, {"arbiter": True}, {"initial": False}]
    (point,) = planned([1], INPUTS, topology={"kind": "replica_set", "replica_set": {"members": members}}).points
    seen = [p.endpoint for p in point.processes[:2]]
    assert point.connection_string == f"mongodb://{','.join(seen)}/?replicaSet=rs0"
    (rs,) = point.replica_sets
    assert [m.priority for m in rs.members] == [1, 0.5, 0, 0, 1]
    assert [m.initial for m in rs.members] == [True, True, True, True, False]


def test_the_closest_name_decides_which_limit_a_mongod_has(planned: Any) -> None:
    limits = {"all": {"cpus": 2.0}, "shard02": {"cpus": 0.5}, "shard02-1": {"cpus": 1.0}}
    topology = {"kind": "sharded", "shards": {"count": 2, "members": 2}, "limits": limits}
    (point,) = planned([2], INPUTS, topology=topology).points
    found = {p.name: p.limits for p in point.processes if p.limits}
    cores = {"shard01-1": 2.0, "shard01-2": 2.0, "shard02-1": 1.0, "shard02-2": 0.5}
    assert found == {name: {"cpus": value} for name, value in cores.items()}


def test_options_of_one_member_override_those_of_all(planned: Any) -> None:
    members = [{}, {"block_compressor": "zlib", "mongod": {"setParameter": {"ttlMonitorEnabled": False}}}]
    topology = {
        "kind": "replica_set",
        "replica_set": {"members": members},
        "mongod": {"setParameter": {"ttlMonitorEnabled": True, "notablescan": True}},
    }
    (point,) = planned([1], INPUTS, topology=topology).points
    first, second = (p.options for p in point.processes)
    assert first["storage"]["wiredTiger"]["collectionConfig"]["blockCompressor"] == "snappy"
    assert second["storage"]["wiredTiger"]["collectionConfig"]["blockCompressor"] == "zlib"
    assert second["setParameter"] == {"ttlMonitorEnabled": False, "notablescan": True}


def test_chunks_lie_on_the_shards_that_are_there_from_the_start(planned: Any) -> None:
    def cluster(presplit: dict[str, Any]) -> Point:
        collections = [{"namespace": "vosa.mot_results", "shard_key": {"_id": 1}, "presplit": presplit}]
        topology = {"shards": {"count": 3, "initial": 2}, "collections": collections}
        plan = planned([3], INPUTS, topology=topology)
        return plan.points[0]  # type: ignore[no-any-return]

    point = cluster({"policy": "split_points", "points": [5, 6]})
    assert [(c.shard, c.lower, c.upper) for c in point.collections[0].chunks] == [
        ("shard01", None, 5),
        ("shard02", 5, 6),
        ("shard01", 6, None),
    ]
    assert [rs.initial for rs in point.replica_sets] == [True, True, True, False]
    assert {c.shard for c in cluster({"policy": "key_ranges"}).collections[0].chunks} == {"shard01", "shard02"}


def test_options_are_those_the_version_and_the_engine_know(planned: Any) -> None:
    def options(version: str, engine: str) -> dict[str, Any]:
        topology = {
            "kind": "replica_set",
            "replica_set": {"members": 1},
            "mongodb": {"source": "path", "path": "/opt/mongodb", "version": version},
            "network": {"compressors": []},
            "storage": {"engine": engine, "cache": {"policy": "per_process_mb", "value": 2048}},
        }
        # Old versions are planned where they may be, and run nowhere.
        hosts = {"shard_hosts": {"instance_type": "c5.large"}, "client_hosts": {"instance_type": "c5.large"}}
        elsewhere = {"infrastructure": hosts, "budget": {"max_hours": 1}}
        inputs = Inputs(cores=2, ram_mib=16384.0, backend="ec2")
        (point,) = planned([1], inputs, topology=topology, **elsewhere).points
        return dict(point.processes[0].options)

    # net.compression came with 3.4: an older mongod does not start with it.
    assert "net" not in options("3.0", "wiredTiger")
    assert options("3.4", "wiredTiger")["net"] == {"compression": {"compressors": "disabled"}}
    assert options("3.0", "wiredTiger")["storage"]["wiredTiger"]["collectionConfig"] == {"blockCompressor": "snappy"}


def test_the_embedded_mongos_alone_is_given_its_way_of_point_operations(planned: Any) -> None:
    def mongos(**given: Any) -> dict[str, Any]:
        plan = planned([1], INPUTS, topology={"kind": "sharded", "shards": {"count": 1}, "mongos": given})
        return next(dict(p.options) for p in plan.points[0].processes if p.role == "mongos")

    assert "setParameter" not in mongos()
    assert mongos(point_operations="router_mongod")["setParameter"] == {"microshardTargeting": False}
