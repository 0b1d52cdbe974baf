"""An experiment over a user's own data and queries: what `microshard advise --from` changes in the experiment file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.model.experiment import Experiment
from microshard.plan.search_grid import SearchError

_MOST_INDEXES = 64  # of a collection, `_id` included


@dataclass(frozen=True, slots=True)
class UserData:
    """A copied collection, and the recorded queries to measure it by."""

    file: Path
    namespace: str
    indexes: int  # secondary ones
    operations: Sequence[Mapping[str, Any]] = field(default=())
    shard_keys: Sequence[str] = ()  # fields, hashed: candidates that are measured, the best by counting first


def changes_for(experiment: Experiment, data: UserData) -> dict[str, Any]:
    """What changes (dotted key → value). Raises SearchError where the experiment has no query for this data."""
    load = {
        "engine": "insert",
        "dataset": "dump",
        "file": str(data.file),
        "namespace": data.namespace,
        "secondary_indexes": min(data.indexes, _MOST_INDEXES - 1),
    }
    # What an experiment loads itself gives way to the copy.
    steps = [s.model_dump(mode="json", exclude_unset=True) for s in experiment.workload if s.kind != "load"]
    if data.operations:
        mixes = [s["measure"] for s in steps if s.get("measure", {}).get("engine") == "mix"]
        # How long and with how many clients stays as the experiment says it of its own mix.
        mix = {"engine": "mix", "namespace": data.namespace, "operations": list(data.operations)}
        steps = [{"measure": {**(mixes[0] if mixes else {}), **mix}}]
    elif other := sorted(
        {s.phase.target() or "" for s in experiment.workload if s.kind == "measure"} - {data.namespace}
    ):
        raise SearchError(
            f"the experiment measures {' and '.join(other)}, the data is {data.namespace}: --queries measures recorded "
            "queries, or give an experiment whose phases have that namespace"
        )
    changes: dict[str, Any] = {"workload": [{"load": load}, *steps], "question": None, "reference": None}
    known = [collection.namespace for collection in experiment.topology.collections]
    if data.shard_keys or data.namespace not in known:
        keys = [{name: "hashed"} for name in data.shard_keys or ["_id"]]
        changes["topology.collections"] = [
            {"namespace": data.namespace, "shard_key": keys[0], "presplit": {"policy": "hashed"}}
        ]
        if len(keys) > 1:
            changes["matrix"] = {"axes": {**experiment.matrix.axes, "topology.collections.0.shard_key": keys}}
    return changes
