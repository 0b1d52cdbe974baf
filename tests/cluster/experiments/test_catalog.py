"""Published experiments without a file of their own here: each runs as it is, made tiny, and its figures add up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

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


@dataclass(frozen=True)
class Tiny:
    """What makes an experiment tiny, and what must be so in its results, in the order of the points."""

    check: Callable[[Results], None]
    settings: dict[str, Any]
    points: int
    scale: tuple[str, ...] = ("--scale", "laptop")


AGGREGATION = {"workload.0.load.documents": 6000, "workload.1.measure.iterations": 1, "repetitions": 1}
LOAD = "workload.0.measure"
CASES = {
    "quickstart": Tiny(aggregated, AGGREGATION | {"matrix": {"topology.shards.count": [1, 2]}}, 2, ()),
    "block-compression": Tiny(
        compressed,
        {"matrix": {"topology.storage.block_compressor": ["none", "zstd"]}, f"{LOAD}.documents": 1500},
        2,
    ),
    "insert-benchmark": Tiny(inserted, {"matrix": {f"{LOAD}.secondary_indexes": [0, 3]}, f"{LOAD}.documents": 4000}, 2),
}


def tiny(cli: Cli, name: str) -> None:
    case = CASES[name]
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
