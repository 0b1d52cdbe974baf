"""What some engines report besides their metric (docs/contracts.md), over the repetitions of a phase.

Percentiles come from the merged histograms of all repetitions that count: percentiles cannot be averaged. Neither can
curves over time: they are those of the representative repetition, the one with the median result.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol, TypeVar

from microshard.model.result import INTENDED, Latency, PhaseResult, Rung, Series, Stage, Table, Windows

PERCENTILES = ("50", "90", "95", "99", "99.9")
KNEE = "threads at the knee"
ALL = "ALL"  # of a rung: all operations together


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


@dataclass(frozen=True, slots=True)
class MedianRange:
    """Median of the repetitions with their range; no interval, so that hundreds of them cost nothing."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class FigureSummary:
    """A figure besides the metric."""

    name: str
    unit: str
    better: str
    range: MedianRange


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Latency of one kind of operation, µs."""

    count: int
    percentiles: Mapping[str, float]
    highest: float | None
    merged: bool  # of the merged histograms; else medians of the repetitions' percentiles
    n: int  # repetitions


@dataclass(frozen=True, slots=True)
class RungSummary:
    """A rung of the thread ladder."""

    threads: int
    range: MedianRange  # throughput
    p95: float | None  # µs, all operations
    p99: float | None
    limited: str = ""  # client, router or host where most repetitions were limited by it
    limited_in: int = 0  # repetitions that were


@dataclass(frozen=True, slots=True)
class StageSummary:
    """A stage, medians."""

    name: str
    seconds: MedianRange
    size: float | None  # bytes
    documents: float | None


@dataclass(frozen=True, slots=True)
class PhaseDetails:
    """All of it for one phase of one point."""

    figures: tuple[FigureSummary, ...] = ()
    latency: Mapping[str, LatencySummary] = field(default_factory=dict)  # by operation, Intended-… among them
    rungs: tuple[RungSummary, ...] = ()  # by threads
    knee: int | None = None  # threads
    stages: tuple[StageSummary, ...] = ()
    representative: str = ""  # the step that the next three are of
    series: tuple[Series, ...] = ()
    windows: Windows | None = None
    table: Table | None = None


def phase_details(steps: Sequence[tuple[str, PhaseResult]]) -> PhaseDetails:
    """Details over the repetitions that count, each with the name of its step."""
    detailed = [(step, phase) for step, phase in steps if _has_details(phase)]
    if not detailed:
        return PhaseDetails()
    ranked = sorted(detailed, key=lambda row: row[1].metric.value if row[1].metric else 0.0)
    step, chosen = ranked[(len(ranked) - 1) // 2]  # of two in the middle the lower
    table, windows = chosen.table, chosen.windows
    if table is not None:
        table = replace(table, rows=[row for row in table.rows if len(row) == len(table.columns)])
    return replace(
        figures_of([phase for _, phase in detailed]),
        representative=step,
        series=tuple(s for s in map(_complete, chosen.series) if s.t and s.lines),
        windows=windows if windows is not None and windows.rates else None,
        table=table if table is not None and table.columns and table.rows else None,
    )


def _has_details(phase: PhaseResult) -> bool:
    return any(
        (
            phase.figures,
            phase.server_latency,
            phase.windows,
            phase.latency,
            phase.series,
            phase.stages,
            phase.rungs,
            phase.table,
        )
    )


def _complete(series: Series) -> Series:
    """Without lines that do not have a value for every time."""
    return replace(series, lines={name: v for name, v in series.lines.items() if len(v) == len(series.t)})


def figures_of(phases: Sequence[PhaseResult]) -> PhaseDetails:
    """The details that are figures over repetitions, without those of the representative one."""
    figures = tuple(
        FigureSummary(name, metrics[0].unit, metrics[0].better, found)
        for name, metrics in _by_name(metric for phase in phases for metric in phase.figures).items()
        if (found := median_range(metric.value for metric in metrics)) is not None
    )
    figures += tuple(_in_servers(phases))
    rungs = tuple(_rungs([rung for phase in phases for rung in phase.rungs]))
    return PhaseDetails(
        figures=figures,
        latency=_latencies([phase.latency for phase in phases]),
        rungs=rungs,
        knee=_knee(figures, rungs),
        stages=tuple(_stages(phases)),
    )


def _in_servers(phases: Sequence[PhaseResult]) -> Iterable[FigureSummary]:
    """What operations took in the mongods, beside what the client saw."""
    for kind in dict.fromkeys(kind for phase in phases for kind in phase.server_latency):
        found = [phase.server_latency[kind] for phase in phases if kind in phase.server_latency]
        named = {"mean": [one.mean for one in found], "p99 at most": [one.percentiles.get("99") for one in found]}
        for name, values in named.items():
            if (span := median_range(values)) is not None:
                yield FigureSummary(f"{kind} in the mongods, {name}", "us", "lower", span)


def median_range(values: Iterable[float | None]) -> MedianRange | None:
    """Median and range of the values that are known and finite."""
    known = sorted(value for value in values if value is not None and math.isfinite(value))
    return MedianRange(statistics.median(known), known[0], known[-1], len(known)) if known else None


def _median(values: Iterable[float | None]) -> float | None:
    found = median_range(values)
    return None if found is None else found.value


def _by_name(entries: Iterable[N]) -> dict[str, list[N]]:
    """Entries by name, in the order they come first."""
    found: dict[str, list[N]] = {}
    for entry in entries:
        found.setdefault(entry.name, []).append(entry)
    return found


def _stages(phases: Sequence[PhaseResult]) -> Iterable[StageSummary]:
    """Stages by name. One that comes several times in a repetition, such as a failed attempt, is added up."""
    added = [_added(name, stages) for phase in phases for name, stages in _by_name(phase.stages).items()]
    for name, stages in _by_name(added).items():
        if (seconds := median_range(stage.seconds for stage in stages)) is not None:
            yield StageSummary(name, seconds, _median(s.bytes for s in stages), _median(s.documents for s in stages))


def _added(name: str, stages: Sequence[Stage]) -> Stage:
    def total(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return Stage(
        name, total(s.seconds for s in stages), total(s.bytes for s in stages), total(s.documents for s in stages)
    )


def _rungs(every: Sequence[Rung]) -> Iterable[RungSummary]:
    for threads, group in groupby(sorted(every, key=lambda rung: rung.threads), key=lambda rung: rung.threads):
        rungs = list(group)
        # A rung that was not limited by the servers says nothing about them: it is not averaged with those that were.
        same = [rung for rung in rungs if not rung.limited] or rungs
        throughput = median_range(rung.value for rung in same)
        if throughput is None:
            continue
        limit, count = Counter(rung.limited or "" for rung in same).most_common(1)[0]
        p95, p99 = (_median(_percentile(rung, percentile) for rung in same) for percentile in ("95", "99"))
        yield RungSummary(threads, throughput, p95, p99, limit, count if limit else 0)


def _percentile(rung: Rung, percentile: str) -> float | None:
    """A percentile of all operations of a rung; of one kind where only that kind was done."""
    kinds = [name for name in rung.latency if not name.startswith(INTENDED)]
    name = ALL if ALL in rung.latency else kinds[0] if len(kinds) == 1 else None
    return None if name is None else rung.latency[name].percentiles.get(percentile)


def _knee(figures: Sequence[FigureSummary], rungs: Sequence[RungSummary]) -> int | None:
    """Threads at the knee by the engine's rule; over several repetitions the rung nearest their median."""
    knee = next((figure.range.value for figure in figures if figure.name == KNEE), None)
    return None if knee is None or not rungs else min(rungs, key=lambda rung: abs(rung.threads - knee)).threads


