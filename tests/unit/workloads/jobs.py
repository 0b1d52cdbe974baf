"""Jobs as the play writes them, for the tests of the engines and of the program that executes them."""

from typing import Any

from microshard.model.phase import PhaseContext
from microshard.model.workload import WorkloadStep

PIPELINE: list[dict[str, Any]] = [{"$match": {}}]


def parameters(engine: str, **keys: Any) -> dict[str, Any]:
    """The parameters of a phase as the plan writes them, complete."""
    return WorkloadStep.model_validate({"load": {"engine": engine, **keys}}).phase.parameters(PhaseContext(cores=1))


INSERT = parameters("insert", documents=10, batch_size=10)
AGGREGATE = parameters("aggregate", pipeline=PIPELINE, iterations=1, warm_up_iterations=0)
DEFAULTS = {"insert": INSERT, "aggregate": AGGREGATE}


def job(*phases: dict[str, Any]) -> dict[str, Any]:
    point = {"id": "p01", "shards": 0, "topology": "standalone", "cores": 2, "processes": [], "collections": []}
    return {"connection_string": "mongodb://127.0.0.1:1/", "point": point, "phases": list(phases)}


def phase(engine: str, **changes: Any) -> dict[str, Any]:
    return {"name": "it", "kind": "load", "engine": engine, "parameters": DEFAULTS[engine] | changes}
