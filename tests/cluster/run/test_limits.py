"""A mongod that may use less of the machine than another: it is throttled and slower."""

import json
from typing import Any

import pytest

from microshard.hostlib import cpu_limits

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.skipif(bool(cpu_limits.why_not()), reason=cpu_limits.why_not()),
]


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
    assert cpu_limits.remove_of_run(str(folder.path)) == []  # none is left
