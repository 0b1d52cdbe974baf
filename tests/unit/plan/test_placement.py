from collections import Counter

import pytest

from microshard.experiment.matrix import PointDefinition
from microshard.model.plan import Host, Plan
from microshard.plan import Inputs, PlanError, build_plan
from tests.unit.plan.conftest import experiment

DATA, CLIENT = ("shard_hosts",), ("client_hosts",)


def lab(count: int, *, ram_mib: float = 16384.0, cores: int = 4) -> tuple[Host, ...]:
    data = (Host(f"db{n}", f"10.0.0.{n}", DATA, cores, ram_mib, 10**12) for n in range(1, count + 1))
    return (*data, Host("load1", "10.0.0.100", CLIENT, 8, 8192.0, 10**12))


def on(hosts: tuple[Host, ...]) -> Inputs:
    return Inputs(backend="hosts", where="inventories/lab", hosts=hosts)


def infrastructure(data: int, **more: object) -> dict[str, object]:
    return {"infrastructure": {"shard_hosts": {"count": data}, **more}}


def by_name(plan: Plan) -> dict[str, str]:
    return {p.name: p.host for p in plan.points[0].processes}


def test_shards_go_round_the_hosts_and_mongos_to_the_client(planned):
    plan = planned([5], on(lab(3)), **infrastructure(3))
    assert [by_name(plan)[f"shard0{n}"] for n in range(1, 6)] == ["db1", "db2", "db3", "db1", "db2"]
    assert by_name(plan)["mongos1"] == "load1"
    assert by_name(plan)["config1"] == "db1"
    assert {h.name for h in plan.hosts} == {"db1", "db2", "db3", "load1"}


def test_members_of_a_set_are_on_different_hosts_and_first_members_spread(planned):
    plan = planned([3], on(lab(3)), topology={"shards": {"count": 3, "members": 3}}, **infrastructure(3))
    for replica_set in plan.points[0].replica_sets:
        hosts = [by_name(plan)[m.process] for m in replica_set.members]
        assert len(set(hosts)) == len(hosts)
    firsts = [by_name(plan)[f"shard0{n}-1"] for n in (1, 2, 3)]
    assert sorted(firsts) == ["db1", "db2", "db3"]


def test_too_few_hosts_for_the_members_is_told(planned):
    plan = planned([1], on(lab(2)), topology={"shards": {"members": 3}}, **infrastructure(2))
    assert any("3 members of each replica set on 2 hosts" in warning for warning in plan.warnings)


def test_config_servers_and_mongos_have_hosts_of_their_own_when_they_are_given(planned):
    hosts = (*lab(1), Host("cfg1", "10.0.0.50", ("config_hosts",)), Host("rt1", "10.0.0.60", ("mongos_hosts",)))
    topology = {"mongodb": {"source": "path", "path": "/usr/bin", "version": "6.0"}}
    plan = planned([2], on(hosts), topology=topology, **infrastructure(1, config_hosts={}, mongos_hosts={}))
    assert by_name(plan) == {"mongos1": "rt1", "config1": "cfg1", "shard01": "db1", "shard02": "db1"}
    assert plan.points[0].connection_string == f"mongodb://10.0.0.60:{plan.points[0].processes[0].port}/"


def test_the_embedded_mongos_is_reached_by_loopback_and_the_rest_by_address(planned):
    (point,) = planned([1], on(lab(1)), **infrastructure(1)).points
    assert {p.role: p.address for p in point.processes} == {
        "mongos": "127.0.0.1", "config": "10.0.0.1", "shard": "10.0.0.1",
    }  # fmt: skip


def test_every_host_has_ports_of_its_own_and_points_do_not_meet(planned):
    plan = planned([2, 4], on(lab(2)), **infrastructure(2))
    for point in plan.points:
        for host in ("db1", "db2", "load1"):
            ports = [p.port for p in point.processes if p.host == host]
            assert ports == list(range(ports[0], ports[0] + len(ports)))
    taken = Counter((p.host, p.port) for point in plan.points for p in point.processes)
    assert max(taken.values()) == 1
    assert min(p.port for p in plan.points[0].processes if p.host == "db2") == 27100


def test_the_cache_of_a_host_is_shared_by_its_own_processes_only(planned):
    cache = {"policy": "host_total_mb", "value": 1200}
    plan = planned([3], on(lab(2)), topology={"storage": {"cache": cache}}, **infrastructure(2))
    each = {p.name: p.cache_mib for p in plan.points[0].processes if p.role == "shard"}
    assert each == {"shard01": 600, "shard02": 1200, "shard03": 600}
    assert {c.host: c.total_mib for c in plan.points[0].caches} == {"db1": 1200, "db2": 1200}
    assert any("not spread evenly (db1 2, db2 1)" in warning for warning in plan.warnings)


def test_a_share_of_ram_is_of_the_ram_of_each_host(planned):
    hosts = (*lab(1, ram_mib=8192.0), Host("db2", "10.0.0.2", DATA, 4, 32768.0))
    cache = {"policy": "fraction_of_ram", "value": 0.5}
    (point,) = planned([2], on(hosts), topology={"storage": {"cache": cache}}, **infrastructure(2)).points
    assert {p.name: p.cache_mib for p in point.processes if p.role == "shard"} == {"shard01": 4096, "shard02": 16384}


def test_what_a_host_cannot_hold_is_told_by_its_name(planned):
    hosts = (Host("db1", "10.0.0.1", DATA, 4, 16384.0), Host("db2", "10.0.0.2", DATA, 4, 512.0), lab(1)[-1])
    with pytest.raises(PlanError, match=r"db2 has 512 MiB of RAM"):
        planned([2], on(hosts), **infrastructure(2))
    full = (Host("db1", "10.0.0.1", DATA, 4, 16384.0, 10**6), lab(1)[-1])
    with pytest.raises(PlanError, match=r"GB of disk are needed at one time on db1"):
        planned([1], on(full), **infrastructure(1))


def test_more_hosts_than_the_inventory_has_are_refused_by_group(planned):
    with pytest.raises(PlanError) as caught:
        planned([2], on(lab(2)), **infrastructure(3))
    assert caught.value.problems == (
        ("infrastructure.shard_hosts.count", "3 asked for, inventories/lab has 2 in the group shard_hosts: db1, db2"),
    )


def test_hosts_that_nothing_uses_are_told(planned):
    plan = planned([1], on(lab(3)), **infrastructure(1))
    assert "not used by this experiment: db2, db3 of inventories/lab" in plan.warnings


def test_a_point_may_be_without_a_host_that_others_have() -> None:
    both = [experiment(**infrastructure(count)) for count in (3, 1)]
    axis = [PointDefinition({"infrastructure.shard_hosts.count": n}, e) for n, e in zip((3, 1), both, strict=True)]
    plan = build_plan(both[0], axis, on(lab(3)))
    assert [{h.name for h in point.hosts} for point in plan.points] == [
        {"db1", "db2", "db3", "load1"},
        {"db1", "load1"},
    ]


def test_the_embedded_mongos_cannot_have_hosts_of_its_own(planned):
    with pytest.raises(PlanError, match="loopback only"):
        planned([1], on(lab(1)), **infrastructure(1, mongos_hosts={}))
