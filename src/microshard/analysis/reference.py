"""The published experiment that a run repeats, beside the measured one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from microshard.analysis.curve_distance import CurveDistance, curve_distance
from microshard.analysis.report_model import PointReport, Publication, Reference, ReferencePoint, ReportedDefinition
from microshard.model.result import Better
from microshard.records.codec import decode


def reported(definition: Mapping[str, Any]) -> ReportedDefinition:
    """The definition in lock.json; of published figures those that apply to it. Empty where it cannot be read."""
    try:
        found = decode(ReportedDefinition, definition)
    except ValueError:
        return ReportedDefinition()
    if found.reference is None:
        return found
    points = tuple(p for p in found.reference.points if p.at is not None and _applies(p.where, definition))
    return replace(found, reference=replace(found.reference, points=points))


def read_reference(
    definition: ReportedDefinition, phase: str | None, sizes: Sequence[float], *, main: bool = True
) -> Reference | None:
    """The published values of a phase; None where there are none. Values that name no phase belong to the main one.

    Speed-ups are against the smallest published size that is also among `sizes`, the measured ones, so that both curves
    start at 1 in the same place.
    """
    block, publication = definition.reference, definition.reproduces or Publication()
    rows = [p for p in block.points if p.phase in ({None, phase} if main else {phase})] if block else []
    if block is None or not rows:
        return None
    better: Better = "higher" if "/" in block.unit else "lower"  # a rate has a "per", a time has none
    values = {  # of two values at one place the first counts
        p.at: p.value
        for p in reversed(rows)
        if not isinstance(p.at, str | None) and p.value is not None and p.value > 0
    }
    shared = sorted(at for at in values if at in set(sizes)) or sorted(values)
    base = values[shared[0]] if shared else None

    def speed_up(value: float | None) -> float | None:
        if value is None or value <= 0 or base is None:
            return None
        return base / value if better == "lower" else value / base

    return Reference(
        metric=block.metric,
        unit=block.unit,
        axis=block.axis,
        better=better,
        source=block.source or "",
        title=publication.title,
        host=publication.host or "",
        points=tuple(
            ReferencePoint(
                at=p.at if p.at is not None else "",
                value=p.value,
                speed_up=speed_up(p.value),
                cpu=p.cpu,
                disk_bytes=None if p.disk_gb is None else p.disk_gb * 1e9,
                load_seconds=None if p.load_minutes is None else p.load_minutes * 60,
                label=p.label or "",
            )
            for p in rows
        ),
    )


def _applies(where: Mapping[str, Any], definition: Mapping[str, Any]) -> bool:
    """Whether the definition has the values at which a figure was published: as an axis or throughout."""
    matrix = definition.get("matrix") or {}
    axes = {**(matrix.get("axes") or {}), **(matrix.get("zip") or {})}
    for key, value in where.items():
        if key in axes:
            if value not in axes[key]:
                return False
            continue
        here: Any = definition
        for part in key.split("."):
            if isinstance(here, list):
                here = here[int(part)] if part.isdigit() and int(part) < len(here) else None
            else:
                here = here.get(part) if isinstance(here, dict) else None
        if here is not None and here != value:
            return False
    return True


def distance_to(reference: Reference | None, points: Sequence[PointReport], phase: str | None) -> CurveDistance | None:
    """Distance in shape between the published and the measured curve of `points`; None without two shared sizes."""
    if reference is None or phase is None:
        return None
    measured = {
        point.x: point.phases[phase].values
        for point in points
        if point.x is not None and phase in point.phases and all(v > 0 for v in point.phases[phase].values)
    }
    published = {
        float(row.at): row.value
        for row in reversed(reference.points)
        if not isinstance(row.at, str) and row.value is not None and row.value > 0
    }
    better: Better = next((point.phases[phase].better for point in points if phase in point.phases), "lower")
    return curve_distance(measured, published, better, reference.better)
