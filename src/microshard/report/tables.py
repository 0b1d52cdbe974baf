"""Tables of the page: further figures, engines' own tables, the published figures next to the measured ones, and
how the points differ."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from microshard.analysis.phase_details import KNEE
from microshard.analysis.report_model import PointReport, PublishedPoint, PublishedValues, ReportModel
from microshard.model.plan import Point
from microshard.records.codec import encode
from microshard.report import format as fmt
from microshard.report.figures.kinds import spread

MOST_ROWS = 1000  # of a table of an engine
MOST_DIFFERENT = 60  # keys
MOST_VALUES = 12  # of a key
_NOT_A_DIFFERENCE = {"id", "label", "axes", "processes", "hosts", "replica_sets", "estimates"}
_ESTIMATES = ("_seconds", "_bytes", "memory_mib")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page."""

    id: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def words(self) -> tuple[bool, ...]:
        """Of each column whether it holds words, which stand on the left, or numbers."""
        return tuple(any(row[n][:1].isalpha() for row in self.rows) for n in range(len(self.columns)))


def of(model: ReportModel) -> list[Table]:
    """All tables there are data for."""
    found = [*_phases(model), *_published(model)]
    for phase in dict.fromkeys(name for point in model.points for name in point.phases):
        found += [*_figures(model, phase), *_engine_tables(model, phase)]
    return found


def _ordered(model: ReportModel) -> list[PointReport]:
    return [point for name in model.series for point in model.of(name)]


def _phases(model: ReportModel) -> Iterator[Table]:
    """The metric of every measured phase by point, where there are several."""
    names = model.measure_phases
    if len(names) < 2:
        return
    heads = []
    for name in names:
        some = next(f for p in model.points if (f := p.phases.get(name)) is not None)
        heads.append(f"{name}: {some.metric}, {some.unit}" if some.unit else f"{name}: {some.metric}")
    rows = [
        (point.label, *(fmt.spread(f.estimate) if (f := point.phases.get(name)) else fmt.NONE for name in names))
        for point in _ordered(model)
    ]
    yield Table("phases", "Every phase", "Medians, intervals in brackets.", ("point", *heads), tuple(rows))


def _figures(model: ReportModel, phase: str) -> Iterator[Table]:
    """What an engine reports besides its metric."""
    rows = [(p, f.details) for p in _ordered(model) if (f := p.phases.get(phase)) and f.details and f.details.figures]
    heads = list(dict.fromkeys((one.name, one.unit) for _, more in rows for one in more.figures if one.name != KNEE))
    if not heads:
        return
    cells = []
    for point, more in rows:
        known = {(one.name, one.unit): one.range for one in more.figures}
        cells.append(
            (
                point.label,
                *(_scaled(unit, known[name, unit]) if (name, unit) in known else fmt.NONE for name, unit in heads),
            )
        )
    many = any(one.range.n > 1 for _, more in rows for one in more.figures)
    yield Table(
        f"figures-{phase}",
        f"Further figures of {phase}",
        "Medians of the repetitions, their range in brackets." if many else "",
        ("point", *(_head(name, unit) for name, unit in heads)),
        tuple(cells),
    )


def _head(name: str, unit: str) -> str:
    shown = "MiB" if unit == "bytes" else unit
    return f"{name}, {shown}" if shown and unit not in name.split() else name


def _scaled(unit: str, found: Any) -> str:
    scale = fmt.MIB if unit == "bytes" else 1.0
    return spread(found.value / scale, found.low / scale, found.high / scale)


