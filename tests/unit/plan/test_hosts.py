import re
from collections import Counter
from typing import Any

import pytest

from microshard.experiment.matrix import PointDefinition
from microshard.model.plan import Host, Inputs, Plan
from microshard.plan.build import build_plan
from microshard.plan.checks import PlanError
from microshard.plan.hosts import volumes_of_processes
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


@pytest.mark.parametrize("members", [1, 2, 3, 5])
@pytest.mark.parametrize("hosts", [2, 3, 5, 6, 9])
@pytest.mark.parametrize("shards", [1, 2, 3, 4, 7])
def test_no_host_idles_while_another_has_two_data_bearing_members(
    planned: Any, shards: int, hosts: int, members: int
) -> None:
    plan = planned([shards], on(lab(hosts)), topology={"shards": {"count": shards, "members": members}},
                   **infrastructure(hosts))  # fmt: skip
    bearing = Counter({f"db{n}": 0 for n in range(1, hosts + 1)})
    bearing.update(p.host for p in plan.points[0].processes if p.role == "shard")
    assert max(bearing.values()) == 1 or min(bearing.values()) > 0, bearing
    for replica_set in plan.points[0].replica_sets:
        used = [by_name(plan)[m.process] for m in replica_set.members]
        assert replica_set.name == "config" or len(set(used)) == min(members, hosts)


def test_too_few_hosts_for_the_members_is_reported(planned):
    plan = planned([1], on(lab(2)), topology={"shards": {"members": 3}}, **infrastructure(2))
    assert any("3 members of each replica set on 2 hosts" in warning for warning in plan.warnings)


NVME = Host("nvme1", "10.0.0.9", ("other_shard_hosts",), 4, 16384.0, 10**12)
SERVERS = {"mongodb": {"source": "path", "path": "/usr/bin", "version": "6.0"}}


def placed(planned: Any, placement: dict[str, Any], shards: int = 2, **topology: Any) -> Plan:
    """The plan of a cluster on three shard hosts and one of another kind."""
    hosts = on((*lab(3), NVME))
    wanted = {**SERVERS, "shards": {"count": shards, "members": 2}, "placement": placement, **topology}
    plan: Plan = planned([shards], hosts, topology=wanted, **infrastructure(3, other_shard_hosts={}))
    return plan


