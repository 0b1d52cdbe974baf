"""The page: one HTML file with everything in it, made from the model, the pictures and a template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING

from microshard.analysis.advice import over_others, price
from microshard.analysis.contrasts import counted
from microshard.analysis.curve_distance import CurveDistance
from microshard.analysis.report_model import PointReport, ReportModel
from microshard.analysis.scaling import Refused, UslFit
from microshard.experiment.question import SHARDS_AXIS
from microshard.model.plan import Point
from microshard.model.run_records import Diagnostics, LogSummary
from microshard.records.differences import flat
from microshard.report import format as fmt
from microshard.report import headline, tables
from microshard.report.figures.style import COLOURS

if TYPE_CHECKING:
    from microshard.report.figures import Picture

ALIKE, SIMILAR = 1.1, 1.5  # distance between curves, times, below which their shapes are called so
_MOST_LOGS = 400  # rows; logs/POINT/summary.json has them all
_MOST_INVALID = 500  # rows of the list; figures.csv has them all
_PER_PROCESS_OPTIONS = {
    "net.port", "net.bindIp", "storage.dbPath", "systemLog.path", "processManagement.pidFilePath",
    "replication.replSetName",
}  # fmt: skip
_HOST = {"cpu": "CPU", "ram_mib": "RAM", "python": "Python"}
_ROLE_NAMES = {"shard": "shards", "member": "members", "standalone": "server", "config": "config servers"}


def page(model: ReportModel, pictures: list[Picture]) -> str:
    """The whole page as text; it loads nothing from elsewhere."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - the command line starts without it
    from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["svg"] = Markup  # drawn by us, text in it is escaped
    template = environment.from_string(_asset("report.html.j2"))
    return template.render(
        model=model,
        fmt=fmt,
        css=Markup(_style()),  # noqa: S704 - our own file
        headline=headline.headline(model),
        tiles=list(tiles(model)),
        pictures=pictures,
        rows=[(point, model.figures(point)) for point in model.points],
        summary=tables.summary_columns(model),
        scaling=list(scaling(model)),
        configuration=configuration(model),
        caches=caches(model),
        tables=tables.of(model),
        differences=tables.differences(model),
        method=list(method(model)),
        options=options,
        logs=log_rows(model),
        price=price(model.advice, fmt.duration(model.advice.seconds)) if model.advice else "",
        over=list(over_others(model.advice)) if model.advice else [],
        invalid=[entry for point in model.points for entry in point.invalid][:_MOST_INVALID],
        levels={level: [n for n in model.notices if n.level == level] for level in ("error", "warning", "note")},
    )


def live_page() -> str:
    """The page of `microshard watch`, which asks for its numbers itself."""
    return _asset("watch.html").replace("/* style */", _style())


def _asset(name: str) -> str:
    return resources.files("microshard.report").joinpath("assets", name).read_text(encoding="utf-8")


def _style() -> str:
    """The style of all pages: the palette of the pictures as variables, then the rules."""
    return _palette() + _asset("report.css")


def _palette() -> str:
    """The colours of the pictures as CSS variables, light and dark."""
    light = "".join(f"--{role}:{pair[0]};" for role, pair in COLOURS.items())
    dark = "".join(f"--{role}:{pair[1]};" for role, pair in COLOURS.items())
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


def tiles(model: ReportModel) -> Iterator[tuple[str, str, str]]:
    """The few figures a reader looks for first: value, name, note."""
    rows = [(p, f, e, f.speed_up) for p, f, e in counted(model) if f.speed_up is not None]
    if rows and model.axis in {SHARDS_AXIS, None}:
        shards = model.axis == SHARDS_AXIS
        best, figures, estimate, speed = max(rows, key=lambda row: row[3].value)
        advice, which = model.advice, "best speed-up"
        if advice is not None:  # the recommended point, which need not be that of the largest factor
            axes = advice.setting | {SHARDS_AXIS: advice.count}
            best, figures, estimate, speed = next((row for row in rows if row[0].axes == axes), rows[0])
            which = "speed-up"
        several, times = shards and len(rows) > 1, f" {fmt.TIMES}"
        span = speed.interval
        between = f"{fmt.factor(span.low)} to {fmt.factor(span.high)}" if span and span.low != span.high else ""
        if several:
            yield fmt.factor(speed.value) + times, f"{which}, {best.label}", between
        if shards or len(rows) == 1:
            yield fmt.with_unit(estimate.value, figures.unit), f"{figures.metric}, {best.label}", ""
        if figures.efficiency is not None and several:
            cores = figures.efficiency_of_cores
            note = f"{fmt.per_cent(cores.value)} of the cores" if cores is not None else ""
            yield fmt.per_cent(figures.efficiency.value), f"efficiency at {best.label}", note
        if best.published_speed_up is not None and several:
            yield fmt.factor(best.published_speed_up) + times, f"published, {best.label}", "another machine"
    given = [point.answers for point in model.points if point.answers != "none"]
    if given:
        wrong = given.count("differs")
        yield f"{wrong} differ" if wrong else "all equal", "answers", f"{fmt.count(len(given), 'point')} compared"


