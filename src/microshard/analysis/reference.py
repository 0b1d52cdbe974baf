"""The published experiment beside the measured one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from microshard.analysis.read_run import items, mapping, number, text
from microshard.analysis.report_model import CpuSplit, PointReport, Reference, ReferencePoint
from microshard.analysis.statistics import Better, CurveDistance, curve_distance


def read_reference(
    definition: Mapping[str, Any], phase: str | None, sizes: Sequence[float], *, main: bool = True
) -> Reference | None:
    """The reference block of a definition as far as it speaks of a phase; None when it says nothing of it.

    Figures that name no phase belong to the main one.

    Its speed-ups are against the smallest published size that is also among `sizes`, the measured ones,
    so that both curves start at 1 in the same place.
    """
    block = _of_phase(mapping(definition.get("reference")), phase, main=main)
    rows = [
        row
        for row in items(block.get("points"))
        if isinstance(row, dict) and row.get("at") is not None and belongs(mapping(row.get("where")), definition)
    ]
    if not rows:
        return None
    unit = text(block.get("unit")) or "s"
    better: Better = "higher" if "/" in unit else "lower"  # a rate has a "per", a time has none
    values = {
        at: value
        for row in reversed(rows)  # of two figures at one place the first counts
        if (at := number(row["at"])) is not None and (value := number(row.get("value"))) is not None and value > 0
    }
    shared = sorted(at for at in values if at in set(sizes)) or sorted(values)
    base = values[shared[0]] if shared else None
    reproduces = mapping(definition.get("reproduces"))
    return Reference(
        metric=text(block.get("metric")) or "query time",
        unit=unit,
        axis=text(block.get("axis")),
        better=better,
        source=text(block.get("source")),
        title=text(reproduces.get("title")),
        host=text(reproduces.get("host")),
        points=tuple(_point(row, base, better) for row in rows),
    )


def _of_phase(block: Mapping[str, Any], phase: str | None, *, main: bool) -> dict[str, Any]:
    """The block with the points of this phase, and with those that name none where it is the main one."""
    mine = {None, phase} if main else {phase}
    rows = [row for row in items(block.get("points")) if mapping(row).get("phase") in mine]
    return {**block, "points": rows}


def belongs(where: Mapping[str, Any], definition: Mapping[str, Any]) -> bool:
    """Whether the definition has the values at which a figure was published: as an axis or throughout."""
    matrix = mapping(definition.get("matrix"))
    axes = {**mapping(matrix.get("axes")), **mapping(matrix.get("zip"))}
    for key, value in where.items():
        if key in axes:
            if value not in items(axes[key]):
                return False
            continue
        here: Any = definition
        for part in key.split("."):
            if isinstance(here, list):
                here = here[int(part)] if part.isdigit() and int(part) < len(here) else None
            else:
                here = mapping(here).get(part)
        if here is not None and here != value:
            return False
    return True


def _point(row: Mapping[str, Any], base: float | None, better: Better) -> ReferencePoint:
    at = number(row["at"])
    value = number(row.get("value"))
    speed_up = None
    if value is not None and value > 0 and base is not None:
        speed_up = base / value if better == "lower" else value / base
    disk, load = number(row.get("disk_gb")), number(row.get("load_minutes"))
    return ReferencePoint(
        at=text(row["at"]) if at is None else at,
        value=value,
        speed_up=speed_up,
        cpu=_cpu(row),
        disk_bytes=None if disk is None else disk * 1e9,
        load_seconds=None if load is None else load * 60,
        label=text(row.get("label")),
    )


def _cpu(row: Mapping[str, Any]) -> CpuSplit | None:
    """Published per cent as shares, scaled to add up to 1: the published rows are rounded and some do not."""
    shares = [number(row.get(name)) for name in ("user", "sys", "iowait", "idle")]
    known = [share for share in shares if share is not None]
    if len(known) < 4 or sum(known) <= 0:
        return None
    return CpuSplit(*(share / sum(known) for share in known))


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
