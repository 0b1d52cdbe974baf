"""Keys of open loops and of searches: what goes together, and what a rung of a search changes."""

from typing import Any

import pytest
from pydantic import ValidationError

from microshard.model.pacing import RateSearch, Searching
from microshard.model.phase import PhaseKeys
from microshard.model.topology import Topology
from microshard.model.workload import WorkloadStep

SEARCH: dict[str, Any] = {"at_most": 5.0, "first": 100.0, "last": 400.0, "factor": 2.0, "rung_seconds": 10}
ENGINES: dict[str, dict[str, Any]] = {
    "readers": {"engine": "readers", "read_preference": "primary"},
    "aggregate": {"engine": "aggregate", "pipeline": [{"$match": {}}], "connections": 4},
    "traffic": {"engine": "traffic", "namespace": "a.b", "load": {}, "seconds_long": 5.0},
    "ycsb": {"engine": "ycsb", "records": 1000},
}


def phase(keys: dict[str, Any]) -> PhaseKeys:
    return WorkloadStep.model_validate({"measure": keys}).phase


def keys_found(keys: dict[str, Any]) -> list[tuple[str, str]]:
    """Key and severity of every finding."""
    topology = Topology.model_validate({"kind": "standalone"})
    return [(".".join(map(str, path)), severity) for path, _, severity in phase(keys).findings(topology, "measure")]


@pytest.mark.parametrize(
    ("engine", "given", "found"),
    [
        ("readers", {"arrivals": "poisson"}, [("arrivals", "warning")]),
        ("readers", {"arrivals": "poisson", "writers": 1, "write_rate": 5.0}, []),
        ("aggregate", {"arrivals": "poisson", "rate": 5.0}, []),
        ("aggregate", {"search": SEARCH, "iterations": 7}, [("iterations", "error")]),
        ("readers", {"search": SEARCH, "duration_seconds": 7.0}, [("duration_seconds", "error")]),
        ("traffic", {"load": {"arrivals_seed": 3}}, [("load.arrivals_seed", "warning")]),
        ("traffic", {"search": SEARCH}, [("seconds_long", "error")]),
        ("ycsb", {"search": SEARCH, "operations": 9}, [("operations", "error")]),
    ],
)
def test_keys_without_effect_are_found(engine: str, given: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert keys_found(ENGINES[engine] | given) == found


@pytest.mark.parametrize(
    ("engine", "given", "reason"),
    [
        ("readers", {"rate": 5.0, "search": SEARCH}, "is not given one"),
        ("ycsb", {"rate": 5, "search": SEARCH}, "is not given one"),
        ("ycsb", {"threads": "ladder", "search": SEARCH}, "a ladder of threads is a closed loop"),
        ("aggregate", {"cache": "cold", "rate": 5.0}, "cache: cold has a closed loop"),
        ("traffic", {"load": {"rate": 5.0}, "search": SEARCH}, "load has no rate or documents"),
    ],
)
def test_keys_that_contradict_a_rate_are_refused(engine: str, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        phase(ENGINES[engine] | given)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rung_is_a_phase_at_one_rate_without_a_search(engine: str) -> None:
    keys = phase({k: v for k, v in ENGINES[engine].items() if k != "seconds_long"} | {"search": SEARCH})
    assert isinstance(keys, Searching)
    search = RateSearch.model_validate(SEARCH)
    rung = type(keys).model_validate({**keys.model_dump(), **keys.rung(200.0, search)})
    assert isinstance(rung, Searching)
    assert rung.search is None
    assert getattr(getattr(rung, "load", rung), "rate", None) == 200
    assert keys.figures() == ("highest rate that held", *(rung.figures() or ()))
