"""balancer-throttling and add-shards at tiny scale: documents are conserved, and the parts of a result add up."""

import time
from typing import Any

import pytest

from tests.cluster.experiments.conftest import Published

pytestmark = pytest.mark.cluster


def series(phase: dict[str, Any], name: str) -> dict[str, list[int]]:
    (found,) = [s for s in phase["series"] if s["name"] == name]
    assert all(len(line) == len(found["t"]) for line in found["lines"].values())
    lines: dict[str, list[int]] = found["lines"]
    return lines


def figure(phase: dict[str, Any], name: str) -> float:
    (value,) = [f["value"] for f in phase["figures"] if f["name"] == name]
    return float(value)


def check(phase: dict[str, Any], *, before: int) -> None:
    """What must be so in every result of the engine."""
    inserted = phase["counters"]["documents"]
    documents, chunks = series(phase, "documents by shard"), series(phase, "chunks by shard")
    assert inserted == sum(row[2] for row in phase["table"]["rows"])
    assert inserted == phase["latency"]["INSERT"]["count"] * 10
    # While documents are copied they are on both sides for a moment, and after that they are nowhere else.
    last = sum(line[-1] for line in documents.values())
    assert before <= last <= before + inserted
    assert sum(line[-1] for line in chunks.values()) >= len(documents)
    moves = phase["details"]["migrations"]
    assert len(moves) == phase["counters"]["migrations"] == sum(phase["details"]["moved"].values()) > 0
    assert sum(move[3] for move in moves) == phase["counters"]["documents moved"]
    # What a shard has gained came by migrations or by the load.
    for name, line in documents.items():
        came = sum(move[3] for move in moves if move[2] == name) - sum(move[3] for move in moves if move[1] == name)
        assert -0.02 * before <= line[-1] - line[0] - came <= inserted + 0.02 * before
    assert phase["metric"]["value"] <= phase["seconds"]


@pytest.mark.long
@pytest.mark.experiment("add-shards")
def test_documents_are_conserved_when_a_shard_is_added_and_a_closed_window_fails_by_name(published: Published) -> None:
    hours = [time.strftime("%H:%M", time.localtime(time.time() + 3600 * h)) for h in (6, 7)]
    window = {"start": hours[0], "stop": hours[1]}
    settings = {
        "matrix": {"axes": {"topology.balancer.window": [None, window]}},
        "workload.0.load.load.documents": 8000,
        "workload.1.measure.before_seconds": 1,
        "workload.1.measure.after_seconds": 1,
        "workload.1.measure.quiet_seconds": 2,
        "workload.1.measure.time_limit_seconds": 20,
        "order.policy": "sequential",
    }
    results, output = published.run(settings, code=3)
    assert "not balanced 20 s after the event" in output
    assert f"the balancing window is {hours[0]} to {hours[1]}" in output
    assert [r["valid"] for r in results] == [True, False]
    load, phase = results[0]["phases"]
    assert load["counters"]["documents"] == 8000
    check(phase, before=8000)
    assert series(phase, "documents by shard")["shard02"][0] == 0
    assert series(phase, "documents by shard")["shard02"][-1] > 2000
    assert [row[0] for row in phase["table"]["rows"]] == ["before", "during", "after"]
    assert phase["metric"]["value"] == pytest.approx(figure(phase, "time to balanced"), abs=0.01)
    # The one that could not: nothing has moved, and what was seen is there all the same.
    stuck = results[1]["phases"][1]
    assert stuck["error"]["type"] == "NotBalanced"
    assert set(series(stuck, "chunks by shard")["shard02"]) == {0}


@pytest.mark.long
@pytest.mark.experiment("balancer-throttling")
def test_migrations_by_hand_and_an_unsettled_cluster_as_a_result(published: Published) -> None:
    settings = {
        "matrix": {
            "zip": {
                "workload.0.measure.mover": ["balancer", "client"],
                "workload.0.measure.concurrent_migrations": [None, 1],
                "topology.balancer.enabled": [True, False],
            }
        },
        "workload.0.measure.load": {"threads": 2, "batch_size": 10, "documents": 12000, "rate": 150},
        "workload.0.measure.quiet_seconds": 3,
        "workload.0.measure.time_limit_seconds": 40,
        "topology.shards.members": 1,
        "topology.shards.count": 2,
    }
    results, _ = published.run(settings)
    assert [result["valid"] for result in results] == [True, True]
    for result in results:
        (phase,) = result["phases"]
        check(phase, before=0)
        assert phase["counters"]["documents"] == 12000
        assert phase["metric"]["name"] == "fullest shard over the mean"
        assert 1 <= phase["metric"]["value"] <= 2
        assert 1 <= figure(phase, "fullest shard over the mean, at the end") <= phase["metric"]["value"] + 0.2
