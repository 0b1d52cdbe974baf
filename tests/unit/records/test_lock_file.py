"""experiment.lock.yml is the experiment again, and says what has changed since."""

import copy
from pathlib import Path

import pytest

from microshard.experiment.load import load
from microshard.experiment.matrix import expand
from microshard.model.run_records import LockedBinary, RunLock
from microshard.records.lock_file import changes, locked, write_experiment_lock
from microshard.records.run_folder import RunFolder
from microshard.run.prepare import pipelines

SHIPPED = sorted((Path(__file__).parents[3] / "experiments").glob("*.yml"))
LOCK = RunLock(
    microshard="0.1.0",
    definition_sha256="ab",
    binaries={name: LockedBinary(f"/{name}", "", True, "6.0.5", "cd") for name in ("p01", "p02")},
    host={"cpu": "one", "cores": 2, "kernel": "6.1"},
    packages={"pymongo": "4.0"},
)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_the_lock_of_every_shipped_experiment_gives_the_same_points(path: Path, tmp_path: Path) -> None:
    first = load(path)
    folder = RunFolder.create(tmp_path, "x")
    write_experiment_lock(folder, first.experiment, LOCK, path)
    again = load(folder / "experiment.lock.yml")
    assert [p.axes for p in expand(again)] == [p.axes for p in expand(first)]
    assert [p.experiment.topology for p in expand(again)] == [p.experiment.topology for p in expand(first)]
    assert [p.experiment.workload for p in expand(again)] == [p.experiment.workload for p in expand(first)]
    assert again.experiment.lock == locked(LOCK)
    used = {getattr(s.phase, "pipeline", None) for s in first.experiment.workload}
    names = {name for name in used if isinstance(name, str)}
    assert names <= {p.stem for p in (folder / "pipelines").glob("*")} if names else True
    assert names <= set(pipelines(folder / "experiment.lock.yml"))


def test_scale_and_overrides_are_in_it(tmp_path: Path) -> None:
    path = next(p for p in SHIPPED if p.stem == "quickstart")
    experiment = load(path, overrides={"matrix.topology.shards.count": [3], "repetitions": 7}).experiment
    folder = RunFolder.create(tmp_path, "x")
    write_experiment_lock(folder, experiment, LOCK, path)
    again = load(folder / "experiment.lock.yml")
    assert again.experiment.repetitions == 7
    assert [p.axes for p in expand(again)] == [{"topology.shards.count": 3}]


def test_what_has_changed_is_named() -> None:
    now = copy.deepcopy(LOCK)
    assert changes(locked(LOCK), now) == []
    now.host["kernel"] = "6.2"
    now.binaries["p02"].mongod_sha256 = "ef"
    now.definition_sha256 = "of the lock file itself"
    found = changes(locked(LOCK), now)
    assert "host.kernel: 6.1 → 6.2" in found
    assert any(item.startswith("mongodb.1.mongod_sha256: nothing → ef") for item in found)
    assert not any("definition" in item for item in found)
