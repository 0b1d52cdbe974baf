import dataclasses
import io
import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from microshard.model.plan import Inputs
from microshard.plan.build import build_plan
from microshard.plan.checks import PlanError
from microshard.plan.render import render
from tests.unit.plan.conftest import experiment, points

_kinds = st.sampled_from(["standalone", "replica_set", "sharded"])


@st.composite
def _experiments(draw):
    kind = draw(_kinds)
    topology = {
        "kind": kind,
        "shards": {"members": draw(st.integers(1, 3))},
        "mongos": {"count": draw(st.integers(1, 4))},
        "config_servers": {"members": draw(st.integers(1, 3))},
        "replica_set": {"members": draw(st.integers(1, 5))},
        "storage": {"cache": {"policy": "host_total_mb", "value": draw(st.floats(16, 4096))}},
    }
    order = {"redeploy": draw(st.sampled_from(["auto", "per_point", "per_repetition"]))}
    return experiment(topology=topology, order=order), draw(
        st.lists(st.integers(1, 24), min_size=1, max_size=5, unique=True)
    )


@settings(max_examples=60)
@given(_experiments())
def test_no_two_processes_that_run_at_one_time_share_a_port_or_a_path(sample):
    base, counts = sample
    plan = build_plan(base, points(base, counts), Inputs(cores=4))
    groups = [plan.points] if plan.redeploy == "per_point" else [(p,) for p in plan.points]
    for group in groups:
        processes = [p for point in group for p in point.processes]
        for value in (lambda p: (p.host, p.port), lambda p: p.folder, lambda p: p.pid_path, lambda p: p.config_path):
            assert max(Counter(value(p) for p in processes).values()) == 1
        paths = [p.db_path for p in processes if p.db_path]
        assert len(set(paths)) == len(paths)


@settings(max_examples=60)
@given(_experiments())
def test_the_caches_of_a_host_never_exceed_the_policy(sample):
    base, counts = sample
    plan = build_plan(base, points(base, counts), Inputs(cores=4))
    for point in plan.points:
        data = [p.cache_mib or 0.0 for p in point.processes if p.role not in {"config", "mongos"}]
        assert len(data) == point.cache.processes
        assert sum(data) <= base.topology.storage.cache.value + 1e-9


def test_the_ranges_of_the_key_follow_one_another_and_each_is_on_one_shard(planned):
    plan = planned([4])
    (collection,) = plan.points[0].collections
    chunks = collection.chunks
    assert [c.shard for c in chunks] == ["shard01", "shard02", "shard03", "shard04"]
    assert chunks[0].lower is None
    assert chunks[-1].upper is None
    assert all(a.upper == b.lower for a, b in itertools.pairwise(chunks))
    assert chunks[1].lower == 1 << 32


def test_a_loader_owns_a_key_range_and_there_are_no_more_processes_than_cores(planned):
    load = planned([8]).points[0].phases[0].parameters
    assert load["processes"] == 2


def test_a_collection_with_one_key_range_has_one_loader_and_one_cut_at_points_has_as_many_as_cores(planned):
    points: dict[str, Any] = {"namespace": "vosa.mot_results", "shard_key": {"_id": 1}}
    points["presplit"] = {"policy": "split_points", "points": [100, 200, 300]}
    assert planned([1]).points[0].phases[0].parameters["processes"] == 1
    cut = planned([1], topology={"collections": [points]}, inputs=Inputs(cores=6, ram_mib=16384.0))
    assert cut.points[0].phases[0].parameters["processes"] == 6


