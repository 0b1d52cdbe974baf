"""Published experiments without a file of their own here: each runs as it is, made tiny, and its figures add up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from microshard.engines.ycsb.java import BUILT
from tests.cluster.experiments.conftest import EXPERIMENTS
from tests.cluster.run.conftest import Cli

pytestmark = pytest.mark.cluster
Results = list[dict[str, Any]]


def phase(result: dict[str, Any], kind: str = "measure") -> dict[str, Any]:
    found: dict[str, Any] = [p for p in result["phases"] if p["kind"] == kind][-1]
    return found


def figures(part: dict[str, Any]) -> dict[str, float]:
    return {f["name"]: f["value"] for f in part.get("figures", [])}


def stored(part: dict[str, Any], documents: int) -> None:
    """What was loaded is there, on the shards together, and its size is the sum of its parts."""
    assert part["counters"]["documents"] == documents
    assert sum(shard["documents"] for shard in part["storage"]["by_shard"].values()) == documents
    assert part["storage"]["data_bytes"] == sum(shard["data_bytes"] for shard in part["storage"]["by_shard"].values())
    size = figures(part)
    assert size["data and indexes"] == size["data"] + size["indexes"]
    assert (size["data"], size["indexes"]) == (part["storage"]["data_bytes"], part["storage"]["index_bytes"])


def aggregated(results: Results) -> None:
    for result in results:
        stored(phase(result, "load"), 6000)
        bands = phase(result)["answer"]
        assert 0 < sum(int(band["count"]["$numberLong"]) for band in bands) <= 6000
    assert len({phase(r)["answer_sha256"] for r in results}) == 1


def compressed(results: Results) -> None:
    none, zstd = (phase(r) for r in results)
    for part in (none, zstd):
        stored(part, 1500)
    assert none["counters"]["bytes"] == zstd["counters"]["bytes"]
    assert figures(zstd)["data"] < figures(none)["data"]
    assert figures(zstd)["indexes"] == pytest.approx(figures(none)["indexes"], rel=0.1)


def inserted(results: Results) -> None:
    plain, indexed = (phase(r) for r in results)
    for part in (plain, indexed):
        stored(part, 4000)
        assert part["metric"]["value"] == pytest.approx(4000 / (part["ended"] - part["started"]), rel=0.01)
    assert plain["counters"]["bytes"] == indexed["counters"]["bytes"] > 4000 * 256
    assert figures(indexed)["indexes"] > 2 * figures(plain)["indexes"]


def asked(results: Results) -> None:
    by_form = {r["axes"]["workload.1.measure.form"]: phase(r) for r in results}
    same = [by_form[name] for name in ("where", "index-where", "aggregation", "expr")]
    assert len({part["answer_sha256"] for part in same}) == 1
    assert by_form["plain"]["answer_sha256"] != same[0]["answer_sha256"]
    assert all(len(part["samples"]) == 1 and part["metric"]["value"] > 0 for part in by_form.values())


def read(results: Results) -> None:
    for result in results:
        part = phase(result)
        (reads,) = [f for name, f in part["latency"].items() if name == "READ"]
        values = reads["percentiles"]
        assert reads["min"] <= values["50"] <= values["95"] <= values["99"] <= reads["max"]
        assert sum(part["windows"]["values"]) <= reads["count"]
        seconds = part["ended"] - part["started"]
        assert part["counters"]["errors"] == 0
        assert reads["count"] * reads["mean"] / 1e6 <= 2 * seconds * 1.1  # two threads, each with one read on its way


def ycsb(results: Results) -> None:
    for result in results:
        loads = [p for p in result["phases"] if p["kind"] == "load"]
        assert sum(p["counters"]["documents"] for p in loads) == 1000
        for part in result["phases"]:
            assert part["counters"]["errors"] == 0
            for name, latency in part.get("latency", {}).items():
                values = latency["percentiles"]
                assert latency["min"] <= values["50"] <= values["99"] <= latency["max"], name


def no_client() -> str | None:
    if shutil.which("java") is None:
        return "there is no java"
    return None if BUILT.exists() else "the YCSB client is not built (make clients)"


@dataclass(frozen=True)
class Tiny:
    """What makes an experiment tiny, and what must be so in its results, in the order of the points."""

    check: Callable[[Results], None]
    settings: dict[str, Any]
    points: int
    scale: tuple[str, ...] = ("--scale", "laptop")
    needs: Callable[[], str | None] = field(default=lambda: None)


AGGREGATION = {"workload.0.load.documents": 6000, "workload.1.measure.iterations": 1, "repetitions": 1}
LOAD = "workload.0.measure"
YCSB = {f"workload.{n}.{'measure' if n else 'load'}.records": 1000 for n in range(5)} | {
    f"workload.{n}.measure.{key}": 1 if key == "warm_up_seconds" else 2
    for n in range(1, 5)
    for key in ("threads", "warm_up_seconds", "duration_seconds")
}
CASES = {
    "quickstart": Tiny(aggregated, AGGREGATION | {"matrix": {"topology.shards.count": [1, 2]}}, 2, ()),
    # On the disk of the run's folder: emulated volumes have tests of their own.
    "quickstart-disk": Tiny(
        aggregated,
        AGGREGATION | {"infrastructure": {}, "matrix": {"workload.1.measure.cache": ["cold", "warm"]}},
        2,
        (),
    ),
    "block-compression": Tiny(
        compressed,
        {"matrix": {"topology.storage.block_compressor": ["none", "zstd"]}, f"{LOAD}.documents": 1500},
        2,
    ),
    "insert-benchmark": Tiny(inserted, {"matrix": {f"{LOAD}.secondary_indexes": [0, 3]}, f"{LOAD}.documents": 4000}, 2),
    "query-forms": Tiny(asked, {"workload.0.load.documents": 20000, "workload.1.measure.iterations": 1}, 5),
    "secondary-reads": Tiny(
        read,
        {
            "matrix": {"workload.1.measure.writers": [0, 1]},
            "workload.0.load.documents": 2000,
            "workload.1.measure.threads": 2,
            "workload.1.measure.warm_up_seconds": 1,
            "workload.1.measure.duration_seconds": 3,
        },
        2,
    ),
    "ycsb-microshard": Tiny(
        ycsb, YCSB | {"matrix": {"topology.kind": ["standalone"]}, "workload.0.load.threads": 2}, 1, needs=no_client
    ),
    "ycsb-thread-ladder": Tiny(
        ycsb,
        {f"workload.{n}.{'measure' if n else 'load'}.records": 1000 for n in range(4)}
        | {f"workload.{n}.measure.ladder": {"last": 2, "rung_seconds": 2} for n in range(1, 4)},
        1,
        needs=no_client,
    ),
}


def tiny(cli: Cli, name: str) -> None:
    case = CASES[name]
    lacks = case.needs()
    if lacks:
        pytest.skip(lacks)
    words = [
        word
        for key, value in case.settings.items()
        for word in ("--set", f"{key}={json.dumps(value) if isinstance(value, dict) else value}")
    ]
    code, output = cli.run("run", EXPERIMENTS / f"{name}.yml", *case.scale, *words, timeout=400)
    assert code == 0, output
    results = [r for r in cli.results().values() if r["purpose"] == "measure"]
    assert len(results) == case.points
    assert all(result["valid"] for result in results)
    case.check(results)
    assert cli.running() == []


def test_the_insert_benchmark_conserves_documents_and_bytes(cli: Cli) -> None:
    tiny(cli, "insert-benchmark")


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in CASES if name != "insert-benchmark"])
def test_an_experiment_made_tiny_has_figures_that_add_up(cli: Cli, name: str) -> None:
    tiny(cli, name)


def test_every_published_experiment_is_run_by_a_test_of_this_folder() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    named = {path.stem for path in EXPERIMENTS.glob("*.yml") if f'"{path.name}"' in texts}
    assert {path.stem for path in EXPERIMENTS.glob("*.yml")} - named - CASES.keys() == set()