def _latencies(every: Sequence[Mapping[str, Latency]]) -> dict[str, LatencySummary]:
    names = sorted(
        dict.fromkeys(name for one in every for name in one),
        key=lambda name: (name.removeprefix(INTENDED), name.startswith(INTENDED)),
    )
    summaries = {name: _latency([one[name] for one in every if name in one and one[name].count]) for name in names}
    return {name: found for name, found in summaries.items() if found is not None}


def _latency(entries: Sequence[Latency]) -> LatencySummary | None:
    if not entries:
        return None
    highest = max((entry.max for entry in entries if entry.max is not None), default=None)
    packed = [entry.histogram or "" for entry in entries]
    merged = _merged_percentiles(packed) if len(entries) > 1 and all(packed) else None
    shares = merged or {p: v for p in PERCENTILES if (v := _median(e.percentiles.get(p) for e in entries)) is not None}
    whole = merged is not None or len(entries) == 1
    return LatencySummary(sum(e.count for e in entries), shares, highest, whole, len(entries)) if shares else None


def _merged_percentiles(packed: Sequence[str]) -> dict[str, float] | None:
    """Percentiles of several encoded histograms together; None when one of them cannot be read."""
    from microshard.workloads.recording import merged_percentiles  # noqa: PLC0415 - the command line starts without hdrh

    return merged_percentiles(packed)
