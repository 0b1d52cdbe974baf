"""experiment.lock.yml: the experiment a run really was, for others to run again and see what differs."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML

from microshard.experiment.rules import ONLY_SHARDED
from microshard.model.experiment import Experiment, Lock, LockedMongoDB
from microshard.model.run_records import RunLock
from microshard.model.topology import Topology
from microshard.model.workload import WorkloadStep
from microshard.records.differences import differences
from microshard.records.run_folder import RunFolder, write_atomic

NOT_EVERYWHERE = ("replica_set", *ONLY_SHARDED)
_HEAD = """\
# What a run resolved: every default, its scale and its overrides, and under `lock` the versions, hashes and machine it
# was made with. `microshard run` of this file repeats the run and reports what differs.
"""


def write_experiment_lock(folder: RunFolder, experiment: Experiment, lock: RunLock, source: Path) -> None:
    """Write experiment.lock.yml into a run's folder, and beside it the pipelines it names.

    `lock` is the content of lock.json, `source` the experiment file.
    """
    definition = experiment.model_dump(mode="json", exclude_none=True, exclude={"scales", "lock"})
    # Sections that only some backends or topologies have are written only as far as they were given: a default for EC2
    # must not be required of this machine.
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
                if file != copy:  # a resumed run reads its own copy
                    shutil.copyfile(file, copy)
                break


def _step(step: WorkloadStep, topology: Topology) -> dict[str, Any]:
    """A step with all its defaults except those without effect in it, which would be refused."""
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


def locked(lock: RunLock) -> Lock:
    """The part of lock.json that another run can be compared with."""
    found = {(b.version, b.mongod_sha256 or "", bool(b.embedded)) for b in lock.binaries.values()}
    return Lock(
        microshard=lock.microshard,
        definition_sha256=lock.definition_sha256,
        mongodb=[
            LockedMongoDB(version=version, mongod_sha256=sha256 or None, embedded=embedded)
            for version, sha256, embedded in sorted(found)
        ],
        host=lock.host,
        packages=lock.packages,
        images=lock.images,
    )


def changes(wanted: Lock, lock: RunLock) -> list[str]:
    """Each difference from a lock as `key: then → now`, in alphabetical order."""
    ignored = {"definition_sha256"}  # that of the lock file itself
    then, now = (item.model_dump(mode="json", exclude=ignored) for item in (wanted, locked(lock)))
    return [str(difference) for difference in differences(then, now)]