def test_processes_are_on_the_hosts_the_placement_names(planned: Any) -> None:
    lists = [["nvme1", "db3"], ["db3", "other_shard_hosts-1"], ["db1", "db2"]]
    plan = placed(planned, {"shards": lists, "config_servers": ["shard_hosts-2"], "mongos": ["db1", "db2"]})
    assert by_name(plan) == {
        "mongos1": "db1", "config1": "db2",
        "shard01-1": "nvme1", "shard01-2": "db3", "shard02-1": "db3", "shard02-2": "nvme1",
    }  # fmt: skip
    assert "shard_hosts-1" not in {host.name for host in plan.hosts}
    whole = placed(planned, {"shards": lists}, 3)
    assert by_name(whole)["shard03-2"] == "db2"
    assert Counter(by_name(placed(planned, {})).values()) == {"db1": 2, "db2": 1, "db3": 1, "nvme1": 1, "load1": 1}


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ({"shards": [["db1", "db2"]]}, "placement.shards: 1 given, there are 2"),
        ({"shards": [["db1"], ["db1", "db2"]]}, "placement.shards.0: 1 hosts for 2 members of shard01"),
        ({"shards": [["db1", "db4"], ["db1", "db2"]]}, "shards.0.1: db4 is not among the hosts: db1, db2, db3, n"),
        ({"shards": [["db1", "load1"], ["db1", "db2"]]}, "placement.shards.0.1: load1 is no shard host"),
        ({"shards": [["db1", "db2"], ["db3", "shard_hosts-3"]]}, "shards.1.1: shard_hosts-3 has another member"),
        ({"config_servers": ["db1", "db2"]}, "placement.config_servers: 2 given, there are 1"),
        ({"replica_set": ["db1"]}, "placement.replica_set: a topology of kind sharded has none"),
    ],
)
def test_a_placement_that_does_not_fit_is_refused_by_its_key(
    planned: Any, placement: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        placed(planned, placement)


def test_the_embedded_mongos_is_not_placed(planned: Any) -> None:
    with pytest.raises(PlanError, match=r"placement.mongos: the embedded mongos listens on loopback only"):
        placed(planned, {"mongos": ["db1"]}, mongodb={"source": "embedded"})


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


def with_one(host: Host) -> Inputs:
    return on((Host("db1", "10.0.0.1", DATA, 4, 16384.0), host, lab(1)[-1]))


ROUND_ROBIN: dict[str, Any] = {"numa": {"policy": "node_round_robin"}}
NODES: dict[str, Any] = {"numa": {"policy": "node_round_robin", "nodes": [0, 1]}}


def shard_hosts(**keys: Any) -> dict[str, Any]:
    return {"infrastructure": {"shard_hosts": keys}}


@pytest.mark.parametrize(
    ("shards", "inputs", "changes", "message"),
    [
        (2, with_one(Host("db2", "10.0.0.2", DATA, 4, 512.0)), infrastructure(2), "db2 has 512 MiB of RAM"),
        (2, with_one(Host("db2", "2", DATA, 4, 16384.0, 10**6)), infrastructure(2), "GB of disk .* at one time on db2"),
        (2, on(lab(2)), infrastructure(3), "shard_hosts.count: 3 needed, inventories/lab has 2 .*: db1, db2"),
        (1, on(lab(1)), infrastructure(1, mongos_hosts={}), "loopback only"),
        (2, Inputs(cores=4, numa_nodes=(0,)), shard_hosts(**NODES), "numa.nodes: local has the NUMA nodes 0 and no 1"),
        (2, Inputs(cores=4, numa_nodes=(0, 1), numactl=False), shard_hosts(**NODES), "policy: local has no numactl"),
        (2, Inputs(cores=4, numa_nodes=(0,)), shard_hosts(**ROUND_ROBIN), "has one NUMA node"),
    ],
)
def test_what_a_host_cannot_do_is_refused_by_its_name(
    planned: Any, shards: int, inputs: Inputs, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        planned([shards], inputs, **changes)


def test_hosts_that_nothing_uses_are_reported(planned):
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


def test_the_host_of_the_data_has_the_settings_of_the_data(planned: Any) -> None:
    (point,) = planned([2], Inputs(cores=4, numa_nodes=(0, 1)), **shard_hosts(**NODES)).points
    assert point.numa == {"local": {"policy": "node_round_robin", "nodes": [0, 1], "reserved_cores": 1}}
    assert planned([2], Inputs(cores=4)).points[0].numa == {}


def test_more_shards_than_cores_are_refused_with_the_numbers(planned: Any) -> None:
    policy = {"shard_hosts": {"numa": {"policy": "cores_per_shard", "reserved_cores": 2}}}
    assert planned([2], Inputs(cores=4, numa_nodes=(0,)), infrastructure=policy).points[0].numa
    with pytest.raises(PlanError, match=r"local has 4 cores, 2 of them reserved: .* give 3 data-bearing processes"):
        planned([1, 3], Inputs(cores=4, numa_nodes=(0,)), infrastructure=policy)


VOLUME: dict[str, Any] = {"type": "existing", "size_gib": 10}


def given(count: int, **volumes: Any) -> dict[str, Any]:
    return {"infrastructure": {"shard_hosts": {"count": count, "volumes": volumes}}}


def test_journal_and_log_have_their_volumes_and_one_data_volume_holds_the_run(planned):
    plan = planned([2], on(lab(1)), **given(1, data=VOLUME, journal=VOLUME, log=VOLUME))
    found = volumes_of_processes(plan.points[0])
    assert found["shard01"] == {"journal": "journal", "log": "log"}
    assert found["config1"] == {"journal": "journal", "log": "log"}
    assert found["mongos1"] == {}  # on the client host


def test_shards_of_a_host_get_its_data_volumes_in_turns(planned):
    several = {**VOLUME, "policy": "per_shard", "count": 2}
    found = volumes_of_processes(planned([6], on(lab(2)), **given(2, data=several)).points[0])
    # Shards go round the hosts: 1, 3, 5 are on the first.
    assert [found[f"shard0{n}"]["data"] for n in (1, 3, 5)] == ["data-01", "data-02", "data-01"]
    assert [found[f"shard0{n}"]["data"] for n in (2, 4, 6)] == ["data-01", "data-02", "data-01"]


def test_this_machine_has_none(planned):
    assert not any(volumes_of_processes(planned([2], Inputs(cores=2)).points[0]).values())


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
    changed = {**given(1), "topology": {"security": {"tls": False}}}
    assert planned([1], on(lab(1)), **changed).points[0].security == {"authorization": True, "tls": False}
