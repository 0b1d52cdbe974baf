"""What some engines report besides their metric (docs/contracts.md), over the repetitions of a phase.

Percentiles come from the merged histograms of all repetitions that count: the percentile of a percentile is none. A
curve over time cannot be averaged over repetitions; it is that of the witness, the repetition in the middle.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from microshard.analysis.read_run import items, mapping, number, text

if TYPE_CHECKING:
    from microshard.analysis.report_model import Measurement

PARTS = ("figures", "windows", "latency", "series", "stages", "rungs", "table")
PERCENTILES = ("50", "90", "95", "99", "99.9")
INTENDED = "Intended-"
KNEE = "threads at the knee"
ALL = "ALL"  # of a rung: all operations together


@dataclass(frozen=True, slots=True)
class Middle:
    """Median of the repetitions with their range; no interval, so that hundreds of them cost nothing."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure besides the metric."""

    name: str
    unit: str
    better: str
    middle: Middle


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency of one kind of operation, µs."""

    count: int
    percentiles: Mapping[str, float]
    highest: float | None
    merged: bool  # of the merged histograms; else medians of the repetitions' percentiles
    n: int  # repetitions


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung of the thread ladder."""

    threads: int
    middle: Middle  # throughput
    p95: float | None  # µs, all operations
    p99: float | None
    limited: str = ""  # client, router or host where most repetitions say so
    said: int = 0  # repetitions that say so


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of something that goes on in stages, medians."""

    name: str
    seconds: Middle
    size: float | None  # bytes
    documents: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """Lines over time."""

    name: str
    unit: str
    stacked: bool
    t: tuple[float, ...]  # s since the phase started
    lines: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Windows:
    """Operations a second in windows of equal length."""

    seconds: float
    rates: tuple[float, ...]

    @property
    def variation(self) -> float | None:
        """Standard deviation over mean; None of fewer than three windows."""
        mean = statistics.fmean(self.rates) if len(self.rates) > 2 else 0.0
        return statistics.stdev(self.rates) / mean if mean > 0 else None


@dataclass(frozen=True, slots=True)
class Table:
    """Anything else worth a table."""

    columns: tuple[tuple[str, str], ...]  # name, unit
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class PhaseDetails:
    """All of it for one phase of one point."""

    figures: tuple[Figure, ...] = ()
    latency: Mapping[str, Latency] = field(default_factory=dict)  # by operation, Intended-… among them
    rungs: tuple[Rung, ...] = ()  # by threads
    knee: int | None = None  # threads
    stages: tuple[Stage, ...] = ()
    witness: str = ""  # the step that the next three are of
    series: tuple[Series, ...] = ()
    windows: Windows | None = None
    table: Table | None = None


def parts_of(phase: Mapping[str, Any]) -> dict[str, Any]:
    """The optional parts of a PhaseResult, unread."""
    return {name: phase[name] for name in PARTS if phase.get(name)}


def further(good: Sequence[Measurement]) -> PhaseDetails | None:
    """What the repetitions that count say besides their metric; None where they say nothing."""
    told = [m for m in good if m.parts]
    if not told:
        return None
    parts = [m.parts for m in told]
    witness = _witness(told)
    return replace(
        figures_of(parts),
        witness=witness.step,
        series=tuple(_series(items(witness.parts.get("series")))),
        windows=_windows(mapping(witness.parts.get("windows"))),
        table=_table(mapping(witness.parts.get("table"))),
    )


def figures_of(parts: Sequence[Mapping[str, Any]]) -> PhaseDetails:
    """What does not come from a witness, of the parts of each repetition."""
    figures = _figures(parts)
    rungs = _rungs(parts)
    return PhaseDetails(
        figures=figures,
        latency=_latencies([mapping(part.get("latency")) for part in parts]),
        rungs=rungs,
        knee=_knee(figures, rungs),
        stages=_stages(parts),
    )


def _witness(told: Sequence[Measurement]) -> Measurement:
    """The repetition in the middle; of two in the middle the lower."""
    ranked = sorted(told, key=lambda m: m.value if m.value is not None else 0.0)
    return ranked[(len(ranked) - 1) // 2]


def middle(values: Iterable[float | None]) -> Middle | None:
    """Median and range of what is there."""
    known = sorted(value for value in values if value is not None)
    return Middle(statistics.median(known), known[0], known[-1], len(known)) if known else None


def _value(values: Iterable[float | None]) -> float | None:
    found = middle(values)
    return None if found is None else found.value


def _by_name(parts: Sequence[Mapping[str, Any]], part: str) -> dict[str, list[dict[str, Any]]]:
    """Entries with the same name of all repetitions, in the order they come first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for told in parts:
        for entry in map(mapping, items(told.get(part))):
            if text(entry.get("name")):
                found.setdefault(text(entry["name"]), []).append(entry)
    return found


def _figures(parts: Sequence[Mapping[str, Any]]) -> tuple[Figure, ...]:
    return tuple(
        Figure(name, text(entries[0].get("unit")), text(entries[0].get("better")), found)
        for name, entries in _by_name(parts, "figures").items()
        if (found := middle(number(entry.get("value")) for entry in entries)) is not None
    )


