"""Published experiments that have no other test file here: each runs as it is, made tiny, and its figures add up."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microshard.backends import mongod_wheels
from microshard.hostlib import emulated_volumes as emulated
from microshard.workloads.answers import canonical
from microshard.workloads.ycsb.clients import BUILT_JAR
from tests.cluster.experiments.conftest import EXPERIMENTS, Published
from tests.cluster.workloads.test_queries import pair_numbers
from tests.mot_documents import expected_greenness

pytestmark = pytest.mark.cluster
Result = dict[str, Any]
SEED = 7  # of the data in the experiments whose answers are checked


def phase(result: Result, kind: str = "measure") -> dict[str, Any]:
    found: dict[str, Any] = [p for p in result["phases"] if p["kind"] == kind][-1]
    return found


def figures(part: dict[str, Any]) -> dict[str, float]:
    return {f["name"]: f["value"] for f in part.get("figures", [])}


def by_axis(results: list[Result], axis: str) -> dict[Any, dict[str, Any]]:
    return {result["axes"][axis]: phase(result) for result in results}


def stored(part: dict[str, Any], documents: int) -> None:
    """What was loaded is there, on the shards together, and its size is the sum of its parts."""
    assert part["counters"]["documents"] == documents
    assert sum(shard["documents"] for shard in part["storage"]["by_shard"].values()) == documents
    assert part["storage"]["data_bytes"] == sum(shard["data_bytes"] for shard in part["storage"]["by_shard"].values())
    if part["engine"] == "insert":
        size = figures(part)
        assert size["data and indexes"] == size["data"] + size["indexes"]
        assert (size["data"], size["indexes"]) == (part["storage"]["data_bytes"], part["storage"]["index_bytes"])


def in_order(latency: dict[str, Any]) -> None:
    """A mean and percentiles that one set of times can have."""
    values = [latency["percentiles"][p] for p in ("50", "90", "95", "99", "99.9")]
    assert latency["min"] <= values[0]
    assert values == sorted(values)
    assert values[-1] <= latency["max"]
    assert latency["min"] <= latency["mean"] <= latency["max"]


AGGREGATED = 6000


def aggregated(results: list[Result]) -> None:
    right = canonical(expected_greenness(AGGREGATED, SEED))
    for result in results:
        stored(phase(result, "load"), AGGREGATED)
        assert phase(result)["answer"] == right
        assert phase(result)["metric"]["value"] == pytest.approx(np.median(phase(result)["samples"]))


ON_DISK = 60_000
# MiB/s, more than the experiment gives: a deployment writes so much to a new volume that it would take a minute.
QUICK_DISK = 80


def from_disk(results: list[Result]) -> None:
    """A cold query has read the data from the volume, at its rate at most; a warm one has read nothing."""
    right = canonical(expected_greenness(ON_DISK, SEED))
    given = QUICK_DISK << 20
    for name, part in by_axis(results, "workload.1.measure.cache").items():
        assert part["answer"] == right
        assert part["metric"]["value"] <= part["ended"] - part["started"]
        shard = part["telemetry"]["devices"]["shard01"]["data"]
        assert shard["limits"]["r_bytes"] == pytest.approx(given)  # six digits are kept
        rate = part["telemetry"]["disk"][shard["device"]]["r_bytes_mean"]
        load = next(phase(r, "load") for r in results if phase(r) is part)
        stored(load, ON_DISK)
        read = rate * (part["ended"] - part["started"])
        if name == "cold":
            assert 0.5 * load["storage"]["data_bytes"] < read
            assert rate <= given * 1.1
        else:
            assert read < 0.1 * load["storage"]["data_bytes"]


def compressed(results: list[Result]) -> None:
    none, zstd = (phase(r) for r in results)
    for part in (none, zstd):
        stored(part, 1500)
    assert none["counters"]["bytes"] == zstd["counters"]["bytes"]
    assert figures(zstd)["data"] < figures(none)["data"]
    assert figures(zstd)["indexes"] == pytest.approx(figures(none)["indexes"], rel=0.1)


def inserted(results: list[Result]) -> None:
    plain, indexed = (phase(r) for r in results)
    for part in (plain, indexed):
        stored(part, 4000)
        assert part["metric"]["value"] == pytest.approx(4000 / (part["ended"] - part["started"]), rel=0.01)
    assert plain["counters"]["bytes"] == indexed["counters"]["bytes"] > 4000 * 256
    assert figures(indexed)["indexes"] > 2 * figures(plain)["indexes"]


VERSIONS = ["4.4", "6.0"]


def on_versions(results: list[Result]) -> None:
    """Every version has answered alike, and is the one that was planned."""
    right = canonical(expected_greenness(AGGREGATED, SEED))
    for result, version in zip(results, VERSIONS, strict=True):
        assert result["versions"][0].startswith(f"{version}.")
        parts = {part["name"]: part for part in result["phases"]}
        stored(parts["load"], AGGREGATED)
        assert parts["aggregation"]["answer"] == right
        assert parts["inserts"]["counters"]["documents"] == 2000
        assert parts["initial-sync"]["counters"]["documents on the new member"] == AGGREGATED + 2000


QUERIED = 20_000


def queried(results: list[Result]) -> None:
    """Every form counts what the generator has made (tests/cluster/workloads/test_queries.py has plans and tables)."""
    a, b = pair_numbers(QUERIED, SEED)
    counts = dict.fromkeys(("where", "index-where", "aggregation", "expr"), int(((b < 5) & (a > b)).sum()))
    counts["plain"] = int((a < 1).sum())
    parts = by_axis(results, "workload.1.measure.form")
    assert {form: int(part["answer"][0]["count"]["$numberLong"]) for form, part in parts.items()} == counts


def read_beside_writes(results: list[Result]) -> None:
    """Reads and writes are those of the clients (tests/cluster/workloads/test_readers.py has windows and lag)."""
    (part,) = map(phase, results)
    stored(phase(results[0], "load"), 2000)
    reads, writes, counters, seconds = part["latency"]["READ"], part["latency"]["UPDATE"], part["counters"], 3.0
    for latency in (reads, writes):
        in_order(latency)
        # Two clients, each with one command on its way, the last of which may have begun before the end.
        clients = 2 if latency is reads else 1
        assert latency["count"] * latency["mean"] / 1e6 <= clients * (seconds + latency["max"] / 1e6) * 1.01
    assert (counters["reads"], counters["writes"]) == (reads["count"], writes["count"])
    assert counters["errors"] == counters["missing"] == 0
    # The secondaries have answered all of it, with what was read while warming up.
    answered = dict(part["table"]["rows"])
    assert answered.pop("rs0-1") < counters["reads"] / 10
    assert sum(answered.values()) >= counters["reads"]
    assert set(part["series"][0]["lines"]) == set(answered)


RECORDS = 1000


def operations(part: dict[str, Any]) -> None:
    """Counters, latencies and throughput of a phase of YCSB are about the same operations."""
    counters, latency = part["counters"], part["latency"]
    assert counters["errors"] == 0
    assert {kind.lower(): found["count"] for kind, found in latency.items()} == {
        kind: count for kind, count in counters.items() if kind in {"read", "insert", "update"} and count
    }
    assert sum(found["count"] for found in latency.values()) == counters["operations"] > 0
    for found in latency.values():
        in_order(found)


def scenarios(results: list[Result]) -> None:
    (result,) = results
    load, *measured = result["phases"]
    stored(load, RECORDS)
    assert min(shard["documents"] for shard in load["storage"]["by_shard"].values()) > RECORDS / 3  # hashed
    assert load["latency"]["INSERT"]["count"] == RECORDS
    assert [part["name"] for part in measured] == ["s2", "s3", "s4", "s5"]
    wanted = ({"READ": 0.1, "UPDATE": 0.9}, {"READ": 0.65, "INSERT": 0.25, "UPDATE": 0.1}, {"READ": 0.9}, {"READ": 1.0})
    for part, shares in zip(measured, wanted, strict=True):
        operations(part)
        done = part["counters"]["operations"]
        assert part["metric"]["value"] == pytest.approx(done / (part["ended"] - part["started"]), rel=0.01)
        for kind, share in shares.items():
            # Five standard deviations of a binomial: one in a million.
            spread = 5 * (share * (1 - share) / done) ** 0.5
            assert abs(part["latency"].get(kind, {"count": 0})["count"] / done - share) <= spread, part["name"]


def ladders(results: list[Result]) -> None:
    (result,) = results
    load, *measured = result["phases"]
    stored(load, RECORDS)
    assert [part["name"] for part in measured] == ["read-mostly", "balanced", "inserts"]
    for part in measured:
        operations(part)
        rungs = part["rungs"]
        assert [rung["threads"] for rung in rungs] == [1, 2]
        for rung in rungs:
            counts = {kind: found["count"] for kind, found in rung["latency"].items()}
            assert counts.pop("ALL") == sum(counts.values())
            assert rung["value"] == pytest.approx(sum(counts.values()) / rung["seconds"], rel=0.01)
            for found in rung["latency"].values():
                in_order(found)
            low, high = rung["latency"]["ALL"]["min"], rung["latency"]["ALL"]["max"]
            assert (low, high) == (
                min(rung["latency"][kind]["min"] for kind in counts),
                max(rung["latency"][kind]["max"] for kind in counts),
            )
        # The figures of the phase are those of the rung where throughput stopped rising.
        (knee,) = [rung for rung in rungs if rung["threads"] == figures(part)["threads at the knee"]]
        assert part["metric"]["value"] == knee["value"] == part["samples"][0]
        assert part["counters"]["operations"] == knee["latency"]["ALL"]["count"]


def tiny_ycsb(phases: int, **keys: Any) -> dict[str, Any]:
    names = ["workload.0.load", *(f"workload.{n}.measure" for n in range(1, phases))]
    return {f"{name}.records": RECORDS for name in names} | {
        f"{name}.{key}": value for name in names[1:] for key, value in keys.items()
    }


def unless(lacks: str | None) -> pytest.MarkDecorator:
    return pytest.mark.skipif(lacks is not None, reason=str(lacks))


NO_CLIENT = (
    "no java" if shutil.which("java") is None else None if BUILT_JAR.exists() else "no YCSB client (make clients)"
)


NOT_FETCHED = next(
    (
        "mongods of other versions are fetched by `make versions`"
        for version in VERSIONS
        if not mongod_wheels.packaged_mongod(version).fetched
    ),
    None,
)


@dataclass(frozen=True)
class Tiny:
    """What makes an experiment tiny, and what must be so in its results, in the order of the points."""

    check: Callable[[list[Result]], None]
    settings: dict[str, Any]
    points: int
    scale: str | None = "laptop"
    marks: tuple[pytest.MarkDecorator, ...] = ()


HASHED = {"namespace": "ycsb.usertable", "shard_key": {"_id": "hashed"}, "presplit": {"policy": "hashed"}}
LOAD, QUERY = "workload.0.measure", {"workload.1.measure.iterations": 1, "repetitions": 1}
CASES = {
    "quickstart": Tiny(
        aggregated,
        QUERY | {"workload.0.load.documents": AGGREGATED, "matrix": {"topology.shards.count": [1, 2]}},
        2,
        None,
    ),
    "mot-analytics": Tiny(
        aggregated, {"workload.0.load.documents": AGGREGATED, "matrix": {"topology.shards.count": [1, 2]}}, 2
    ),
    "quickstart-disk": Tiny(
        from_disk,
        QUERY
        | {
            "workload.0.load.documents": ON_DISK,
            "topology.shards.count": 1,
            "matrix": {"workload.1.measure.cache": ["cold", "warm"]},
            "infrastructure.shard_hosts.volumes.data.throughput_mibps": QUICK_DISK,
            "infrastructure.shard_hosts.volumes.data.iops": 2000,
        },
        2,
        None,
        (unless(emulated.why_not(["ext4"])),),
    ),
    "block-compression": Tiny(
        compressed, {"matrix": {"topology.storage.block_compressor": ["none", "zstd"]}, f"{LOAD}.documents": 1500}, 2
    ),
    "insert-benchmark": Tiny(inserted, {"matrix": {f"{LOAD}.secondary_indexes": [0, 3]}, f"{LOAD}.documents": 4000}, 2),
    "query-forms": Tiny(queried, {"workload.0.load.documents": QUERIED, "workload.1.measure.iterations": 1}, 5),
    "secondary-reads": Tiny(
        read_beside_writes,
        {
            "matrix": {"workload.1.measure.writers": [1]},
            "workload.0.load.documents": 2000,
            "workload.1.measure.write_batch": 10,
            "workload.1.measure.threads": 2,
            "workload.1.measure.warm_up_seconds": 1,
            "workload.1.measure.duration_seconds": 3,
        },
        1,
    ),
    "versions": Tiny(
        on_versions,
        {
            "workload.0.load.documents": AGGREGATED,
            "workload.2.measure.documents": 2000,
            "matrix": {"topology.mongodb.version": VERSIONS},
            "order.policy": "sequential",
            "repetitions": 1,
        },
        2,
        None,
        (unless(NOT_FETCHED),),
    ),
    "ycsb-microshard": Tiny(
        scenarios,
        tiny_ycsb(5, threads=2, warm_up_seconds=1, duration_seconds=2)
        | {
            "workload.0.load.threads": 2,
            "matrix": {
                "include": [{"topology.kind": "sharded", "topology.shards.count": 2, "topology.collections": [HASHED]}]
            },
        },
        1,
        marks=(unless(NO_CLIENT),),
    ),
    "ycsb-thread-ladder": Tiny(
        ladders, tiny_ycsb(4, ladder={"last": 2, "rung_seconds": 2}), 1, marks=(unless(NO_CLIENT),)
    ),
}


@pytest.mark.parametrize(
    (),
    [
        pytest.param(
            id=name,
            marks=(
                pytest.mark.experiment(name),
                *case.marks,
                *(() if name == "insert-benchmark" else (pytest.mark.long,)),
            ),
        )
        for name, case in CASES.items()
    ],
)
def test_an_experiment_made_tiny_has_figures_that_add_up(published: Published) -> None:
    case = CASES[published.name]
    results, _ = published.run(case.settings, scale=case.scale)
    assert len(results) == case.points
    assert all(result["valid"] for result in results)
    case.check(results)


def test_every_published_experiment_has_a_test_of_its_figures() -> None:
    # That such a test does run the experiment, the fixture `published` makes sure.
    texts = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    tested = set(re.findall(r'mark\.experiment\("([\w-]+)"\)', texts)) | CASES.keys()
    assert tested == {path.stem for path in EXPERIMENTS.glob("*.yml")}
