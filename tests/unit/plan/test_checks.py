from typing import Any

import pytest

from microshard.experiment.matrix import PointDefinition
from microshard.model.plan import Host, Inputs
from microshard.plan.checks import PlanError, refuse_impossible

from .conftest import experiment, points

EC2: dict[str, Any] = {
    "infrastructure": {"shard_hosts": {"instance_type": "c5.4xlarge"}, "client_hosts": {"instance_type": "c5.large"}},
    "budget": {"max_hours": 2.0},
}
PACKAGES = {"mongodb": {"source": "packages", "version": "7.0"}}


def refused(backend: str, changes: dict[str, Any]) -> list[str]:
    from microshard.plan.build import build_plan

    base = experiment(**changes)
    with pytest.raises(PlanError) as caught:
        build_plan(base, points(base, [1]), Inputs(cores=2, backend=backend))
    return [key for key, _ in caught.value.problems]


@pytest.mark.parametrize(
    ("infrastructure", "key"),
    [
        ({"shard_hosts": {"market": "spot"}}, "shard_hosts.market"),
        ({"shard_hosts": {"image": "al2023"}}, "shard_hosts.image"),
        ({"client_hosts": {"root_size_gib": 20}}, "client_hosts.root_size_gib"),
        ({"client_hosts": {"threads_per_core": 1}}, "client_hosts.threads_per_core"),
        ({"ec2": {"region": "us-east-1"}}, "ec2.region"),
        ({"ec2": {"placement_group": True}}, "ec2.placement_group"),
        ({"ec2": {"owner": "ann"}}, "ec2.owner"),
        ({"ec2": {"controller_cidrs": ["192.0.2.1/32"]}}, "ec2.controller_cidrs"),
    ],
)
def test_what_speaks_of_ec2_is_refused_on_this_machine(infrastructure: dict[str, Any], key: str) -> None:
    assert refused("local", {"infrastructure": infrastructure}) == [f"infrastructure.{key}"]


def test_a_limit_of_a_process_that_is_not_there_is_refused() -> None:
    assert refused("local", {"topology": {"kind": "standalone", "limits": {"shard07": {"cpus": 1.0}}}}) == [
        "topology.limits.shard07"
    ]


def test_ec2_needs_types_and_an_end_and_has_no_embedded_mongos() -> None:
    assert refused("ec2", {}) == [
        "infrastructure.shard_hosts.instance_type",
        "infrastructure.client_hosts.instance_type",
        "budget.max_hours",
        "topology.mongodb.source",
    ]


@pytest.mark.parametrize(
    ("one", "other", "key"),
    [
        ({"kernel": {"readahead_sectors": 32}}, {"kernel": {"readahead_sectors": 512}}, None),
        ({"kernel": {"readahead_sectors": 32}}, {}, "shard_hosts.kernel.readahead_sectors"),
        ({"kernel": {"production_notes": True}}, {}, "shard_hosts.kernel.production_notes"),
        ({"volumes": {"data": {"type": "existing", "size_gib": 1}}}, {}, "shard_hosts.volumes"),
        ({"numa": {"policy": "interleave"}}, {}, None),
    ],
)
def test_what_cannot_be_changed_between_the_points_on_the_same_hosts_is_refused(
    one: dict[str, Any], other: dict[str, Any], key: str | None
) -> None:
    hosts = (Host("db1", "10.0.0.1", ("shard_hosts",), 4, 16384.0, 10**12, numa_nodes=(0,), numactl=True),
             Host("load1", "10.0.0.9", ("client_hosts",), 4, 16384.0, 10**12))  # fmt: skip
    axis = "infrastructure.shard_hosts"
    both = [PointDefinition({axis: g}, experiment(infrastructure={"shard_hosts": g})) for g in (one, other)]
    inputs = Inputs(backend="hosts", where="lab", hosts=hosts)
    if key is None:
        refuse_impossible(both, inputs)
        return
    with pytest.raises(PlanError) as caught:
        refuse_impossible(both, inputs)
    assert [found for found, _ in caught.value.problems] == [f"infrastructure.{key}"]


def test_an_emulated_volume_is_refused_on_ec2() -> None:
    hosts = {"instance_type": "c5.large", "volumes": {"log": {"type": "emulated"}}}
    changes = {**EC2, "infrastructure": {**EC2["infrastructure"], "shard_hosts": hosts}, "topology": PACKAGES}
    assert refused("ec2", changes) == ["infrastructure.shard_hosts.volumes.log.type"]


