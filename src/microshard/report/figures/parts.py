"""Pictures of what a point is made of: CPU by kind and by role, disk use, and the order of the measurements."""

from __future__ import annotations

from microshard.analysis.report_model import CpuSplit, PointReport, ReportModel
from microshard.report import format as fmt
from microshard.report import takeaways
from microshard.report.checks import DRIFT
from microshard.report.figures import bars
from microshard.report.figures.content import Content, DataTable, nice, row_labels, subtitle_of

CPU_PARTS = (("user", "user"), ("sys", "system"), ("iowait", "I/O wait"), ("idle", "idle"))
ROLES = (
    ("shards", "shards"),
    ("router", "router"),
    ("client", "client"),
    ("config", "config"),
    ("others", "others"),
)


def cpu(model: ReportModel) -> Content | None:
    """How the cores spent their time while the main phase ran, the published split below each bar."""
    rows = [(p, f.cpu) for p, f in takeaways.measured(model) if f.cpu is not None]
    if not rows:
        return None
    title = takeaways.cpu(model)
    reference = model.reference
    with_reference = reference is not None and any(r.cpu for r in reference.points) and len(model.series) == 1
    published: dict[str, CpuSplit] = {}
    if with_reference and reference is not None:
        published = {p.id: r.cpu for p, _ in rows if (r := reference.at(p.x)) is not None and r.cpu is not None}
    labels = row_labels(model)
    data = bars.Bars(
        unit="share of all cores, %",
        parts=CPU_PARTS,
        bars=tuple(bars.Bar(labels[p.id], _shares(c), "", _shares(published.get(p.id))) for p, c in rows),
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
            subtitle_of(model, f"CPU while measuring {model.metric}, %" + ("; thin: published" if published else "")),
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
    labels = row_labels(model)
    data = bars.Bars(
        unit=f"cores; dotted: all {model.cores} of the host" if model.cores else "cores",
        parts=ROLES,
        bars=tuple(
            bars.Bar(labels[p.id], tuple(use.get(role, 0.0) for role, _ in ROLES), fmt.number(sum(use.values()), 2))
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
        "the embedded router, its mongod. Others: what else ran on the host.",
        f"Stacked bars. {title}. "
        + "; ".join(f"{p.label}: {fmt.number(sum(use.values()), 2)} cores" for p, use in rows[:24]),
        DataTable(columns, cells),
        lambda: bars.draw(title, subtitle_of(model, f"cores used while measuring {model.metric}"), data),
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
    step = nice(most / scale / 4)
    labels = row_labels(model)
    data = bars.Bars(
        unit=unit,
        parts=(("documents", "documents"), ("indexes", "indexes"), ("folders", "journal, oplog, config …")),
        bars=tuple(
            bars.Bar(
                labels[p.id],
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


def order(model: ReportModel) -> Content | None:
    """Every repetition at the time it was taken: a machine that changes shows as a slope."""
    rows: list[tuple[float, PointReport, bars.Dot]] = []
    for point in model.points:
        figures = model.figures(point)
        if figures is None or figures.estimate is None or figures.estimate.value == 0:
            continue
        label = f"{point.x:g}" if point.x is not None and len(model.series) == 1 else point.id
        for m in figures.measurements:
            if m.valid and m.value is not None and m.result.started:
                dot = bars.Dot(m.value / figures.estimate.value - 1, label, m.purpose == "drift")
                rows.append((m.result.started, point, dot))
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