def _stages(parts: Sequence[Mapping[str, Any]]) -> tuple[Stage, ...]:
    """Stages by name. One that comes several times in a repetition, such as an attempt that was lost, is added up."""
    added = [
        {"stages": [_added(name, entries) for name, entries in _by_name([told], "stages").items()]} for told in parts
    ]
    return tuple(
        Stage(
            name,
            found,
            _value(number(entry.get("bytes")) for entry in entries),
            _value(number(entry.get("documents")) for entry in entries),
        )
        for name, entries in _by_name(added, "stages").items()
        if (found := middle(number(entry.get("seconds")) for entry in entries)) is not None
    )


def _added(name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    sums: dict[str, Any] = {"name": name}
    for key in ("seconds", "bytes", "documents"):
        known = [v for entry in entries if (v := number(entry.get(key))) is not None]
        if known:
            sums[key] = sum(known)
    return sums


def _rungs(parts: Sequence[Mapping[str, Any]]) -> tuple[Rung, ...]:
    every = [mapping(rung) for told in parts for rung in items(told.get("rungs"))]
    known = [(int(threads), rung) for rung in every if (threads := number(rung.get("threads"))) is not None]
    rungs = []
    for threads, group in groupby(sorted(known, key=lambda row: row[0]), key=lambda row: row[0]):
        group_rungs = [rung for _, rung in group]
        # A rung that was not limited by the servers says nothing about them: it is not averaged with those that were.
        same = [rung for rung in group_rungs if not text(rung.get("limited"))] or group_rungs
        found = middle(number(rung.get("value")) for rung in same)
        if found is None:
            continue
        limits = Counter(text(rung.get("limited")) for rung in same)
        most, said = limits.most_common(1)[0]
        rungs.append(Rung(threads, found, _slow(same, "95"), _slow(same, "99"), most, said if most else 0))
    return tuple(rungs)


def _slow(rungs: Sequence[Mapping[str, Any]], percentile: str) -> float | None:
    """Median over repetitions of a percentile of all operations; of one kind where only that kind was done."""
    values = []
    for latency in (mapping(rung.get("latency")) for rung in rungs):
        entry = latency.get(ALL)
        if ALL not in latency:
            own = [name for name in latency if not name.startswith(INTENDED)]
            entry = latency[own[0]] if len(own) == 1 else None
        values.append(number(mapping(mapping(entry).get("percentiles")).get(percentile)))
    return _value(values)


def _knee(figures: Sequence[Figure], rungs: Sequence[Rung]) -> int | None:
    """Threads at the knee as the engine's rule says, of several repetitions the rung nearest their median."""
    told = next((figure.middle.value for figure in figures if figure.name == KNEE), None)
    if told is None or not rungs:
        return None
    return min(rungs, key=lambda rung: abs(rung.threads - told)).threads


def _latencies(every: Sequence[Mapping[str, Any]]) -> dict[str, Latency]:
    names = sorted(
        dict.fromkeys(name for one in every for name in one),
        key=lambda name: (name.removeprefix(INTENDED), name.startswith(INTENDED)),
    )
    found = {}
    for name in names:
        entries = [mapping(one[name]) for one in every if name in one]
        latency = _latency([entry for entry in entries if number(entry.get("count"))])
        if latency is not None:
            found[name] = latency
    return found


def _latency(entries: Sequence[Mapping[str, Any]]) -> Latency | None:
    if not entries:
        return None
    count = sum(int(number(entry.get("count")) or 0) for entry in entries)
    highest = max((v for entry in entries if (v := number(entry.get("max"))) is not None), default=None)
    packed = [text(entry.get("histogram")) for entry in entries]
    merged = _merged_percentiles(packed) if len(entries) > 1 and all(packed) else None
    if merged is None:
        shares = [mapping(entry.get("percentiles")) for entry in entries]
        merged = {p: v for p in PERCENTILES if (v := _value(number(share.get(p)) for share in shares)) is not None}
        return Latency(count, merged, highest, len(entries) == 1, len(entries)) if merged else None
    return Latency(count, merged, highest, True, len(entries))


def _merged_percentiles(packed: Sequence[str]) -> dict[str, float] | None:
    """Percentiles of several encoded histograms as one; None when one of them cannot be read."""
    from microshard.workloads.recording import merged_percentiles  # noqa: PLC0415 - the command line starts without hdrh

    return merged_percentiles(packed)


def _series(told: Sequence[Any]) -> Iterable[Series]:
    for entry in map(mapping, told):
        t = [number(at) for at in items(entry.get("t"))]
        lines = {
            text(name): tuple(number(v) for v in items(values))
            for name, values in mapping(entry.get("lines")).items()
            if len(items(values)) == len(t)
        }
        if t and lines and all(at is not None for at in t):
            yield Series(
                text(entry.get("name")),
                text(entry.get("unit")),
                entry.get("stacked") is True,
                tuple(at for at in t if at is not None),
                lines,
            )


def _windows(told: Mapping[str, Any]) -> Windows | None:
    seconds = number(told.get("seconds"))
    values = [v for v in map(number, items(told.get("values"))) if v is not None]
    return Windows(seconds, tuple(v / seconds for v in values)) if seconds and values else None


def _table(told: Mapping[str, Any]) -> Table | None:
    columns = tuple((text(c.get("name")), text(c.get("unit"))) for c in map(mapping, items(told.get("columns"))))
    rows = tuple(tuple(items(row)) for row in items(told.get("rows")) if len(items(row)) == len(columns))
    return Table(columns, rows) if columns and rows else None
