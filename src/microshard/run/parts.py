"""What several client hosts measured together, as the one result of a step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from microshard.engines.ycsb import merge
from microshard.plan.model import Point, Step

Result = dict[str, Any]


class PartsError(Exception):
    """What came from the client hosts cannot be made one result."""


def put_together(folder: Path, point: Point, step: Step, shifts: Mapping[str, float]) -> Result:
    """The result of a step of which every client host did its part.

    `folder` is that of the step, results/POINT/STEP: `hosts/HOST/PHASE.json` are the parts, `together/PHASE.json` what
    was found after all of them. `shifts`: host → seconds to be added to its times. A host without any result makes the
    whole fail by its name. Raises PartsError when nothing is there, or it does not belong together.
    """
    phases = [phase.name for phase in point.phases]
    parts = {host: _of_host(folder / "hosts" / host, point, step, phases) for host in point.client_hosts}
    if not any(part["phases"] for part in parts.values()):
        raise PartsError(f"{folder}: no client host has left a result")
    after = {name: _phase(path) for name in phases if (path := folder / "together" / f"{name}.json").exists()}
    moved = [merge.moved(part, shifts.get(host, 0.0)) for host, part in parts.items()]
    try:
        return merge.merge_results(moved, list(parts), after)
    except merge.MergeError as error:
        raise PartsError(f"{folder}: {error}") from error


def _of_host(folder: Path, point: Point, step: Step, phases: list[str]) -> Result:
    """What a host has left, in the form of a result: one phase after the other, up to the first that is missing."""
    found = []
    for name in phases:
        path = folder / f"{name}.json"
        if path.exists():
            found.append(_phase(path))
    top = {"microshard": 1, "point": point.id, "axes": point.axes, "step": step.name, "purpose": step.purpose}
    return {**top, "valid": True, "problems": [], "phases": found}


def _phase(path: Path) -> Result:
    """The one phase of a file. Raises PartsError."""
    try:
        (phase,) = json.loads(path.read_text(encoding="utf-8"))["phases"]
    except (OSError, ValueError, KeyError) as error:
        raise PartsError(f"{path}: not the result of a phase ({error})") from error
    return dict(phase)