def test_free_options_of_mongod_are_merged_last(planned):
    topology = {
        "mongod": {
            "storage": {"wiredTiger": {"collectionConfig": {"blockCompressor": "zstd"}}},
            "setParameter": {"x": 1},
        }
    }
    plan = planned([1], topology=topology)
    shard = next(p for p in plan.points[0].processes if p.role == "shard")
    assert shard.options["storage"]["wiredTiger"]["collectionConfig"]["blockCompressor"] == "zstd"
    assert shard.options["storage"]["wiredTiger"]["indexConfig"]["prefixCompression"] is True
    assert shard.options["setParameter"] == {"x": 1}
    config = next(p for p in plan.points[0].processes if p.role == "config")
    assert "setParameter" not in config.options


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (
            {"infrastructure": {"shard_hosts": {"instance_type": "c4.4xlarge"}}},
            "infrastructure.shard_hosts.instance_type",
        ),
        ({"topology": {"storage": {"engine": "mmapv1"}}}, "topology.storage.engine"),
        ({"budget": {"max_cost_usd": 5.0}}, "budget.max_cost_usd"),
    ],
)
def test_what_the_backend_cannot_do_is_refused_and_never_ignored(planned, changes, key):
    with pytest.raises(PlanError) as caught:
        planned([1], **changes)
    assert [k for k, _ in caught.value.problems] == [key]
    assert "not supported by this backend yet" in str(caught.value)


def test_gates_are_decided_point_by_point(planned):
    gates = planned([1], gates={"max_shard_skew": 1.2}).points[0].gates
    assert (gates["max_shard_skew"], gates["max_client_cpu"], gates["max_repeats"]) == (1.2, None, 2)
    assert (gates["max_migrations"], gates["initial_sync"]) == (0, "refuse")
    assert gates["decided"] == ["max_migrations", "initial_sync"]
    chosen = planned([1], gates={"max_migrations": 3, "initial_sync": "allow"}).points[0].gates
    assert (chosen["max_migrations"], chosen["initial_sync"], chosen["decided"]) == (3, "allow", [])


def test_migrations_are_no_background_work_where_the_balancer_is_on(planned):
    gates = planned([2], topology={"kind": "sharded", "balancer": {"enabled": True}}).points[0].gates
    assert gates["max_migrations"] is None


@pytest.mark.parametrize("keys", [{"event": "balancer"}, {"mover": "client", "concurrent_migrations": 1}])
def test_migrations_made_by_a_phase_do_not_make_it_invalid(planned, keys):
    name = {"namespace": "vosa.mot_results"}
    moving = {"engine": "balance", **name, "load": {"documents": 1000}, "before_seconds": 0, **keys}
    topology: dict[str, Any] = {"kind": "sharded", "shards": {"count": 2}, "balancer": {"enabled": False}}
    topology["collections"] = [{**name, "shard_key": {"_id": 1}}]
    plan = planned([2], topology=topology, workload=[{"measure": moving}])
    assert plan.points[0].gates["max_migrations"] is None


def test_a_later_attempt_has_a_name_of_its_own(planned):
    step = planned([1]).steps[0]
    assert step.name == "r1"
    assert dataclasses.replace(step, attempt=2).name == "r1-2"
    assert dataclasses.replace(step, attempt=3, purpose="drift").name == "drift-3"


WRITES = [{"measure": {"engine": "insert", "documents": 1000}}]
MISTYPED = [{"measure": {"engine": "aggregate", "pipeline": "greeness"}}]
LARGE = {"storage": {"cache": {"policy": "per_process_mb", "value": 1024}}}
TWO_CORES = Inputs(cores=2)


