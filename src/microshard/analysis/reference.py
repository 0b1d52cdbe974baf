"""The published experiment that a run repeats, beside the measured one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from microshard.analysis.curve_distance import CurveDistance, curve_distance
from microshard.analysis.report_model import NOT_MEASURED, PointReport, Publication, PublishedValues, ReportedDefinition
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
) -> PublishedValues | None:
    """The published values of a phase; None where there are none. Values that name no phase belong to the main one.

    Speed-ups are against the smallest published size that is also among `sizes`, the measured ones, so that both curves
    start at 1 in the same place.
    """
    block, publication = definition.reference or PublishedValues(), definition.reproduces or Publication()
    rows = tuple(p for p in block.points if p.phase in ({None, phase} if main else {phase}))
    if not rows:
        return None
    values = replace(block, points=rows).curve("value")
    base = values[next((at for at in values if at in set(sizes)), min(values))] if values else None

    def speed_up(value: float | None) -> float | None:
        if value is None or value <= 0 or base is None:
            return None
        return base / value if block.better == "lower" else value / base

    points = tuple(replace(p, speed_up=speed_up(p.value)) for p in rows)
    return replace(block, points=points, title=publication.title, host=publication.host or "")


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


def distance_to(
    reference: PublishedValues | None, points: Sequence[PointReport], phase: str | None
) -> CurveDistance | None:
    """Distance in shape between the published and the measured curve of `points`; None without two shared sizes."""
    found = [(p.x, f) for p in points if p.x is not None and (f := p.figures(phase)) is not NOT_MEASURED]
    if reference is None or not found:
        return None
    measured = {x: f.values for x, f in found if all(v > 0 for v in f.values)}
    return curve_distance(measured, reference.curve("value"), found[0][1].better, reference.better)
