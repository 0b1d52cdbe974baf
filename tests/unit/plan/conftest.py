from typing import Any

import pytest

from microshard.experiment.matrix import PointDefinition
from microshard.model.experiment import Experiment
from microshard.model.plan import Inputs, Plan
from microshard.plan.build import build_plan


def experiment(**changes: Any) -> Experiment:
    base: dict[str, Any] = {
        "microshard": 1,
        "name": "sample",
        "topology": {
            "collections": [
                {"namespace": "vosa.mot_results", "shard_key": {"_id": 1}, "presplit": {"policy": "key_ranges"}}
            ]
        },
        "workload": [
            {"load": {"engine": "insert", "documents": 1000}},
            {"measure": {"engine": "aggregate", "pipeline": [{"$count": "n"}]}},
        ],
    }
    return Experiment.model_validate(base | changes)


def points(base: Experiment, counts: list[int]) -> list[PointDefinition]:
    result = []
    for count in counts:
        shards = base.topology.shards.model_copy(update={"count": count})
        topology = base.topology.model_copy(update={"shards": shards})
        result.append(PointDefinition({"topology.shards.count": count}, base.model_copy(update={"topology": topology})))
    return result


@pytest.fixture
def planned():
    def plan(counts: list[int] = [1, 2, 4], inputs: Inputs | None = None, **changes: Any) -> Plan:  # noqa: B006
        base = experiment(**changes)
        return build_plan(base, points(base, counts), inputs or Inputs(cores=2, ram_mib=16384.0))

    return plan