def _engine_tables(model: ReportModel, phase: str) -> Iterator[Table]:
    """The engine's own table, of all points below each other."""
    rows = [(p, f.details) for p in _ordered(model) if (f := p.phases.get(phase)) and f.details and f.details.table]
    heads = list(dict.fromkeys(column for _, more in rows if more.table for column in more.table.columns))
    cells: list[tuple[str, ...]] = []
    for point, more in rows:
        if more.table is None:
            continue
        for row in more.table.rows:
            known = dict(zip(more.table.columns, row, strict=True))
            cells.append((point.label, *(_cell(known.get(head), head.unit) for head in heads)))
    if not cells:
        return
    single = all(len(p.phases[phase].values) < 2 for p, _ in rows)
    cut = f" The first {MOST_ROWS:,} of {len(cells):,} rows." if len(cells) > MOST_ROWS else ""
    note = "" if single else "Of each point the repetition with the median result."
    yield Table(
        f"table-{phase}",
        f"{_engine(model, phase)}: details of {phase}",
        note + cut,
        ("point", *(_head(head.name, head.unit) for head in heads)),
        tuple(cells[:MOST_ROWS]),
    )


def _engine(model: ReportModel, phase: str) -> str:
    plan = model.points[0].plan if model.points else None
    return next((p.engine for p in plan.phases if p.name == phase), "the engine") if plan else "the engine"


