"""Pictures of what a point is made of: CPU by kind and by role, disk use, and the order of the measurements."""

from collections.abc import Callable
from functools import partial

from microshard.analysis.report_model import CpuSplit, PointReport, ReportModel
from microshard.report import format as fmt
from microshard.report import takeaways
from microshard.report.checks import DRIFT
from microshard.report.figures import bars
from microshard.report.figures.content import Content, in_words, row_labels, subtitle_of
from microshard.report.format import table

CPU_PARTS = (("user", "user"), ("sys", "system"), ("iowait", "I/O wait"), ("idle", "idle"))
ROLES = ("shards", "router", "client", "config", "others")


def cpu(model: ReportModel) -> Content | None:
    """How the cores spent their time while the main phase ran, the published split below each bar."""
    rows = [(p, f.cpu) for p, f, _ in model.measured() if f.cpu is not None]
    if not rows:
        return None
    title = takeaways.cpu(model)
    reference = model.published() if len(model.series) == 1 else None
    splits = {r.at: r.cpu for r in reversed(reference.points)} if reference else {}
    published = {p.id: split for p, _ in rows if p.x is not None and (split := splits.get(p.x)) is not None}
    labels = row_labels(model)
    data = bars.Bars(
        unit="share of all cores, %",
        parts=CPU_PARTS,
        bars=tuple(bars.Bar(labels[p.id], _shares(c), published=_shares(published.get(p.id))) for p, c in rows),
        shares=True,
    )
    columns: dict[str, Callable[..., str]] = {model.axis_label: lambda p, _: p.label}
    for n, name in enumerate(("user %", "system %", "I/O wait %", "idle %")):
        columns[name] = lambda _, c, n=n: f"{_shares(c)[n]:.0f}"
    for kind in ("user", "idle"):
        columns[f"published {kind} %"] = lambda p, _, kind=kind: fmt.percent(getattr(published.get(p.id), kind, None))
    note = f" The thin bar below is the published one ({reference.name})." if published and reference else ""
    thin = "; thin: published" if published else ""
    spoken = (f"{p.label}: user {fmt.percent(c.user)} %, idle {fmt.percent(c.idle)} %" for p, c in rows)
    return Content(
        title,
        f"How the host's cores spent their time while {model.metric} was measured; median of the repetitions.{note}",
        in_words("Stacked bars", title, spoken),
        table(rows, columns),
        partial(bars.draw, subtitle=subtitle_of(model, f"CPU while measuring {model.metric}, %{thin}"), data=data),
    )


def _shares(split: CpuSplit | None) -> tuple[float, ...]:
    """User, system, I/O wait and idle, %; stolen time counts as idle for us, another machine had it."""
    if split is None:
        return ()
    return tuple(share * 100 for share in (split.user, split.sys, split.iowait, split.idle + split.steal))


def roles(model: ReportModel) -> Content | None:
    """Which processes used the cores while the main phase ran."""
    rows = [(p, f.roles) for p, f, _ in model.measured() if f.roles]
    if not rows:
        return None
    title = takeaways.roles(model)
    labels = row_labels(model)
    used = {p.id: fmt.number(sum(use.values()), 2) for p, use in rows}
    data = bars.Bars(
        unit=f"cores; dotted: all {model.cores} of the host" if model.cores else "cores",
        parts=tuple((role, role) for role in ROLES),
        bars=tuple(bars.Bar(labels[p.id], tuple(use.get(role, 0.0) for role in ROLES), used[p.id]) for p, use in rows),
        mark=float(model.cores) if model.cores else None,
    )
    columns: dict[str, Callable[..., str]] = {model.axis_label: lambda p, _: p.label}
    for role in ROLES:
        columns[f"{role}, cores"] = lambda _, use, role=role: fmt.number(use.get(role), 2)
    columns["sum, cores"] = lambda p, _: used[p.id]
    return Content(
        title,
        f"Mean cores used by the processes of each kind while {model.metric} was measured. Router: mongos and, with "
        "the embedded router, its mongod. Others: what else ran on the host.",
        in_words("Stacked bars", title, (f"{p.label}: {used[p.id]} cores" for p, _ in rows)),
        table(rows, columns),
        partial(bars.draw, subtitle=subtitle_of(model, f"cores used while measuring {model.metric}"), data=data),
    )


