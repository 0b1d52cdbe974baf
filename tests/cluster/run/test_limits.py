"""A mongod that may use less of the machine than another: it is throttled and slower."""

import json
from typing import Any

import pytest

from microshard.hostlib import process_limits

WHY_NOT = process_limits.why_not({"cpus": 1.0, "memory_mb": 64})
pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]


def test_a_limited_mongod_is_throttled_and_slower(cli: Any) -> None:
    path = cli.write(
        topology={"kind": "standalone", "storage": {"cache": {"policy": "host_total_mb", "value": 256}}},
        workload=[
            {"load": {"engine": "insert", "documents": 20000, "seed": 7}},
            {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 20}},
        ],
        matrix={"topology.limits.mongod1.cpus": [0.2, 1.0]},
        repetitions=1,
        order={"redeploy": "per_repetition"},
        question=None,
    )
    code, output = cli.run("run", path)
    assert code == 0, output
    (folder,) = cli.folders
    by_cores = {}
    for result in cli.results().values():
        (measure,) = [p for p in result["phases"] if p["kind"] == "measure"]
        by_cores[result["axes"]["topology.limits.mongod1.cpus"]] = measure
    capped, free = by_cores[0.2], by_cores[1.0]
    use = capped["telemetry"]["processes"]["mongod1"]
    assert use["limit"] == pytest.approx(0.2)
    assert use["cpu_mean"] <= 0.25
    assert use["throttled_mean"] > 0.5
    assert free["telemetry"]["processes"]["mongod1"]["throttled_mean"] < 0.5
    assert capped["metric"]["value"] > free["metric"]["value"]
    # Where other programs fill the machine they are the bottleneck, and rightly so.
    assert "mongod1 used" in json.dumps(capped["verdict"]) or "background CPU load" in capped["verdict"]["sentence"]
    planned = json.loads((folder / "plan.json").read_text())["points"]
    assert [p["limits"] for point in planned for p in point["processes"]] == [{"cpus": 0.2}, {"cpus": 1.0}]
    assert process_limits.remove_of_run(str(folder.path)) == []  # none is left


def test_mongods_whose_memory_is_too_small_to_start_or_to_load_are_named_and_the_others_go_on(cli: Any) -> None:
    path = cli.write(
        topology={"kind": "standalone", "storage": {"cache": {"policy": "host_total_mb", "value": 512}}},
        workload=[
            {"load": {"engine": "insert", "dataset": "purchases", "documents": 300_000, "padding": 1000}},
            {"measure": {"engine": "aggregate", "pipeline": [{"$count": "n"}]}},
        ],
        matrix={"topology.limits.mongod1.memory_mb": [40, 200, 2048]},
        repetitions=1,
        order={"redeploy": "per_repetition", "policy": "sequential"},
        question=None,
    )
    code, output = cli.run("run", path)
    assert code == 3, output
    (folder,) = cli.folders
    journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    failed = {entry["point"]: entry["message"] for entry in journal if entry["event"] == "point failed"}
    assert failed.keys() == {"p01", "p02"}
    assert "mongod1 (mongod, " in failed["p01"]
    assert "limits.memory_mb is too small for it" in failed["p01"]
    assert "mongod1 (" in failed["p02"]
    assert "more memory than its 200 MiB (limits.memory_mb)" in failed["p02"]
    (result,) = [result for result in cli.results().values() if result["point"] == "p03"]
    (measure,) = [p for p in result["phases"] if p["kind"] == "measure"]
    use = measure["telemetry"]["processes"]["mongod1"]
    assert use["memory_limit"] == pytest.approx(2048 << 20, rel=1e-4)  # figures are rounded
    assert 200 << 20 < use["rss_max"] < 2048 << 20
    assert process_limits.remove_of_run(str(folder.path)) == []
