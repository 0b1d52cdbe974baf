"""Tables: the summary in terminal and page; on the page also further figures, engines' own tables, the published
figures next to the measured ones, and how the points differ."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from microshard.analysis.bootstrap import Estimate
from microshard.analysis.phase_details import KNEE
from microshard.analysis.report_model import PhaseFigures, PointReport, PublishedPoint, PublishedValues, ReportModel
from microshard.experiment.question import SHARDS_AXIS, axis_label, varied_name
from microshard.model.plan import Point
from microshard.records.codec import encode
from microshard.report import format as fmt
from microshard.report.format import PageTable

MOST_ROWS = 1000  # of a table of an engine
MOST_DIFFERENT = 60  # keys
MOST_VALUES = 12  # of a key
_NOT_A_DIFFERENCE = {"id", "label", "axes", "processes", "hosts", "replica_sets", "estimates"}
_ESTIMATES = ("_seconds", "_bytes", "memory_mib")


# the summary


@dataclass(frozen=True, slots=True)
class SummaryColumn:
    """A column of the summary."""

    name: str
    unit: str
    cells: tuple[str, ...]  # of every point, in the order of the plan
    rank: int  # the lower, the longer a narrow terminal shows it


def summary_columns(model: ReportModel) -> list[SummaryColumn]:
    """The columns for which there is data."""
    share, none = fmt.percent, fmt.NONE
    columns: list[tuple[str, str, int, Callable[[PointReport, PhaseFigures], str]]] = [
        (model.metric, model.unit, 2, lambda _, f: fmt.spread(f.estimate)),
        ("bound by", "", 3, lambda _, f: f.verdict.name if f.verdict else none),
        (*_against(model), 3, lambda _, f: fmt.spread(_ratio(model, f))),
        ("efficiency", "%", 5, lambda _, f: share(f.efficiency.value if f.efficiency else None)),
        ("of the cores", "%", 12, lambda _, f: share(f.efficiency_of_cores.value if f.efficiency_of_cores else None)),
        ("published speed-up", "", 6, lambda p, _: fmt.factor(p.published_speed_up)),
        ("load", "documents/s", 7,
         lambda p, _: fmt.number(e.value if model.load and (e := p.figures(model.load).estimate) else None)),
        ("user", "%", 8, lambda _, f: share(f.cpu.user if f.cpu else None)),
        ("sys", "%", 8, lambda _, f: share(f.cpu.sys if f.cpu else None)),
        ("iowait", "%", 8, lambda _, f: share(f.cpu.iowait if f.cpu else None)),
        ("idle", "%", 8, lambda _, f: share(f.cpu.idle + f.cpu.steal if f.cpu else None)),
        ("data", "MiB", 10, lambda p, _: fmt.mib(p.storage.total if p.storage else None)),
        ("disk", "MiB", 11, lambda p, _: fmt.mib(p.storage.db_path if p.storage else None)),
    ]  # fmt: skip
    found = [
        SummaryColumn(name, unit, tuple(cell(p, model.figures(p)) for p in model.points), rank)
        for name, unit, rank, cell in columns
    ]
    return [column for column in found if set(column.cells) - {none}]


def _against(model: ReportModel) -> tuple[str, str]:
    """Heading and unit of the column that compares points."""
    question = model.definition.question
    if question is None or model.axis == SHARDS_AXIS:
        return "speed-up", "times"
    bases = [p for p in model.points if (f := model.figures(p)).speed_up and f.speed_up.value == 1]
    names = [*dict.fromkeys(varied_name(question, point.axes) for point in bases)]
    return f"against {names[0] if len(names) == 1 else 'the first'}", "times"


def _ratio(model: ReportModel, figures: PhaseFigures) -> Estimate | None:
    """Speed-up over numbers of shards; of other questions the figure over that of the baseline."""
    found = figures.speed_up
    if found is None or figures.better == "higher" or model.definition.question is None or model.axis == SHARDS_AXIS:
        return found
    span = found.interval
    inverse = replace(span, low=1 / span.high, high=1 / span.low) if span is not None and span.low > 0 else None
    return replace(found, value=1 / found.value, interval=inverse)


# further tables of the page


def of(model: ReportModel) -> list[PageTable]:
    """All tables there are data for."""
    found = [*_phases(model), *_published(model)]
    for phase in dict.fromkeys(name for point in model.points for name in point.phases):
        rows = [(p, f) for p in model.ordered if (f := p.figures(phase)).details.representative]
        found += [*_figures(rows, phase), *_engine_tables(model, rows, phase)]
    return [*found, *_estimates(model)]


def _estimates(model: ReportModel) -> Iterator[PageTable]:
    """What the plan has estimated beside what it took, in seconds."""
    rows = [(p, p.plan) for p in model.ordered if p.plan and p.took(loading=False) is not None]
    columns: dict[str, Callable[..., str]] = {"point": lambda p, _: p.label}
    for head, estimated, took in (
        ("deployment", lambda plan: plan.deploy_seconds, lambda p: p.deploy_seconds),
        ("load", lambda plan: plan.load_seconds, lambda p: p.took(loading=True)),
        ("repetition", lambda plan: plan.measure_seconds, lambda p: p.took(loading=False)),
    ):
        columns[f"{head}: estimated, s"] = lambda _, plan, of=estimated: fmt.number(of(plan))
        columns[f"{head}: took, s"] = lambda p, _, of=took: fmt.number(of(p))
        columns[f"{head}: took / estimated"] = lambda p, plan, of=took, by=estimated: (
            fmt.number(of(p) / by(plan)) if of(p) and by(plan) else fmt.NONE
        )
    if rows:
        note = "Medians. " + " ".join(f"Assumed: {each}." for each in (model.plan.assumptions if model.plan else ()))
        yield fmt.table(rows, columns, id="estimates", title="Estimated and measured times", note=note.strip())


def _phases(model: ReportModel) -> Iterator[PageTable]:
    """The metric of every measured phase by point, where there are several."""
    columns: dict[str, Callable[[PointReport], str]] = {"point": lambda p: p.label}
    for name in model.measure_phases:
        some = next(f for p in model.points if (f := p.phases.get(name)) is not None)
        head = f"{name}: {fmt.of_unit(some.metric, some.unit)}"
        columns[head] = lambda p, name=name: fmt.spread(p.figures(name).estimate)  # type: ignore[misc]
    if len(columns) > 2:
        rows = ((point,) for point in model.ordered)
        yield fmt.table(rows, columns, id="phases", title="Every phase", note="Medians, intervals in brackets.")


def _figures(rows: list[tuple[PointReport, PhaseFigures]], phase: str) -> Iterator[PageTable]:
    """What an engine reports besides its metric."""
    known = [(p, {(one.name, one.unit): one.range for one in f.details.figures}) for p, f in rows]
    known = [(p, figures) for p, figures in known if figures]
    columns: dict[str, Callable[..., str]] = {"point": lambda p, _: p.label}
    for head in dict.fromkeys(head for _, figures in known for head in figures if head[0] != KNEE):
        columns[_head(*head)] = lambda _, figures, head=head: _scaled(head[1], figures.get(head))
    if len(columns) > 1:
        many = any(found.n > 1 for _, figures in known for found in figures.values())
        note = "Medians of the repetitions, their range in brackets." if many else ""
        yield fmt.table(known, columns, id=f"figures-{phase}", title=f"Further figures of {phase}", note=note)


def _head(name: str, unit: str) -> str:
    shown = "MiB" if unit == "bytes" else unit
    return f"{name}, {shown}" if shown and unit not in name.split() else name


def _scaled(unit: str, found: Any) -> str:
    scale = fmt.MIB if unit == "bytes" else 1.0
    return fmt.NONE if found is None else fmt.span(found.value / scale, found.low / scale, found.high / scale)


def _engine_tables(model: ReportModel, rows: list[tuple[PointReport, PhaseFigures]], phase: str) -> Iterator[PageTable]:
    """The engine's own table, of all points below each other."""
    shown = [(p, f.details.table) for p, f in rows if f.details.table]
    heads = list(dict.fromkeys(column for _, table in shown for column in table.columns))
    cells = [(point, dict(zip(table.columns, row, strict=True))) for point, table in shown for row in table.rows]
    if not cells:
        return
    columns: dict[str, Callable[..., str]] = {"point": lambda p, _: p.label}
    for head in heads:
        columns[_head(head.name, head.unit)] = lambda _, row, head=head: _cell(row.get(head), head.unit)
    engines = [p.engine for point in model.points[:1] if point.plan for p in point.plan.phases if p.name == phase]
    single = all(len(p.figures(phase).values) < 2 for p, _ in shown)
    note = "" if single else "Of each point the repetition with the median result."
    cut = f" The first {MOST_ROWS:,} of {len(cells):,} rows." if len(cells) > MOST_ROWS else ""
    title = f"{engines[0] if engines else 'the engine'}: details of {phase}"
    yield fmt.table(cells[:MOST_ROWS], columns, id=f"table-{phase}", title=title, note=note + cut)


