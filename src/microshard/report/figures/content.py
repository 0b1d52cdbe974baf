"""What each picture shows: from the model to lines and bars, a title, a text alternative and a table of its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from microshard.report import format as fmt
from microshard.report import takeaways
from microshard.report.checks import DRIFT
from microshard.report.figures import bars, curves
from microshard.report.model import CpuSplit, PhaseFigures, PointReport, ReportModel
from microshard.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CPU_PARTS = (("user", "user"), ("sys", "system"), ("iowait", "I/O wait"), ("idle", "idle"))
ROLES = (("shards", "shards"), ("router", "router"), ("client", "client"), ("config", "config server"))


@dataclass(frozen=True, slots=True)
class DataTable:
    """The numbers of a picture."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Content:
    """A picture that is not drawn yet."""

    title: str
    caption: str
    alt: str
    table: DataTable
    draw: Callable[[], tuple[Figure, float]]


def _subtitle(model: ReportModel, what: str) -> str:
    cores = f", {fmt.count(model.cores, 'core')}" if model.cores else ""
    return f"{what}{cores}"


def _intervals(model: ReportModel, phase: str | None) -> str:
    counts = {f.estimate.n for _, f in takeaways.measured(model, phase) if f.estimate}
    if not counts:
        return ""
    if max(counts) == 1:
        return "One value a point, no interval."
    span = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return f"Dots are medians of {span} repetitions, bars their bootstrap intervals."


def query_time(model: ReportModel) -> Content | None:
    """The main metric along the axis, the published curve scaled to the same start."""
    return _along(model, model.main, takeaways.value(model), scaled_reference=True)


def load_rate(model: ReportModel) -> Content | None:
    """How fast the documents went in."""
    if model.load is None or model.load == model.main:
        return None
    return _along(model, model.load, takeaways.value(model, model.load), scaled_reference=False)


def _along(model: ReportModel, phase: str | None, title: str, *, scaled_reference: bool) -> Content | None:
    rows = [(p, f) for p, f in takeaways.measured(model, phase) if p.x is not None]
    if not rows or model.axis is None:
        return None
    figures = rows[0][1]
    published: tuple[tuple[float, float], ...] = ()
    reference = model.reference
    base = next((f.estimate.value for p, f in rows if f.estimate and f.speed_up and f.speed_up.value == 1), None)
    if scaled_reference and reference is not None and base is not None and len(model.series) == 1:
        published = tuple(
            (float(r.at), base / r.speed_up if figures.better == "lower" else base * r.speed_up)
            for r in sorted((r for r in reference.points if not isinstance(r.at, str)), key=lambda r: float(r.at))
            if r.speed_up
        )
    lines = _lines(model, phase, lambda f: f.estimate)
    unit = f"{figures.metric}, {figures.unit} ({figures.better} is better)"
    scaled = dict(published)
    columns = [model.axis_label, f"{figures.metric}, {figures.unit}", "repetitions"]
    cells = [[p.label, fmt.spread(f.estimate), fmt.count(len(f.values), "value")] for p, f in rows]
    if published:
        columns.append("published, scaled")
        cells = [[*row, fmt.number(scaled.get(p.x or 0.0))] for row, (p, _) in zip(cells, rows, strict=True)]
    beside = (
        f" Dashed: the published curve ({reference.host or reference.title}), scaled to the first point, because the "
        "machines differ."
        if published and reference is not None
        else ""
    )
    core = " The vertical line is where every core has a shard of its own." if _core_line(model) else ""
    data = curves.Curves(
        unit, model.axis_label, lines, published, "published, scaled", model.cores if _core_line(model) else None
    )
    most = max(len(f.values) for _, f in rows)
    subtitle = _subtitle(model, f"median of {most} repetitions" if most > 1 else "one value a point")
    return Content(
        title,
        f"{figures.metric.capitalize()} in {figures.unit}. {_intervals(model, phase)}{beside}{core}",
        f"Line chart. {title}. " + "; ".join(f"{p.label}: {fmt.spread(f.estimate)} {f.unit}" for p, f in rows[:24]),
        DataTable(tuple(columns), tuple(map(tuple, cells))),
        lambda: curves.draw(title, subtitle, data),
    )