@pytest.mark.parametrize(("engine", "version"), [("mmapv1", "3.0"), ("rocksdb", "3.2"), ("tokumx", "2.4")])
def test_servers_no_client_speaks_to_are_planned_on_ec2_and_refused_by_name_where_they_would_run(
    engine: str, version: str
) -> None:
    from microshard.plan.build import build_plan
    from microshard.plan.checks import not_on_hosts_yet

    topology = {
        "kind": "standalone",
        "mongodb": {"source": "path", "path": "/opt/mongodb", "version": version},
        "network": {"compressors": []},
        "storage": {"engine": engine, "block_compressor": "zlib"},
    }
    keys = ["topology.storage.engine", "topology.mongodb.version"]
    assert refused("local", {"topology": topology}) == keys
    assert refused("hosts", {"topology": topology}) == keys
    base = experiment(**EC2, topology=topology)
    (point,) = build_plan(base, points(base, [1]), Inputs(cores=2, ram_mib=16384.0, backend="ec2")).points
    assert point.processes[0].options["storage"]["engine"] == engine
    assert [key for key, _ in not_on_hosts_yet(base)] == keys


@pytest.mark.parametrize(
    ("version", "driver", "needs"),
    [
        ("4.2", None, "client.driver: pymongo==3.13"),
        ("4.2", "pymongo==3.13", None),
        ("3.6", "pymongo==3.13", None),
        ("3.4", "pymongo==3.13", "MongoDB 3.6 and later"),
    ],
)
def test_a_driver_of_its_own_speaks_to_older_servers(version: str, driver: str | None, needs: str | None) -> None:
    from microshard.plan.checks import unsupported

    topology = {"kind": "standalone", "mongodb": {"source": "path", "path": "/opt/mongodb", "version": version}}
    found = unsupported(experiment(topology=topology, client={"driver": driver}), "local")
    assert [(key, needs in reason) for key, reason in found if needs] == [("topology.mongodb.version", True)] * bool(
        needs
    )
    assert needs is not None or not found


def several(*workload: dict[str, Any], topology: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "infrastructure": {"client_hosts": {"count": 2}},
        "topology": topology or {"kind": "standalone"},
        "workload": list(workload),
    }


def test_an_engine_of_one_client_host_is_refused_by_name_where_there_are_several() -> None:
    ycsb = {"engine": "ycsb", "records": 1000, "clients": 2}
    cold = {"engine": "aggregate", "pipeline": [{"$count": "n"}], "connections": 2}
    insert = {"load": {"engine": "insert", "documents": 1000}}
    forms = {"all": {"asks": "how many?", "filter": {}}}
    queries = {"engine": "queries", "forms": forms, "form": "all"}
    assert refused("hosts", several({"load": ycsb}, {"measure": queries})) == ["workload.1.measure.engine"]
    assert refused("hosts", several(insert, {"measure": cold | {"cache": "cold"}})) == ["workload.1.measure.cache"]
    search = {"search": {"at_most": 5}}
    assert refused("hosts", several(insert, {"measure": cold | search})) == ["workload.1.measure.search"]
    assert refused("hosts", several({"load": ycsb}, {"measure": ycsb | search})) == ["workload.1.measure.search"]
    embedded = {"kind": "sharded", "collections": []}
    assert refused("hosts", several({"load": ycsb}, {"measure": ycsb}, topology=embedded)) == [
        "infrastructure.client_hosts.count"
    ]
    assert refused("local", several({"load": ycsb}, {"measure": ycsb})) == ["infrastructure.client_hosts.count"]


@pytest.mark.parametrize(
    ("measured", "key"),
    [
        ({"engine": "ycsb", "records": 1000}, "clients"),
        ({"engine": "aggregate", "pipeline": [{"$count": "n"}]}, "connections"),
        ({"engine": "readers", "threads": 1, "read_preference": "primary"}, "threads"),
        ({"engine": "insert", "documents": 9, "processes": 1}, "processes"),
        ({"engine": "traffic", "namespace": "a.b", "seconds_long": 1, "load": {"threads": 1}}, "load.threads"),
    ],
)
def test_fewer_clients_than_client_hosts_are_refused(measured: dict[str, Any], key: str) -> None:
    from microshard.model.plan import Host
    from microshard.plan.build import build_plan

    hosts = (Host("db", "10.0.0.1", ("shard_hosts",)), *(Host(n, n, ("client_hosts",)) for n in ("c1", "c2")))
    ycsb = {"engine": "ycsb", "records": 1000, "clients": 2}
    base = experiment(**several({"load": ycsb}, {"measure": measured}))
    with pytest.raises(PlanError, match=rf"workload\.1\.measure\.{key}: 1 on 2 client hosts"):
        build_plan(base, points(base, [1]), Inputs(hosts=hosts, backend="hosts"))