def _cell(value: object, unit: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "yes" if value is True else "no" if value is False else "" if value is None else str(value) or fmt.NONE
    if unit == "bytes":
        return fmt.number(value / fmt.MIB)
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e12 else fmt.number(value)


# published and measured


def _published(model: ReportModel) -> Iterator[Table]:
    """Every published figure with the measured one of the same point, unit and name."""
    block = model.definition.reference or PublishedValues()
    rows = [row for entry in block.points for row in _published_rows(model, block, entry)]
    if rows:
        same = " The machines differ: compare the shapes." if any(row[4] != fmt.NONE for row in rows) else ""
        yield Table(
            "published",
            "Published and measured",
            f"{block.source or ''}.{same}".lstrip("."),
            ("at", "figure", "published", "measured", "measured / published", "remark"),
            tuple(rows),
        )


def _published_rows(model: ReportModel, block: PublishedValues, entry: PublishedPoint) -> Iterator[tuple[str, ...]]:
    phase, axis = entry.phase or model.main or "", block.axis
    point = _point_at(model, axis, entry)
    last = (
        axis.rpartition(".")[0].rpartition(".")[2] if axis.endswith((".count", ".value")) else axis.rpartition(".")[2]
    )
    where = [f"{last.replace('_', ' ')} {_plain(entry.at)}"]
    where += [f"{key.rpartition('.')[2].replace('_', ' ')} {_plain(v)}" for key, v in entry.where.items()]
    if entry.phase:
        where.append(phase)
    place, label = ", ".join(where), entry.label or ""
    if entry.value is not None or label:
        measured = _measured(point, phase, block, entry)
        yield _compared(place, block.metric, block.unit, entry.value, measured, label)
    for name, published in entry.figures.items():
        figure = _figure(point, phase, name)
        yield _compared(place, name, figure[1] if figure else "", published, figure[0] if figure else None, "")
    yield from _machine(model, point, phase, place, entry)


def _machine(
    model: ReportModel, point: PointReport | None, phase: str, place: str, entry: PublishedPoint
) -> Iterator[tuple[str, ...]]:
    """CPU, disk and load time where they were published."""
    figures = point.phases.get(phase) if point else None
    cpu = figures.cpu if figures else None
    for name in ("user", "sys", "iowait", "idle"):
        if (published := getattr(entry, name)) is not None:
            yield _compared(place, name, "%", published, getattr(cpu, name) * 100 if cpu else None, "")
    if entry.disk_gb is not None:
        known = point.storage.total if point and point.storage else None
        yield _compared(place, "disk", "GB", entry.disk_gb, None if known is None else known / 1e9, "")
    if entry.load_minutes is not None:
        load = point.phases.get(model.load) if point and model.load else None
        measured = load.seconds / 60 if load and load.seconds else None
        yield _compared(place, "load", "min", entry.load_minutes, measured, "")


def _compared(
    place: str, name: str, unit: str, published: float | None, measured: float | None, label: str
) -> tuple[str, ...]:
    ratio = measured / published if published and measured is not None else None
    scale = fmt.MIB if unit == "bytes" else 1.0
    return (
        place,
        _head(name, unit),
        fmt.number(None if published is None else published / scale),
        fmt.number(None if measured is None else measured / scale),
        fmt.number(ratio),
        label,
    )


def _plain(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _point_at(model: ReportModel, axis: str, entry: PublishedPoint) -> PointReport | None:
    """The point with the published values of its axes; axes that it does not have do not matter."""
    wanted = {axis: entry.at, **entry.where}

    def fits(point: PointReport) -> bool:
        return all(key not in point.axes or _plain(point.axes[key]) == _plain(value) for key, value in wanted.items())

    fitting = [point for point in model.points if fits(point)]
    exact = [point for point in fitting if axis in point.axes]
    return next(iter(exact or (fitting if len(model.points) == 1 else [])), None)


def _measured(point: PointReport | None, phase: str, block: PublishedValues, entry: PublishedPoint) -> float | None:
    """The measured figure of that name: of a ladder the rung, else the metric, else another figure."""
    figures = point.phases.get(phase) if point else None
    if figures is None:
        return None
    if figures.details and figures.details.rungs and block.axis.endswith(".threads"):
        return next((rung.range.value for rung in figures.details.rungs if rung.threads == entry.at), None)
    if figures.unit == block.unit and figures.estimate is not None:
        return figures.estimate.value
    known = _figure(point, phase, block.metric)
    return known[0] if known else None


def _figure(point: PointReport | None, phase: str, name: str) -> tuple[float, str] | None:
    figures = point.phases.get(phase) if point else None
    more = figures.details.figures if figures and figures.details else ()
    return next(((one.range.value, one.unit) for one in more if one.name == name), None)


# what differs between the points


def differences(model: ReportModel) -> list[tuple[str, list[tuple[str, str]]]]:
    """Key → values with the points that have them, for every key of the plan that is not the same at all points.

    Numbers of processes, names, ports and estimates are left out: they follow from the rest.
    """
    if len(model.points) < 2:
        return []
    values: dict[str, dict[str, list[str]]] = {}
    for point in model.points:
        for key, value in _flat(point.plan) if point.plan else ():
            values.setdefault(key, {}).setdefault(value, []).append(point.label)
    total = len(model.points)
    found = []
    for key, holders in values.items():
        known = sum(len(labels) for labels in holders.values())
        if len(holders) == 1 and known == total:
            continue
        shown = [(value, _who(labels)) for value, labels in list(holders.items())[:MOST_VALUES]]
        if known < total:
            shown.append((fmt.NONE, fmt.count(total - known, "other point")))
        if len(holders) > MOST_VALUES:
            shown.append(("…", fmt.count(len(holders) - MOST_VALUES, "more value")))
        found.append((key, shown))
    return found[:MOST_DIFFERENT]


def _who(labels: list[str]) -> str:
    return ", ".join(labels) if len(labels) <= 4 else fmt.count(len(labels), "point")


def _flat(plan: Point) -> Iterator[tuple[str, str]]:
    """Dotted keys and their values as text, without what follows from the number of shards or is an estimate."""
    for key in (field.name for field in dataclasses.fields(plan)):
        value = getattr(plan, key)
        if key in _NOT_A_DIFFERENCE or key.endswith(_ESTIMATES):
            continue
        if key == "phases":
            for phase in plan.phases:
                for name, given in phase.parameters.items():
                    yield f"{phase.name}: {name}", _short(given)
        elif key == "collections":
            for one in plan.collections:
                yield f"chunks of {one.namespace}", f"{len(one.chunks):,}"
        elif isinstance(value, dict) or dataclasses.is_dataclass(value):
            for name, given in encode(value).items():
                yield f"{key}: {name}", _short(given)
        else:
            yield key, _short(encode(value))


def _short(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,.6g}"
    shown = _plain(value) or fmt.NONE
    return shown if len(shown) <= 80 else shown[:79] + "…"