def speed_up(model: ReportModel) -> Content | None:
    """Speed-up along the axis beside the published one and the ideal."""
    rows = [(p, f) for p, f in takeaways.measured(model) if p.x is not None and f.speed_up is not None]
    if len(rows) < 2 or model.axis is None:
        return None
    title = takeaways.speed(model)
    reference = model.reference
    published: tuple[tuple[float, float], ...] = ()
    if reference is not None:
        known = sorted((float(r.at), r.speed_up) for r in reference.points if r.speed_up and not isinstance(r.at, str))
        published = tuple(known)
    sharded = model.axis_label == "shards"
    lines = _lines(model, model.main, lambda f: f.speed_up)
    data = curves.Curves(
        unit="speed-up, times the smallest point",
        axis=model.axis_label,
        lines=lines,
        published=published,
        cores=model.cores if _core_line(model) else None,
        ideal=sharded,
        log_y=True,
    )
    beside = f" Dashed: published ({reference.host or reference.title})." if reference is not None else ""
    columns = (model.axis_label, "speed-up", "efficiency, %", "of the cores, %", "published speed-up")
    cells = tuple(
        (
            p.label,
            fmt.spread(f.speed_up),
            fmt.spread(f.efficiency, 100, 2),
            fmt.spread(f.efficiency_of_cores, 100, 2),
            fmt.factor(p.published_speed_up),
        )
        for p, f in rows
    )
    base = rows[0][0].label if len(model.series) == 1 else f"the smallest number of {model.axis_label} of each line"
    subtitle = _subtitle(model, f"{model.metric}, against {base}; logarithmic")
    return Content(
        title,
        f"How many times as fast as {base}, on logarithmic scales: equal distances are equal factors. "
        f"{_intervals(model, model.main)}{beside}"
        + (" Dotted: one times faster per shard, up to the cores." if sharded else ""),
        f"Line chart. {title}. "
        + "; ".join(f"{p.label}: {fmt.factor(f.speed_up.value)} times" for p, f in rows[:24] if f.speed_up),
        DataTable(columns, cells),
        lambda: curves.draw(title, subtitle, data),
    )


def _lines(
    model: ReportModel, phase: str | None, pick: Callable[[PhaseFigures], Estimate | None]
) -> tuple[curves.Line, ...]:
    lines = []
    names = _series_names(model)
    for series in model.series:
        found = [
            (p.x, estimate)
            for p, f in takeaways.measured(model, phase, series)
            if p.x is not None and (estimate := pick(f)) is not None
        ]
        if found:
            lines.append(curves.Line(names[series], tuple(x for x, _ in found), tuple(e for _, e in found)))
    return tuple(lines)


def _series_names(model: ReportModel) -> dict[str, str]:
    """What tells the lines apart: "block size 4 KiB" and "block size 8 KiB" are "4 KiB" and "8 KiB"."""
    if len(model.series) < 2:
        return dict.fromkeys(model.series, "measured")
    words = [series.split(" ") for series in model.series]
    same = 0
    while all(len(w) > same + 1 and w[same] == words[0][same] for w in words):
        same += 1
    return {series: " ".join(w[same:]) for series, w in zip(model.series, words, strict=True)}


def _row(model: ReportModel, point: PointReport) -> str:
    """Label of a bar: the point's own, or place and line where there are several lines."""
    if len(model.series) < 2 or point.x is None:
        return point.label
    return f"{point.x:g} · {_series_names(model)[point.series]}"


def _core_line(model: ReportModel) -> bool:
    return model.axis_label == "shards" and bool(model.cores)