@pytest.mark.parametrize(
    ("shards", "inputs", "changes", "message"),
    [
        (8, Inputs(cores=2, ram_mib=4096.0), {"topology": LARGE}, r"8 × 1,024 MiB of cache are 8,192 MiB, .* 4,096"),
        (1, Inputs(cores=2, free_disk_bytes=100_000_000), {}, "GB are free"),
        (1, TWO_CORES, {"workload": WRITES, "order": {"redeploy": "per_point"}}, "only reads"),
        (1, Inputs(cores=2, pipelines={"other": []}), {"workload": MISTYPED}, "named greeness; known: other"),
        (600, TWO_CORES, {"topology": {"network": {"base_port": 65000}}}, "below 65536"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_figures(planned, shards, inputs, changes, message):
    with pytest.raises(PlanError, match=message):
        planned([shards], inputs, **changes)


def test_points_that_do_not_fit_into_ram_together_are_deployed_one_at_a_time(planned):
    together = planned([1, 2, 4, 8])
    assert together.redeploy == "per_point"
    tight = planned([1, 2, 4, 8], Inputs(cores=2, ram_mib=3000.0))
    assert tight.redeploy == "per_repetition"
    assert any("do not fit into RAM" in w for w in tight.warnings)
    assert tight.memory_mib < together.memory_mib


def test_a_measurement_that_writes_is_redeployed_for_every_repetition(planned):
    assert planned([1], workload=WRITES).redeploy == "per_repetition"


def test_a_cold_measurement_has_no_warm_up(planned):
    workload = [{"measure": {"engine": "aggregate", "pipeline": [{"$count": "n"}], "cache": "cold"}}]
    assert planned([1], workload=workload).points[0].phases[0].parameters["warm_up_iterations"] == 0


@pytest.mark.parametrize(
    ("topology", "measure", "restarts"),
    [
        ({}, {"engine": "aggregate", "pipeline": [], "cache": "cold", "iterations": 4}, 4),
        ({}, {"engine": "aggregate", "pipeline": [], "iterations": 4}, 0),
        (
            {"kind": "replica_set", "replica_set": {"members": [{}, {"initial": False}]}},
            {"engine": "initial_sync", "interruptions": 2},
            2,
        ),
    ],
)
def test_a_phase_says_how_often_mongods_are_restarted_for_it(planned, topology, measure, restarts):
    phases = planned([1], topology=topology, workload=[{"measure": measure}]).points[0].phases
    assert [phase.restarts for phase in phases] == [restarts]


def test_the_connection_string_names_every_mongos(planned):
    plan = planned([2], topology={"mongos": {"count": 2}})
    first = plan.points[0].processes[0].port
    assert plan.points[0].connection_string == f"mongodb://127.0.0.1:{first},127.0.0.1:{first + 1}/"


def test_points_beyond_the_cores_get_a_note(planned):
    assert any("up to 16 shards on 2 cores" in w for w in planned([1, 16]).warnings)


def test_all_limits_of_a_process_are_shown_and_memory_below_its_cache_is_warned_of(planned):
    limits = {"shard02": {"cpus": 0.5, "memory_mb": 200, "write_mibps": 2.5}, "all": {"memory_mb": 4096}}
    cache = {"policy": "per_process_mb", "value": 512}
    plan = planned([2], topology={"limits": limits, "storage": {"cache": cache}})
    page = io.StringIO()
    render(plan, Console(file=page, width=80))
    text = page.getvalue()
    assert "limits of shard02: cpus 0.5, memory_mb 200, write_mibps 2.5" in text
    assert "limits of shard01: memory_mb 4096" in text
    found = [w for w in plan.warnings if "WiredTiger cache" in w]
    assert len(found) == 1
    assert "shard02 may use 200 MiB, less than its WiredTiger cache of 512 MiB" in found[0]


def loading(
    planned: Any, *, shards: int = 1, processes: int | str = "auto", cores: int = 16, **volume: object
) -> float:
    hosts = {"shard_hosts": {"volumes": {"data": {"type": "emulated", "size_gib": 60, **volume}}}} if volume else {}
    load = {"engine": "insert", "documents": 20_000_000, "processes": processes}
    measure = {"engine": "aggregate", "pipeline": [{"$count": "n"}]}
    changes = {"infrastructure": hosts, "workload": [{"load": load}, {"measure": measure}]}
    plan = planned([shards], Inputs(cores=cores, ram_mib=65536.0), **changes)
    return float(plan.points[0].load_seconds)


def test_the_time_of_a_load_depends_on_shards_loaders_cores_and_volumes(planned: Any) -> None:
    one = loading(planned)
    assert loading(planned, shards=4) < one / 2
    assert loading(planned, shards=4, processes=1) > loading(planned, shards=4)
    assert loading(planned, shards=4, cores=2) > loading(planned, shards=4)
    assert loading(planned, throughput_mibps=10) == pytest.approx(20_000_000 * 237 * 0.55 / 2**20 / 10)
