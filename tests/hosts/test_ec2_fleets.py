"""Fleets side by side on real hosts, and shipped experiments in small on the hosts of their scale `today`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.backends.ec2.ec2_plan import plan_ec2
from microshard.model.advice import Advice
from microshard.records import codec
from microshard.records.run_folder import ADVICE, RunFolder
from microshard.search.settings import race
from microshard.search.shard_count import SearchSettings
from tests.hosts.bed.lab import OPEN_FILES
from tests.hosts.land import Land, land_of
from tests.hosts.test_ec2 import FILE
from tests.unit.plan.test_published import without_data

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
# Points of two types of instances, which cannot share hosts, two of each.
FLEETS = (
    FILE.replace("documents: 20000", "documents: 3000").replace("repetitions: 2", "repetitions: 1")
    + """\
matrix:
  infrastructure.shard_hosts.instance_type: [c5.xlarge, m5.xlarge]
  topology.storage.block_compressor: [zlib, none]
"""
)
SLOW = "workload.1.measure.iterations=150"  # long enough to end a host meanwhile

# What a container is not: AWS's image, MongoDB's packages, a kernel of its own. All else is as planned.
ON_BED: dict[str, Any] = {
    "infrastructure.ec2": {"controller_cidrs": ["10.89.0.1/32"], "owner": "tester"},
    "infrastructure.shard_hosts.image": "debian-12",
    "infrastructure.shard_hosts.kernel": {"readahead_sectors": 32, "open_files": OPEN_FILES},
    "infrastructure.client_hosts.image": "debian-12",
    "infrastructure.client_hosts.kernel": {"open_files": OPEN_FILES},
    "topology.mongodb": {"source": "path", "path": "/opt/microshard-lab", "version": "6.0"},
    "repetitions": 1,
}
# What is left out is as planned.
SMALL: dict[str, dict[str, Any]] = {
    "mot-analytics": {"workload.0.load.documents": 20000, "matrix.topology.shards.count": [1, 4]},
    "insert-benchmark": {
        "topology.storage.oplog_size_mb": 990,
        "topology.storage.cache.value": 256,  # the bed's hosts have no 32 GiB
        "matrix.axes": {"workload.0.measure.secondary_indexes": [0, 3]},
        "matrix.zip": {
            "workload.0.measure.padding": [256, 1048576],
            "workload.0.measure.documents": [5000, 20],
            "workload.0.measure.batch_size": [1000, 10],
        },
    },
    "block-compression": {
        "matrix.axes": {"topology.storage.block_compressor": ["zstd"]},
        "matrix.zip": {"workload.0.measure.dataset": ["flights", "tpch"], "workload.0.measure.documents": [2000, 7500]},
    },
    "initial-sync": {
        "topology.storage.oplog_size_mb": 990,
        "workload.0.load.databases": 1,
        "workload.0.load.collections": 2,
        "workload.0.load.load": {"documents": 5000, "document_bytes": 1000, "threads": 4},
        "workload.1.measure.before_seconds": 2,
        "workload.1.measure.time_limit_seconds": 120,
        "workload.1.measure.load": {"threads": 2, "batch_size": 10, "rate": 20},
        "matrix.zip": {"workload.1.measure.load_runs": [False], "workload.1.measure.interruptions": [0]},
    },
    "secondary-reads": {
        "workload.0.load.documents": 5000,
        "workload.1.measure.warm_up_seconds": 1,
        "workload.1.measure.duration_seconds": 5,
        "matrix.axes": {"workload.1.measure.writers": [0, 16], "workload.1.measure.threads": [8]},
    },
    "query-forms": {"workload.0.load.documents": 5000, "matrix.workload.1.measure.form": ["plain", "index-where"]},
}


@pytest.fixture(scope="module")
def _land(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Land]:
    with land_of(4, tmp_path_factory.mktemp("fleets")) as land:
        yield land


@pytest.fixture
def land(_land: Land) -> Iterator[Land]:
    _land.fresh()
    (_land.folder / "fleets.yml").write_text(FLEETS)
    yield _land
    assert _land.simulation.everything() == {}


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The result files by point and step."""
    return {p.relative_to(folder).as_posix(): json.loads(p.read_text()) for p in folder.glob("results/p0?/r?.json")}


def measured(folder: Path) -> dict[str, Any]:
    """What a run has found and done, without what only a clock or AWS decides."""
    found = {
        name: (
            result["valid"], result["axes"], result["order"], result["versions"],
            [(p["name"], p["counters"].get("documents"), p["answer"], len(p["samples"])) for p in result["phases"]],
        )
        for name, result in results(folder).items()
    }  # fmt: skip
    plan = RunFolder.open(folder).plan()
    placed = {p.id: (p.label, [(process.name, process.host) for process in p.processes]) for p in plan.points}
    return {"results": found, "points": placed, "steps": [(s.index, s.point, s.name) for s in plan.steps]}


def most_networks(land: Land) -> int:
    """How many VPCs, one a fleet, existed at a time."""
    alive = most = 0
    for action in land.simulation.actions():
        alive += {"CreateVpc": 1, "DeleteVpc": -1}.get(action, 0)
        most = max(most, alive)
    return most


