"""What several client hosts measured together, as the one result of a step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from microshard.errors import MicroshardError
from microshard.model.plan import Point, Step
from microshard.workloads import registry
from microshard.workloads.base import PhaseError

Result = dict[str, Any]


class PartsError(MicroshardError):
    """What came from the client hosts cannot be made one result."""


def merge_client_results(folder: Path, point: Point, step: Step, shifts: Mapping[str, float]) -> Result:
    """The result of a step of which every client host did its part.

    `folder` is that of the step, results/POINT/STEP: `hosts/HOST/PHASE.json` are the parts, `together/PHASE.json` what
    was found after all of them. `shifts`: host → seconds to be added to its times. A host without any result makes the
    whole fail by its name. Raises PartsError when nothing is there, or it does not belong together.
    """
    parts = {host: _of_host(folder / "hosts" / host, point, shifts.get(host, 0.0)) for host in point.client_hosts}
    if not any(parts.values()):
        raise PartsError(f"{folder}: no client host has left a result")
    phases = []
    for planned in point.phases:
        there = {host: part[planned.name] for host, part in parts.items() if planned.name in part}
        if not there:
            continue  # an earlier phase failed everywhere
        try:
            phase = registry.find(planned.engine).merge(there)
        except PhaseError as error:
            raise PartsError(f"{folder}: {planned.name}: {error}") from error
        problem = _missing(planned.name, [host for host in parts if host not in there])
        path = folder / "together" / f"{planned.name}.json"
        together = _phase(path) if path.exists() else {}
        phase["storage"] = together.get("storage")
        if found := phase.get("error") or problem or together.get("error"):
            phase["error"] = found
        phases.append(phase)
    problems = [f"{p['name']}: {p['error']['type']}: {p['error']['message']}" for p in phases if p.get("error")]
    top = {"microshard": 1, "point": point.id, "axes": point.axes, "step": step.name, "purpose": step.purpose}
    return {**top, "valid": not problems, "problems": problems, "phases": phases}


def _missing(phase: str, hosts: list[str]) -> Result | None:
    """The error of a phase that some hosts have left no result of."""
    if not hosts:
        return None
    return {"type": "PartMissing", "message": f"there is no result of {phase} from {', '.join(hosts)}"}


def _of_host(folder: Path, point: Point, shift: float) -> dict[str, Result]:
    """Phase → what a host has left of it, its times moved by `shift`; phases are done one after the other."""
    paths = {phase.name: folder / f"{phase.name}.json" for phase in point.phases}
    return {name: _moved(_phase(path), shift) for name, path in paths.items() if path.exists()}


def _moved(part: Result, seconds: float) -> Result:
    """A host's phase with its times on another clock, which is so many seconds ahead of the host's."""
    new = {**part, "started": part["started"] + seconds, "ended": part["ended"] + seconds}
    if part.get("windows"):
        new["windows"] = {**part["windows"], "start": part["windows"]["start"] + seconds}
    if part.get("rungs"):
        new["rungs"] = [
            {**rung, "started": rung["started"] + seconds, "ended": rung["ended"] + seconds} for rung in part["rungs"]
        ]
    return new


def _phase(path: Path) -> Result:
    """The one phase of a file. Raises PartsError."""
    try:
        (phase,) = json.loads(path.read_text(encoding="utf-8"))["phases"]
    except (OSError, ValueError, KeyError) as error:
        raise PartsError(f"{path}: not the result of a phase ({error})") from error
    return dict(phase)