def _cell(value: object, unit: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "yes" if value is True else "no" if value is False else "" if value is None else str(value) or fmt.NONE
    if unit == "bytes":
        return fmt.number(value / fmt.MIB)
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e12 else fmt.number(value)


# published and measured


def _published(model: ReportModel) -> Iterator[PageTable]:
    """Every published figure that was measured too, beside the measured one of the same point and name."""
    block = model.definition.reference or PublishedValues()
    rows = tuple(row for entry in block.points for row in _published_rows(model, block, entry))
    if rows:
        columns = ("at", "figure", "published", "measured", "measured / published", "remark")
        note = f"{block.source or ''}. Machines and sizes differ: compare the shapes.".lstrip(". ")
        yield fmt.without_empty_columns(PageTable(columns, rows, "published", "Published and measured", note))


def _published_rows(model: ReportModel, block: PublishedValues, entry: PublishedPoint) -> Iterator[tuple[str, ...]]:
    phase, axis = entry.phase or model.main or "", block.axis
    point = _point_at(model, axis, entry)
    if point is None:
        return
    figures = point.figures(phase)
    where = [f"{axis_label(axis)} {_plain(entry.at)}"]
    where += [f"{key.rpartition('.')[2].replace('_', ' ')} {_plain(v)}" for key, v in entry.where.items()]
    place = ", ".join([*where, *([phase] if entry.phase else [])])
    named = {one.name: (one.range.value, one.unit) for one in reversed(figures.details.figures)}
    yield from _compared(
        place, block.metric, block.unit, entry.value, _measured(figures, block, entry, named), entry.label
    )
    for name, published in entry.figures.items():
        value, unit = named.get(name, (None, ""))
        yield from _compared(place, name, unit, published, (value, unit))
    if figures.cpu is not None:
        for name in ("user", "sys", "iowait", "idle"):
            yield from _compared(place, name, "%", getattr(entry, name), (getattr(figures.cpu, name) * 100, "%"))
    yield from _compared(place, "disk", "GB", entry.disk_gb, (point.storage.total if point.storage else None, "bytes"))
    seconds = point.figures(model.load).seconds if model.load else None
    yield from _compared(place, "load", "min", entry.load_minutes, (seconds, "s"))


# Units that can be converted into each other, in the first one of each kind.
_UNITS: tuple[dict[str, float], ...] = (
    {"s": 1, "ms": 1e-3, "us": 1e-6, "min": 60, "h": 3600},
    {"bytes": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
)  # fmt: skip


def in_unit(value: float, unit: str, wanted: str) -> float | None:
    """A value in another unit; None where the two measure different things."""
    if unit == wanted:
        return value
    return next((value * of[unit] / of[wanted] for of in _UNITS if unit in of and wanted in of), None)


def _compared(
    place: str,
    name: str,
    unit: str,
    published: float | None,
    measured: tuple[float | None, str],
    label: str | None = "",
) -> Iterator[tuple[str, ...]]:
    """The row of a figure that was published and measured, in the published unit; nothing where one of them was not."""
    value = None if measured[0] is None else in_unit(measured[0], measured[1], unit)
    if published is not None and value is not None:
        scale = fmt.MIB if unit == "bytes" else 1.0
        ratio = fmt.number(value / published if published else None)
        yield (place, _head(name, unit), fmt.number(published / scale), fmt.number(value / scale), ratio, label or "")


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


def _measured(
    figures: PhaseFigures, block: PublishedValues, entry: PublishedPoint, named: Mapping[str, tuple[float, str]]
) -> tuple[float | None, str]:
    """The measured figure of that name with its unit: of a ladder the rung, else the metric, else another figure."""
    if figures.details.rungs and block.axis.endswith(".threads"):
        rung = next((rung for rung in figures.details.rungs if rung.threads == entry.at), None)
        return (rung.range.value if rung else None), figures.unit
    if figures.metric != block.metric and block.metric in named:
        return named[block.metric]
    same = figures.metric == block.metric or figures.unit == block.unit
    return (figures.estimate.value, figures.unit) if same and figures.estimate is not None else (None, "")


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