def test_fleets_side_by_side_measure_what_they_measure_one_after_the_other(land: Land) -> None:
    found = []
    for parallel in (1, 2):
        code, said = land.run("run", "fleets.yml", "--on", "ec2", "--parallel", str(parallel))
        assert code == 0, f"{said}\n{land.log()}"
        assert most_networks(land) == parallel
        found.append(measured(land.run_folder))
        assert len(found[-1]["results"]) == 4
        assert (land.run_folder / "report" / "report.html").exists()
        land.fresh()
    assert found[1] == found[0]


@pytest.mark.timeout(1500)  # eight fleets, one after the other in part
def test_a_search_over_types_of_hosts_chooses_the_same_side_by_side_as_one_after_the_other(land: Land) -> None:
    for parallel in (2, 1):
        words = ("--parallel", str(parallel), "--points", "8", "--objective", "cost per operation")
        code, said = land.run("advise", "fleets.yml", "--on", "ec2", *words)
        assert code == 0, f"{said}\n{land.log()}"
        assert most_networks(land) == parallel
        advice = codec.read_file(Advice, land.run_folder / ADVICE)
        assert advice.sentence in said.replace("\n", " ")
        assert (advice.metric, advice.measurements) == ("cost per operation", 8)
        history: list[list[tuple[int, float]]] = [[] for _ in advice.request.settings]
        left = {n: [t.value for t in advice.tried if t.setting == n] for n in range(4)}
        settings = SearchSettings((1,), "lower", 8, advice.request.most_each, seed=advice.request.seed)
        while choices := race(settings, history, [()] * 4).choices:  # by the values alone: the same measurements
            for n in choices:
                history[n].append((1, left[n].pop(0) or 0.0))
        assert not any(left.values())
        land.fresh()


def test_a_fleet_that_loses_its_hosts_ends_its_points_alone_and_resume_measures_them(land: Land) -> None:
    process = land.start("run", "fleets.yml", "--on", "ec2", "--parallel", "2", "--set", SLOW)
    land.wait(process, lambda: {r["fleet"] for r in land.journal("step started")} == {"fleet1", "fleet2"})
    folder = land.run_folder
    hosts = json.loads((folder / "hosts" / "fleet1.json").read_text())["hosts"]
    (lost,) = [m for m in land.lab.machines if m.address == hosts[0]["private_address"]]
    ended = land.end(lost, "Server.SpotInstanceTermination")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 3, f"{said}\n{land.log()}"
    failed = {r["point"]: r["message"] for r in land.journal("point failed")}
    assert failed.keys() == {"p01", "p02"}
    assert all(f"shard_hosts-1: {ended}" in message for message in failed.values())
    before = {path: path.read_bytes() for path in folder.glob("results/p0?/r1.json")}
    assert {path.parent.name for path in before} == {"p03", "p04"}
    assert all(json.loads(content)["valid"] for content in before.values()), said
    assert land.simulation.everything() == {}

    code, said = land.run("resume", folder.name)
    assert code == 0, f"{said}\n{land.log()}"
    assert "2 of 4 measured, 2 to go" in said
    assert all(path.read_bytes() == content for path, content in before.items())
    assert sorted((r["valid"], r["point"]) for r in results(folder).values()) == [(True, f"p0{n}") for n in range(1, 5)]
    answers = {json.dumps(r["phases"][-1]["answer"]) for r in results(folder).values()}
    assert len(answers) == 1
    done = [(r["point"], r["name"]) for r in land.journal("step done")]
    assert len(done) == len(set(done)) == 4, "nothing was measured twice"


@pytest.mark.parametrize("name", SMALL)
def test_a_shipped_experiment_in_small_has_the_hosts_volumes_and_topology_of_its_scale_today(
    land: Land, name: str
) -> None:
    file = EXPERIMENTS / f"{name}.yml"
    if lacks := without_data(file):
        pytest.skip(lacks)
    changes = ON_BED | SMALL[name]
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    code, said = land.run("run", str(file), "--on", "ec2", *words)
    # 3 with every point measured: what two cores for all hosts may do to a gate is no concern here.
    assert code in {0, 3}, f"{said}\n{land.log()}"
    assert not land.journal("point failed"), said
    assert "Scale: today, the default of --on ec2" in said
    planned = plan_ec2(file, scale="today", overrides=SMALL[name] | {"repetitions": 1})
    plan = RunFolder.open(land.run_folder).plan()
    assert len(results(land.run_folder)) == len(plan.steps) == len(planned.plan.steps)
    for result in results(land.run_folder).values():
        assert not [phase["error"] for phase in result["phases"] if phase.get("error")]
    placed = [
        {p.id: [(x.name, x.role, x.host, x.replica_set) for x in p.processes] for p in each.points}
        for each in (planned.plan, plan)
    ]
    assert placed[1] == placed[0]
    (fleet,) = planned.estimate.fleets
    for group in fleet.groups:
        for number in range(1, group.count + 1):
            path = land.run_folder / "hosts" / f"{group.name}-{number}" / "storage.json"
            kept = json.loads(path.read_text()) if path.exists() else []
            found = {
                (
                    v["name"],
                    v["devices"][0]["serial"][:3],
                    round(v["devices"][0]["size_bytes"] / 2**30) >= volume.size_gib,
                )
                for v in kept
                for volume in group.volumes
                if volume.purpose == v["name"]
            }
            store = {"instance_store": "AWS"}
            assert found == {(v.purpose, store.get(v.type, "vol"), True) for v in group.volumes}
