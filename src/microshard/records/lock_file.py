"""experiment.lock.yml: the experiment a run really was, for others to run again and to be told what differs."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML

from microshard.experiment.rules import ONLY_SHARDED
from microshard.model.experiment import Experiment, Lock
from microshard.model.topology import Topology
from microshard.model.workload import WorkloadStep
from microshard.records.differences import differences
from microshard.records.run_folder import RunFolder, write_atomic

NOT_EVERYWHERE = ("replica_set", *ONLY_SHARDED)
_HEAD = """\
# What a run resolved: every default, its scale and its overrides, and under `lock` the versions, hashes and machine it
# was made with. `microshard run` of this file does the same again and says what is not as it was then.
"""


def write_experiment_lock(folder: RunFolder, experiment: Experiment, lock: Mapping[str, Any], source: Path) -> None:
    """Write experiment.lock.yml into a run's folder, and beside it the pipelines it names.

    `lock` is the content of lock.json, `source` the experiment file.
    """
    definition = experiment.model_dump(mode="json", exclude_none=True, exclude={"scales", "lock"})
    # Of what one place or one kind of topology has and others have not, only what was given: a default of EC2's is
    # nothing to ask of this machine.
    given = experiment.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    definition["infrastructure"] = given.get("infrastructure", {})
    definition["workload"] = [_step(step, experiment.topology) for step in experiment.workload]
    for key in NOT_EVERYWHERE:
        if key in definition["topology"] and key not in given.get("topology", {}):
            del definition["topology"][key]
    definition["lock"] = locked(lock).model_dump(mode="json", exclude_none=True)
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 120
    text = io.StringIO()
    yaml.dump(json.loads(json.dumps(definition)), text)
    write_atomic(folder / "experiment.lock.yml", _HEAD + text.getvalue())
    named = [getattr(step.phase, "pipeline", None) for step in experiment.workload]
    for name in (n for n in named if isinstance(n, str)):
        for place in (source.absolute().parent / "pipelines", _own_pipelines()):
            file = next((p for p in sorted(place.glob(f"{name}.*")) if p.suffix in {".json", ".yml", ".yaml"}), None)
            if file is not None:
                (folder / "pipelines").mkdir(exist_ok=True)
                copy = folder / "pipelines" / file.name
                if file != copy:  # a run that is taken up goes by its own
                    shutil.copyfile(file, copy)
                break


def _step(step: WorkloadStep, topology: Topology) -> dict[str, Any]:
    """A step with all its defaults, but for those that have no effect in it: given, they would be refused."""
    phase = step.phase
    given = phase.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    whole = phase.model_dump(mode="json", exclude_none=True)
    try:
        for path, _, _ in type(phase).model_validate(whole).findings(topology, step.kind):
            if path[0] not in given:
                whole.pop(str(path[0]), None)
        type(phase).model_validate(whole)
    except ValidationError:
        whole = given
    return {step.kind: whole, **({"name": step.name} if step.name else {})}


def _own_pipelines() -> Path:
    from microshard.this_machine import project_root  # noqa: PLC0415 - looked up only where a pipeline has a name

    return project_root() / "experiments" / "pipelines"


def locked(lock: Mapping[str, Any]) -> Lock:
    """The part of lock.json that another run can be held to."""
    found = {
        json.dumps({"version": b["version"], "mongod_sha256": b.get("mongod_sha256"), "embedded": b["embedded"]})
        for b in lock["binaries"].values()
    }
    return Lock.model_validate(
        {
            "microshard": lock["microshard"],
            "definition_sha256": lock["definition_sha256"],
            "mongodb": [json.loads(item) for item in sorted(found)],
            "host": lock["host"],
            "packages": lock["packages"],
            "images": lock.get("images", {}),
        }
    )


def changes(wanted: Lock, lock: Mapping[str, Any]) -> list[str]:
    """What is not as the lock says: `key: then → now`, in alphabetical order."""
    ignored = {"definition_sha256"}  # that of the lock file itself
    then, now = (item.model_dump(mode="json", exclude=ignored) for item in (wanted, locked(lock)))
    return [str(difference) for difference in differences(then, now)]