def scaling(model: ReportModel) -> Iterator[str]:
    """What the Universal Scalability Law and the published curve say, in sentences."""
    usl, distance = model.usl, model.distance
    if isinstance(usl, UslFit):
        yield (
            f"Universal Scalability Law: contention σ = {fmt.spread(usl.sigma)}, "
            f"coherency κ = {fmt.spread(usl.kappa)}; the fit is at most {fmt.per_cent(usl.misfit)} off at a point."
        )
        if usl.knee is not None:
            note = f" ({usl.knee_note})" if usl.knee_note else ""
            yield (
                f"Its knee, beyond which more shards are slower, is at {fmt.spread(usl.knee, digits=2)} shards{note}; "
                "the interval reflects repetition variance only, not whether the law holds."
                + _beside_cores(model, usl.knee.value)
            )
        else:
            yield f"No knee is claimed: {usl.knee_note}."
    elif isinstance(usl, Refused):
        yield f"The Universal Scalability Law is not fitted: {usl.reason}."
    if isinstance(distance, CurveDistance):
        yield _shape(model, distance)


def _beside_cores(model: ReportModel, knee: float) -> str:
    """The law smooths over the cores: its knee may lie beyond the shards from which on they are full."""
    if not model.cores or knee <= model.cores:
        return ""
    return f" It does not know the {fmt.count(model.cores, 'core')}, from which on the curve above is another one."


def _shape(model: ReportModel, distance: CurveDistance) -> str:
    """The distance between the measured and the published curve in words."""
    apart = distance.distance.value
    where = "below" if distance.bias < 1 else "above"
    size, ratio = distance.ratios[-1]
    last = f"{size:g} {model.axis_label}"
    end = f"at {last} the measured curve has {fmt.factor(ratio)} {fmt.TIMES} what the published one has gained"
    like = "nearly the shape" if apart < ALIKE else "about the shape" if apart < SIMILAR else "not the shape"
    return (
        f"Both from the same start, the measured curve has {like} of the published one: it lies {fmt.factor(apart)} "
        f"{fmt.TIMES} {where} it on average (1 is the same shape); {end}."
    )


def configuration(model: ReportModel) -> list[tuple[str, list[tuple[str, str]]]]:
    """What was measured on what: groups of names and values."""
    first = model.points[0].plan if model.points else None
    host = {_HOST.get(k, k.replace("_", " ")): v for k, v in model.host.items() if v not in (None, "")}
    if isinstance(ram := host.get("RAM"), int | float):
        host["RAM"] = f"{ram:,.0f} MiB"
    groups = [
        ("Topology", list(_topology(model, first))),
        ("Host", [(name, str(value)) for name, value in host.items()]),
        ("Versions", [(k, v) for k, v in model.versions.items() if v]),
        ("Hashes (SHA-256)", list(model.hashes.items())),
        ("Run", list(_run(model, first))),
    ]
    return [(name, rows) for name, rows in groups if rows]


def _topology(model: ReportModel, first: Point | None) -> Iterator[tuple[str, str]]:
    storage = model.definition.topology.storage
    yield "kind", ", ".join(dict.fromkeys(point.topology.replace("_", " ") for point in model.points))
    shards = list(dict.fromkeys(point.shards for point in model.points if point.shards))
    if shards:
        yield "shards", ", ".join(map(str, shards[:24]))
    if model.embedded is not None and shards:
        version = model.versions.get("MongoDB", "")
        embedded = (
            f"MongoDB {version} behind microshard's embedded router, which hands each operation to the routing code of "
            "a mongod; not a mongos of MongoDB"
        )
        yield "router", embedded if model.embedded else f"mongos {version} of MongoDB"
    for name in ("engine", "block_compressor", "journal_compressor"):
        if storage.get(name):
            yield name.replace("_", " "), str(storage[name])
    if first is None:
        return
    for collection in first.collections:
        key = ", ".join(f"{k}: {v}" for k, v in collection.shard_key.items())
        split = "pre-split before the load" if collection.chunks else "initial chunks by MongoDB"
        yield "collection", f"{collection.namespace}, shard key {{{key}}}, {split}"
    if first.balancer:
        yield "balancer", "on" if first.balancer.get("enabled") else "off"
    if first.network_compressors:
        yield "network compressors", ", ".join(first.network_compressors)