def cpu(model: ReportModel) -> Content | None:
    """How the cores spent their time while the main phase ran, the published split below each bar."""
    rows = [(p, f.cpu) for p, f in takeaways.measured(model) if f.cpu is not None]
    if not rows:
        return None
    title = takeaways.cpu(model)
    reference = model.reference
    beside = reference is not None and any(r.cpu for r in reference.points) and len(model.series) == 1
    published: dict[str, CpuSplit] = {}
    if beside and reference is not None:
        published = {p.id: r.cpu for p, _ in rows if (r := reference.at(p.x)) is not None and r.cpu is not None}
    data = bars.Bars(
        unit="share of all cores, %",
        parts=CPU_PARTS,
        bars=tuple(bars.Bar(_row(model, p), _shares(c), "", _shares(published.get(p.id))) for p, c in rows),
        limit=1.0,
        ticks=tuple((n / 4, f"{n * 25}") for n in range(5)),
        inside="%",
    )
    note = (
        f" The thin bar below is the published one ({reference.host or reference.title})."
        if published and reference
        else ""
    )
    columns = (model.axis_label, "user %", "system %", "I/O wait %", "idle %", "published user %", "published idle %")
    cells = tuple(
        (
            p.label,
            *(fmt.percent(share) for share in _shares(c)),
            fmt.percent(published[p.id].user if p.id in published else None),
            fmt.percent(published[p.id].idle if p.id in published else None),
        )
        for p, c in rows
    )
    return Content(
        title,
        f"How the host's cores spent their time while {model.metric} was measured; median of the repetitions.{note}",
        f"Stacked bars. {title}. "
        + "; ".join(f"{p.label}: user {fmt.percent(c.user)} %, idle {fmt.percent(c.idle)} %" for p, c in rows[:24]),
        DataTable(columns, cells),
        lambda: bars.draw(
            title,
            _subtitle(model, f"CPU while measuring {model.metric}, %" + ("; thin: published" if published else "")),
            data,
        ),
    )


def _shares(split: CpuSplit | None) -> tuple[float, ...]:
    """User, system, I/O wait and idle; stolen time counts as idle for us, another machine had it."""
    return () if split is None else (split.user, split.sys, split.iowait, split.idle + split.steal)


def roles(model: ReportModel) -> Content | None:
    """Which processes used the cores while the main phase ran."""
    rows = [(p, f.roles) for p, f in takeaways.measured(model) if f.roles]
    if not rows:
        return None
    title = takeaways.roles(model)
    most = max([*(sum(use.values()) for _, use in rows), float(model.cores or 0)])
    step = next((s for s in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64) if most / s <= 5), 128)
    ticks = tuple((n * step, f"{n * step:g}") for n in range(int(most / step) + 1))
    data = bars.Bars(
        unit=f"cores; dotted: all {model.cores} of the host" if model.cores else "cores",
        parts=ROLES,
        bars=tuple(
            bars.Bar(_row(model, p), tuple(use.get(role, 0.0) for role, _ in ROLES), fmt.number(sum(use.values()), 2))
            for p, use in rows
        ),
        limit=most * 1.02,
        ticks=ticks,
        mark=float(model.cores) if model.cores else None,
    )
    columns = (model.axis_label, *(f"{name}, cores" for _, name in ROLES), "sum, cores")
    cells = tuple(
        (p.label, *(fmt.number(use.get(role), 2) for role, _ in ROLES), fmt.number(sum(use.values()), 2))
        for p, use in rows
    )
    return Content(
        title,
        f"Mean cores used by the processes of each kind while {model.metric} was measured. Router: mongos and, with "
        "the embedded router, its mongod.",
        f"Stacked bars. {title}. "
        + "; ".join(f"{p.label}: {fmt.number(sum(use.values()), 2)} cores" for p, use in rows[:24]),
        DataTable(columns, cells),
        lambda: bars.draw(title, _subtitle(model, f"cores used while measuring {model.metric}"), data),
    )