def disk(model: ReportModel) -> Content | None:
    """What the documents, their indexes and all the rest take on disk."""
    rows = [(p, p.storage) for p in model.ordered if p.storage is not None]
    if not rows:
        return None
    title = takeaways.disk(model)
    most = max(max(s.total, s.db_path or 0.0) for _, s in rows)
    unit, scale = ("GiB", 2**30) if most >= 2 * 2**30 else ("MiB", 2**20) if most >= 2**20 else ("KiB", 2**10)
    labels = row_labels(model)
    parts = [(p, s.data, s.index, max(0.0, (s.db_path or 0.0) - s.total)) for p, s in rows]
    data = bars.Bars(
        unit=unit,
        parts=(("documents", "documents"), ("indexes", "indexes"), ("folders", "journal, oplog, config …")),
        bars=tuple(
            bars.Bar(labels[p.id], tuple(size / scale for size in sizes), fmt.number(sum(sizes) / scale))
            for p, *sizes in parts
        ),
    )
    columns: dict[str, Callable[..., str]] = {
        model.axis_label: lambda p, _: p.label,
        "documents, MiB": lambda _, s: fmt.mib(s.data),
        "indexes, MiB": lambda _, s: fmt.mib(s.index),
        "all folders, MiB": lambda _, s: fmt.mib(s.db_path),
        "most documents of a shard / mean": lambda _, s: fmt.factor(s.skew),
    }
    return Content(
        title,
        "Compressed documents and indexes as MongoDB reports them, and what else lies in the folders of all processes.",
        in_words("Stacked bars", title, (f"{p.label}: {fmt.size(s.total)}" for p, s in rows)),
        table(rows, columns),
        partial(bars.draw, subtitle="on disk after the load, all processes of a point", data=data),
    )


def order(model: ReportModel) -> Content | None:
    """Every repetition at the time it was taken: a machine that changes shows as a slope."""
    rows: list[tuple[float, PointReport, bars.Dot]] = []
    for point, figures, estimate in model.measured():
        label = f"{point.x:g}" if point.x is not None and len(model.series) == 1 else point.id
        for m in figures.measurements if estimate.value else ():
            if m.valid and m.value is not None and m.result.started:
                dot = bars.Dot(m.value / estimate.value - 1, label, m.purpose == "drift")
                rows.append((m.result.started, point, dot))
    if not any(abs(dot.deviation) > 0 for _, _, dot in rows):
        return None
    rows.sort(key=lambda row: row[0])
    start = model.started or rows[0][0]
    title = takeaways.order(model)
    axis = model.axis_label if model.axis and len(model.series) == 1 else "point"
    again = " The diamond is the first point, repeated at the end." if any(dot.drift for _, _, dot in rows) else ""
    columns: dict[str, Callable[..., str]] = {
        "minutes": lambda at, *_: f"{(at - start) / 60:.1f}",
        "point": lambda _, p, _dot: p.label,
        "difference from the median, %": lambda _, _p, dot: f"{dot.deviation * 100:+.1f}",
    }
    dots, subtitle = [dot for _, _, dot in rows], "every repetition against its point"
    return Content(
        title,
        f"Each dot is a repetition; the grey band is ±{fmt.per_cent(DRIFT)}. A slope would mean a machine that "
        f"changes.{again}",
        in_words("Scatter chart", title),
        table(rows, columns),
        partial(bars.timeline, subtitle=subtitle, axis=axis, dots=dots, band=DRIFT),
    )