def _run(model: ReportModel, first: Point | None) -> Iterator[tuple[str, str]]:
    yield "run", model.run_id
    yield "created", fmt.moment(model.created)
    if model.started is not None and model.ended is not None:
        yield "first to last phase", fmt.duration(model.ended - model.started)
    yield "measurements", f"{model.steps_done:,} of {model.steps_planned:,}"
    for phase in first.phases if first else ():
        known = {k: v for k, v in phase.parameters.items() if isinstance(v, str | int | float) and v != ""}
        shown = ", ".join(f"{name} {value}" for name, value in known.items())
        yield f"phase {phase.name}", f"{phase.engine}: {shown}"


def caches(model: ReportModel) -> fmt.PageTable:
    """The cache arithmetic by point: processes times MiB each = MiB in all, share of RAM. Equal points once."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for label, cache in ((point.label, point.plan.cache) for point in model.points if point.plan is not None):
        way = " (through the engine's config string)" if cache.through_config_string else ""
        each, total = fmt.number(cache.per_process_mib), fmt.number(cache.total_mib)
        share = f"{fmt.number(cache.total_mib / cache.ram_mib * 100, 2)} % of RAM" if cache.ram_mib else ""
        sums = f"{cache.processes:,} {fmt.TIMES} {each} MiB = {total} MiB"
        rows.setdefault((cache.policy + way, sums, share), []).append(label)
    shown = (
        (labels[0] if len(labels) == 1 else f"{labels[0]} and {fmt.count(len(labels) - 1, 'other')}", *key)
        for key, labels in rows.items()
    )
    return fmt.PageTable(("point", "policy", "WiredTiger caches of one host", "share"), tuple(shown))


def method(model: ReportModel) -> Iterator[str]:
    """How it was measured, in sentences."""
    every = [m for p in model.points for f in p.phases.values() for m in f.measurements]
    yield (
        f"A repetition is one execution of the workload's measured phase at one point; its value is the {model.metric} "
        f"the engine reports. The figure of a point is the median of its valid repetitions ({model.repetitions} "
        "planned)."
    )
    order = model.definition.order
    policy = {
        "interleaved": "Repetitions are interleaved: every point once in a shuffled order, then every point again",
        "random": "All repetitions of all points are taken in one random order",
        "sequential": "All repetitions of a point are taken before the next point",
    }.get(order.policy)
    if model.advice is not None:
        yield (
            "The points were chosen one after the other from what was measured before (microshard advise, seed "
            f"{model.advice.request.seed}), not in the order of the experiment."
        )
    elif policy:
        seed = f" (seed {order.seed})" if order.seed is not None else ""
        again = any(m.purpose == "drift" for m in every)
        yield policy + seed + ("; the first point comes once more at the end, to show drift." if again else ".")
    redeploy = model.plan.redeploy if model.plan else ""
    if redeploy == "per_point":
        yield (
            "Each point is deployed and loaded once. While another point is measured its processes are paused "
            "(SIGSTOP), so that they use no CPU but keep their memory and caches."
        )
    elif redeploy == "per_repetition":
        yield "Each point is deployed and loaded anew before every repetition, and removed after it."
    restored = [m for m in every if m.data == "restored" and m.result.kind == "measure"]
    if restored:
        yield (
            f"{len(restored)} of {sum(m.result.kind == 'measure' for m in every)} measurements were taken on data that "
            "were not loaded but restored from data images (docs/data-images.md)."
        )
    ways = {m.result.notes.get("cache", "") for m in every} - {""}
    if ways:
        yield "Cache before the measurement: " + "; ".join(sorted(ways)) + "."
    routed = [m.result.details["routing"] for m in every if "routing" in m.result.details]
    sent = [(way["toShards"], way["toRouterMongod"]) for way in routed]
    if shares := [straight / (straight + forwarded) for straight, forwarded in sent if straight + forwarded]:
        low, high = fmt.per_cent(min(shares)), fmt.per_cent(max(shares))
        yield (
            f"The embedded mongos sent {low if low == high else f'{low} to {high}, by measurement,'} of the operations "
            "straight to their shard, the others through its router mongod (topology.mongos.point_operations)."
        )
    yield (
        "Intervals are bootstrap intervals at a nominal 95 % (percentile form below eight repetitions, BCa from "
        "there). "
        "With n repetitions they cover the true median in at most 1 \N{MINUS SIGN} 2^(1\N{MINUS SIGN}n) of runs: "
        "75 % for three, 94 % for five."
    )
    yield (
        "The answers of all measurements that ask the same question are compared; one that differs makes its "
        "measurement invalid, and it is not counted."
    )


def log_rows(model: ReportModel) -> fmt.PageTable:
    """What the logs of each point's processes say, those of a role together: their sums and costliest slow operation.

    A process with errors has a row of its own.
    """
    rows: list[tuple[PointReport, str, LogSummary]] = []
    for point in model.points:
        roles = {process.name: process.role for process in point.plan.processes} if point.plan else {}
        kinds: dict[str, list[tuple[str, LogSummary]]] = {}
        for name, counts in point.logs.items():
            kinds.setdefault(name if counts.errors else roles.get(name, name), []).append((name, counts))
        for kind, found in kinds.items():
            name = found[0][0] if len(found) == 1 else f"{len(found)} {_ROLE_NAMES.get(kind, f'{kind} processes')}"
            rows.append((point, name, _added([counts for _, counts in found])))
    columns: dict[str, Callable[..., str]] = {"point": lambda p, *_: p.label, "process": lambda _, name, _c: name}
    for head, of in (
        ("slow operations", "slow"), ("connections opened", "connections"), ("at one time", "connections_max"),
        ("elections won", "elections"), ("migrations begun", "migrations"), ("warnings", "warnings"),
        ("errors", "errors"),
    ):  # fmt: skip
        columns[head] = lambda _p, _n, counts, of=of: f"{getattr(counts, of):,}" if getattr(counts, of) else fmt.NONE
    for head, shown in _OF_DIAGNOSTICS.items():
        columns[head] = lambda _p, _n, counts, shown=shown: (
            shown(counts.diagnostics) if counts.diagnostics else fmt.NONE
        )
    columns["costliest slow operation"] = lambda _p, _n, counts: _costliest(counts)
    return fmt.table(rows[:_MOST_LOGS], columns)


_OF_DIAGNOSTICS: dict[str, Callable[[Diagnostics], str]] = {
    "longest standstill or pause": lambda d: f"{_longest_standstill(d):.1f} s" if d.standstills else fmt.NONE,
    "longest checkpoint": lambda d: f"{d.checkpoint_longest:.1f} s" if d.checkpoint_longest else fmt.NONE,
    "most dirty cache": lambda d: fmt.per_cent(d.dirty_share_max) if d.dirty_share_max else fmt.NONE,
    "evicted by operations": lambda d: f"{d.evicted_by_operations:,}" if d.evicted_by_operations else fmt.NONE,
}


def _longest_standstill(seen: Diagnostics) -> float:
    return max((gap.seconds for gap in seen.standstills), default=0.0)


def _added(found: Sequence[LogSummary]) -> LogSummary:
    total = LogSummary(connections_max=max(one.connections_max for one in found))
    for name in ("slow", "connections", "elections", "migrations", "warnings", "errors"):
        setattr(total, name, sum(getattr(one, name) for one in found))
    known = [one.diagnostics for one in found if one.diagnostics is not None]
    if known:
        total.diagnostics = replace(
            max(known, key=_longest_standstill),
            checkpoint_longest=max(one.checkpoint_longest for one in known),
            dirty_share_max=max(one.dirty_share_max for one in known),
            evicted_by_operations=sum(one.evicted_by_operations for one in known),
        )
    total.shapes = sorted((one for counts in found for one in counts.shapes[:1]), key=lambda one: -one.longest)[:1]
    return total


def _costliest(counts: LogSummary) -> str:
    for one in counts.shapes:
        words = " ".join(word for word in (one.operation, one.namespace, one.shape, one.plan) if word)
        return f"{words}: {fmt.count(one.count, 'time')}, longest {one.longest} ms"
    return fmt.NONE


def options(point: PointReport) -> list[tuple[str, list[str]]]:
    """By role, the options its processes have in common, as `key: value`; ports, paths and names are in the table."""
    shared: dict[str, dict[str, str]] = {}
    for process in point.plan.processes if point.plan else ():
        given = flat(process.options).items()
        every = {key: _as_text(value) for key, value in given if key not in _PER_PROCESS_OPTIONS}
        known = shared.setdefault(process.role, every)
        shared[process.role] = {key: value for key, value in known.items() if every.get(key) == value}
    return [
        (_ROLE_NAMES.get(role, role), [f"{k}: {v}" for k, v in keys.items()]) for role, keys in shared.items() if keys
    ]


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