def disk(model: ReportModel) -> Content | None:
    """What the documents, their indexes and all the rest take on disk."""
    rows = [(p, p.storage) for name in model.series for p in model.of(name) if p.storage is not None]
    if not rows:
        return None
    title = takeaways.disk(model)
    most = max(max(s.total, s.db_path or 0.0) for _, s in rows) or 1.0
    exponent = 3 if most >= 2 * 2**30 else 2 if most >= 2**20 else 1
    unit, scale = {1: "KiB", 2: "MiB", 3: "GiB"}[exponent], 1024.0**exponent
    step = _nice(most / scale / 4)
    data = bars.Bars(
        unit=unit,
        parts=(("documents", "documents"), ("indexes", "indexes"), ("folders", "journal, oplog, config …")),
        bars=tuple(
            bars.Bar(
                _row(model, p),
                (s.data / scale, s.index / scale, max(0.0, (s.db_path or 0.0) - s.total) / scale),
                fmt.number(max(s.total, s.db_path or 0.0) / scale),
            )
            for p, s in rows
        ),
        limit=most / scale * 1.01,
        ticks=tuple((n * step, f"{n * step:g}") for n in range(int(most / scale / step) + 1)),
    )
    columns = (
        model.axis_label,
        "documents, MiB",
        "indexes, MiB",
        "all folders, MiB",
        "most documents of a shard / mean",
    )
    cells = tuple((p.label, fmt.mib(s.data), fmt.mib(s.index), fmt.mib(s.db_path), fmt.factor(s.skew)) for p, s in rows)
    return Content(
        title,
        "Compressed documents and indexes as MongoDB reports them, and what else lies in the folders of all processes.",
        f"Stacked bars. {title}. " + "; ".join(f"{p.label}: {fmt.size(s.total)}" for p, s in rows[:24]),
        DataTable(columns, cells),
        lambda: bars.draw(title, "on disk after the load, all processes of a point", data),
    )


def _nice(step: float) -> float:
    """The next of 1, 2, 5, 10 … times a power of ten."""
    import math  # noqa: PLC0415

    power = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(power * n for n in (1, 2, 5, 10) if step <= power * n * (1 + 1e-9))


def order(model: ReportModel) -> Content | None:
    """Every repetition at the time it was taken: a machine that changes shows as a slope."""
    rows: list[tuple[float, PointReport, bars.Dot]] = []
    for point in model.points:
        figures = model.figures(point)
        if figures is None or figures.estimate is None or figures.estimate.value == 0:
            continue
        label = f"{point.x:g}" if point.x is not None and len(model.series) == 1 else point.id
        for m in figures.measurements:
            if m.valid and m.value is not None and m.started is not None:
                dot = bars.Dot(m.value / figures.estimate.value - 1, label, m.purpose == "drift")
                rows.append((m.started, point, dot))
    if not any(abs(dot.deviation) > 0 for _, _, dot in rows):
        return None
    rows.sort(key=lambda row: row[0])
    start = model.started or rows[0][0]
    title = takeaways.order(model)
    named = model.axis_label if model.axis and len(model.series) == 1 else "point"
    again = any(dot.drift for _, _, dot in rows)
    return Content(
        title,
        f"Each dot is a repetition; the grey band is ±{fmt.per_cent(DRIFT)}. A slope would mean a machine that changes."
        + (" The diamond is the first point, repeated at the end." if again else ""),
        f"Scatter chart. {title}.",
        DataTable(
            ("minutes", "point", "difference from the median, %"),
            tuple((f"{(at - start) / 60:.1f}", p.label, f"{dot.deviation * 100:+.1f}") for at, p, dot in rows),
        ),
        lambda: bars.timeline(title, "every repetition against its point", named, [d for _, _, d in rows], DRIFT),
    )


ALL: dict[str, Callable[[ReportModel], Content | None]] = {
    "speed-up": speed_up,
    "time": query_time,
    "cpu": cpu,
    "roles": roles,
    "load": load_rate,
    "disk": disk,
    "order": order,
}
