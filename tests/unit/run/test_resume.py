"""What a run is taken up with: its journal and its own copy, and never another definition or another plan."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from microshard.backends.local import LocalBackend
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.backend import Backend, Binaries
from microshard.run.prepare import prepared, write_run
from microshard.run.resume import CannotResumeError, ChangedError, ResumeRequest, resume

TEXT = """\
microshard: 1
name: sample
topology: {kind: standalone, storage: {cache: {policy: host_total_mb, value: 256}}}
workload:
  - load: {engine: insert, documents: 1000, seed: 7}
  - measure: {engine: aggregate, pipeline: mot_greenness, iterations: 3}
matrix: {topology.storage.block_compressor: [zlib, none]}
repetitions: 2
"""


class WentOnError(Exception):
    """Nothing has kept the run from being taken up."""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that broke off before its first measurement; it is not executed any further."""
    (tmp_path / "sample.yml").write_text(TEXT, encoding="utf-8")
    folder = RunFolder.create(tmp_path / "runs", "sample")
    binaries = Binaries(Path("/bin/mongod"), None, embedded=True, version="6.0.5")
    with prepared(tmp_path / "sample.yml", runs=tmp_path / "runs", backend=LocalBackend()) as ready:
        write_run(folder, ready, {point.id: binaries for point in ready.plan.points})
    return folder


def plan_again(request: ResumeRequest, backend: Backend, _: Console) -> int:
    folder = request.folder
    with prepared(request.experiment, runs=request.run.path.parent, backend=backend, folder=folder) as ready:
        request.refuse_another_plan(ready.loaded, ready.plan)
    raise WentOnError


def take_up(run: RunFolder, *, as_begun: bool = False) -> int:
    return resume(run, LocalBackend(), Console(file=io.StringIO()), as_begun=as_begun, remaining=plan_again)


def changed(run: RunFolder, old: str, new: str) -> None:
    path = run.path.parent.parent / "sample.yml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_an_unchanged_definition_goes_on_also_written_otherwise(run: RunFolder) -> None:
    changed(run, "repetitions: 2", "repetitions: 2  # as before")
    with pytest.raises(WentOnError):
        take_up(run)


def test_a_changed_definition_is_refused_with_the_difference(run: RunFolder) -> None:
    changed(run, "iterations: 3", "iterations: 4")
    changed(run, "[zlib, none]", "[zlib, snappy]")
    with pytest.raises(ChangedError) as refused:
        take_up(run)
    said = str(refused.value)
    assert refused.value.exit_code == 2
    assert "sample.yml has been changed" in said
    assert "measure.iterations: 3 → 4" in said
    assert "['zlib', 'none'] → ['zlib', 'snappy']" in said
    assert said.count("→") == 2
    with pytest.raises(WentOnError):
        take_up(run, as_begun=True)


def test_a_definition_that_is_gone_is_taken_from_the_runs_own_copy(run: RunFolder) -> None:
    (run.path.parent.parent / "sample.yml").unlink()
    with pytest.raises(WentOnError):
        take_up(run)


def recorded(run: RunFolder, file: str, **changes: Any) -> None:
    content = json.loads((run / file).read_text(encoding="utf-8"))
    write_json(run / file, content | changes)


def test_a_newer_version_that_plans_the_same_goes_on(run: RunFolder) -> None:
    recorded(run, "lock.json", microshard="0.0.1")
    recorded(run, "plan.json", assumptions=["other rates"], estimate_seconds=1.0)
    recorded(run, "run.json", microshard="0.0.1")
    with pytest.raises(WentOnError):
        take_up(run)


def test_a_version_that_plans_otherwise_is_refused_with_the_difference(run: RunFolder) -> None:
    recorded(run, "lock.json", microshard="0.0.1")
    steps = json.loads((run / "plan.json").read_text(encoding="utf-8"))["steps"]
    recorded(run, "plan.json", steps=[steps[1], steps[0], *steps[2:]])
    with pytest.raises(ChangedError, match=r"was planned otherwise, by microshard 0\.0\.1") as refused:
        take_up(run)
    assert "steps.0.point: " in str(refused.value)


def test_a_run_that_broke_off_before_it_had_a_plan_says_what_to_do(run: RunFolder) -> None:
    (run / "plan.json").unlink()
    with pytest.raises(CannotResumeError, match="start it again: microshard run FILE"):
        take_up(run)
