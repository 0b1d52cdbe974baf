"""initial-sync at tiny scale: the stages sum up to the total, and the new member has every document and index."""

from typing import Any

import pytest

from tests.cluster.experiments.conftest import EXPERIMENTS, Published, words
from tests.cluster.run.conftest import Cli

pytestmark = pytest.mark.cluster

TINY: dict[str, Any] = {
    "workload.0.load.load": {"documents": 6000, "document_bytes": 1000, "threads": 4},
    "workload.1.measure.verify": "hash",
    "topology.replica_set.members": [{}, {"initial": False}],
    "order.policy": "sequential",
}


def check(load: dict[str, Any], phase: dict[str, Any]) -> None:
    """What must be so in every result of the engine."""
    assert sum(stage["seconds"] for stage in phase["stages"]) == pytest.approx(phase["metric"]["value"], abs=0.01)
    assert all(stage["seconds"] >= 0 for stage in phase["stages"])
    (clone,) = [stage for stage in phase["stages"] if stage["name"] == "clone"]
    names = {f"{d}.{c}" for d in ("sync", "sync2") for c in ("data", "data2")}
    rows = {row[0]: row for row in phase["table"]["rows"]}
    assert names <= rows.keys()
    assert sum(rows[name][1] for name in names) == load["counters"]["documents"]
    assert clone["documents"] >= sum(row[1] for row in rows.values())
    assert clone["bytes"] >= sum(row[2] for row in rows.values()) >= 900 * load["counters"]["documents"]
    assert all(rows[name][3] == 4 for name in names)  # _id and three more
    inserted = phase["counters"].get("documents inserted meanwhile", 0)
    assert phase["counters"]["documents on the new member"] == load["counters"]["documents"] + inserted
    assert "dbHash" in phase["notes"]["verification"]


@pytest.mark.long
@pytest.mark.experiment("initial-sync")
def test_the_stages_sum_up_with_a_write_load_and_an_interruption(published: Published) -> None:
    settings = TINY | {
        "matrix": {"zip": {"workload.1.measure.load_runs": [True, False], "workload.1.measure.interruptions": [0, 1]}},
        "workload.1.measure.interrupt_at": 0.05,
        "workload.1.measure.before_seconds": 1,
        "workload.0.load.load": {"documents": 12000, "document_bytes": 1000, "threads": 4},
    }
    results, _ = published.run(settings)
    busy, interrupted = (result["phases"] for result in results)
    check(*busy)
    assert busy[1]["counters"]["documents inserted meanwhile"] > 100
    assert [row[0] for row in busy[1]["details"]["load"]["rows"]] == ["before", "during"]
    assert (
        sum(row[2] for row in busy[1]["details"]["load"]["rows"]) == busy[1]["counters"]["documents inserted meanwhile"]
    )
    check(*interrupted)
    assert [stage["name"] for stage in interrupted[1]["stages"]].count("lost attempt 1") == 1
    assert interrupted[1]["stages"][0]["documents"] > 0


@pytest.mark.long
def test_a_member_that_cannot_sync_fails_by_name_and_leaves_nothing(cli: Cli) -> None:
    # It may sync from secondaries only, and there is none.
    alone = {
        "initialSyncSourceReadPreference": "secondary",
        "numInitialSyncAttempts": 1,
        "numInitialSyncConnectAttempts": 2,
    }
    settings = TINY | {
        "matrix": {},
        "workload.1.measure.load_runs": False,
        "topology.replica_set.members": [{}, {"initial": False, "mongod": {"setParameter": alone}}],
        "workload.0.load.load": {"documents": 100, "document_bytes": 1000, "threads": 1},
    }
    code, output = cli.run("run", EXPERIMENTS / "initial-sync.yml", "--scale", "laptop", *words(settings))
    assert code == 3, output
    (result,) = cli.results().values()
    assert result["phases"][1]["error"]["type"] == "CannotSync"
    assert "rs0-2 has ended while it synced: 0 documents" in result["phases"][1]["error"]["message"]
    assert cli.running() == []
