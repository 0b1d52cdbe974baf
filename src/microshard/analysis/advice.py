"""The answer of a search in words: a sentence, why it stops there, what would change it, the sweep that checks it."""

import json
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from microshard.analysis.verdict import most_frequent
from microshard.experiment.question import SHARDS_AXIS, axis_label, value_text
from microshard.model.advice import Advice, CountFigures, Gain, OtherSetting, SearchRequest
from microshard.model.result import Metric, StepResult
from microshard.search.scores import Ratio, Scores
from microshard.search.shard_count import Ended, Recommendation, SearchSettings, recommend

# Bottleneck → what is said of the counts it limits, and what would change the answer.
_FULL: Mapping[str, tuple[str, str]] = {
    "CPU": ("the CPU is full", "more cores: what limits is the CPU, and each shard uses one for a query"),
    "disk IOPS": ("the disk's IOPS are used up", "volumes with more IOPS, or documents that fit into the cache"),
    "disk throughput": ("the disk's throughput is used up", "faster volumes, or a block compressor that reads less"),
    "cache": ("the WiredTiger cache is too small", "more cache for each shard"),
    "memory": ("the host is short of RAM", "more RAM, or less cache for each shard"),
    "steal": ("the hypervisor takes CPU away", "instances with a fixed CPU share, or more of their size"),
    "replication": ("the other members are slower than the primary", "members as fast as the primary"),
    "checkpoint": ("checkpoints take operations their time", "faster volumes, or less data written"),
    "connection pool": ("a mongos has no free connections to shards", "a larger pool, or more mongos"),
    "client": ("the client is at its limit", "more client hosts or threads: the shards were not the limit"),
    "router": ("the router is at its limit", "more mongos: the shards were not the limit"),
    "lock or ticket": ("operations wait for locks or tickets", "more tickets, or documents that conflict less"),
    "network": ("the network is at its limit", "a faster link, or a network compressor"),
    "skew": ("one shard has most of the work", "a shard key that spreads the documents evenly"),
}


def advice_of(
    request: SearchRequest,
    settings: SearchSettings,
    values: Mapping[tuple[int, int], Sequence[float]],
    results: Mapping[tuple[int, int], Sequence[StepResult]],
    metric: Metric,
    ended: Ended,
    left: Collection[int] = (0,),
) -> Advice:
    """The advice from valid values and results by setting and count; its price and what was tried the caller adds.

    `left`: the settings of which one is recommended; the others were dropped.
    """
    every = Scores(values, settings.better, settings.certainty)
    inside = [each for each in every.centres if each[0] in left] or list(every.centres)
    setting = max(inside, key=lambda each: every.centres[each])[0]
    mine = {count: found for (number, count), found in values.items() if number == setting}
    limits = {count: _limit(each, request.phase) for (n, count), each in results.items() if n == setting}
    found = recommend(settings, mine)
    scores = Scores(mine, settings.better, settings.certainty)
    others = _others(request, every, (setting, found.count))
    unclear = [each.name for each in others if each.alike and each.behind.high - 1 > request.tolerance]
    reasons, changes = _why(found, limits)
    advice = Advice(
        sentence="",
        count=found.count,
        base=found.base,
        gain=Gain(found.gain.value, found.gain.low, found.gain.high),
        alike=list(found.alike),
        close=list(found.close),
        known=ended.known and not unclear,
        ended=f"what was measured does not rule out {_unclear(unclear)}" if ended.known and unclear else ended.reason,
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        spread=found.spread,
        measurements=0,
        seconds=0.0,
        request=request,
        figures=[_figures(n, mine[n], scores, found.best, limits.get(n, "")) for n in sorted(mine)],
        reasons=reasons,
        changes=changes,
        check=_check(request, found, setting, others),
        setting=request.settings[setting],
        others=others,
    )
    advice.sentence = sentence(advice)
    return advice


def _unclear(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} other settings"


def _others(
    request: SearchRequest, scores: Scores[tuple[int, int]], recommended: tuple[int, int]
) -> list[OtherSetting]:
    """Each other setting at its best count, the best first."""
    best: dict[int, tuple[int, int]] = {}
    for candidate in sorted(scores.centres, key=lambda each: -scores.centres[each]):
        if candidate[0] != recommended[0]:
            best.setdefault(candidate[0], candidate)
    found = []
    for candidate in best.values():
        ratio = scores.ratio(recommended, candidate)
        found.append(
            OtherSetting(
                name=setting_name(request.settings[candidate[0]]),
                count=candidate[1],
                measurements=sum(len(v) for (n, _), v in scores.values.items() if n == candidate[0]),
                behind=Gain(ratio.value, ratio.low, ratio.high),
                alike=not scores.worse(candidate, recommended),
            )
        )
    return found


def sentence(advice: Advice) -> str:
    """The answer: the count, its gain with the interval, the counts that are as good, and what limits beyond."""
    parts = list(_about_counts(advice)) if len(advice.request.counts) > 1 else []
    for other in advice.others[:1]:
        behind, at = other.behind, other.name
        if len(advice.request.counts) > 1:
            at += f" at its best ({shards(other.count)})"
        times = f"{behind.value:.2g} × {at} [{behind.low:.2g}–{behind.high:.2g}]"
        parts.append(f"{at} cannot be distinguished here" if other.alike else times)
    parts += advice.reasons[:1]
    if not advice.known:
        parts.append(f"not known to {advice.request.certainty:.0%}".replace("%", " %") + f": {advice.ended}")
    return f"{point_name(advice.request, advice.request.settings.index(advice.setting), advice.count)}: " + "; ".join(
        parts
    )


def _about_counts(advice: Advice) -> Iterator[str]:
    gain, base = advice.gain, shards(advice.base) if advice.base > 1 else "one shard"
    others = [n for n in advice.alike if n != advice.count]
    if advice.count == advice.base:
        yield "no other count is faster beyond doubt" if others else "more shards are slower"
    else:
        # Of two single measurements nobody knows how much they scatter: an interval would only look like one.
        repeated = all(each.measurements > 1 for each in advice.figures if each.count in {advice.count, advice.base})
        certainty = f"[{gain.low:.2g}–{gain.high:.2g}]" if repeated else "(not repeated: no interval)"
        yield f"{gain.value:.2g} × {base} {certainty}"
    if others:
        yield f"{_span(advice.alike, advice.figures)} cannot be distinguished here{_fewer(advice)}"
    elif len(advice.close) > 1:
        yield f"{_span(advice.close, advice.figures)} are within {advice.request.tolerance:.0%}".replace("%", " %")


def _fewer(advice: Advice) -> str:
    """What the fewest shards that cannot be distinguished are slower by so far, where others are recommended."""
    fewest = min(advice.alike)
    if fewest >= advice.count:
        return ""
    value = {each.count: each.value for each in advice.figures}
    times = value[fewest] / value[advice.count] if advice.better == "lower" else value[advice.count] / value[fewest]
    return f" ({fewest}, the fewest of them, so far {times - 1:.0%} slower)".replace("%", " %")


def price(advice: Advice, took: str) -> str:
    """What the answer cost; `took` is the duration in words."""
    request = advice.request
    return f"{took}, {advice.measurements} of {request.grid} measurements of the full grid"


def over_others(advice: Advice) -> Iterator[str]:
    """How many times as fast the recommended point is as each other setting, in sentences without a full stop."""
    for other in advice.others:
        gain, times = other.behind, "measurement" if other.measurements == 1 else "measurements"
        at = f", best at {shards(other.count)}" if len(advice.request.counts) > 1 else ""
        between = f"[{gain.low:.2g}–{gain.high:.2g}]"
        yield f"Over {other.name}: {gain.value:.2g} × {between} ({other.measurements} {times}{at})"


def shards(count: int) -> str:
    """`1 shard`, `4 shards`."""
    return f"{count} shard{'' if count == 1 else 's'}"


def point_name(request: SearchRequest, setting: int, count: int) -> str:
    """`4 shards`, `4 shards, block compressor zlib`; without the count where it is not searched."""
    counted = shards(count) if len(request.counts) > 1 else ""
    return ", ".join(filter(None, (counted, setting_name(request.settings[setting]))))


def setting_name(setting: Mapping[str, Any]) -> str:
    """`zlib, readahead sectors 32`: texts and mappings by themselves, numbers with what they count."""
    return ", ".join(
        f"{axis_label(key)} {value_text(value)}" if isinstance(value, bool | int | float) or value is None
        else value_text(value) for key, value in setting.items()
    )  # fmt: skip


def _span(counts: Sequence[int], measured: Sequence[CountFigures]) -> str:
    """`2 to 6` where every count measured between is one of them, else `1, 2 and 8`."""
    between = [each.count for each in measured if counts[0] <= each.count <= counts[-1]]
    if len(counts) > 2 and between == list(counts):
        return f"{counts[0]} to {counts[-1]}"
    return f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}"


def _limit(results: Sequence[StepResult], phase: str) -> str:
    found = [p.verdict.name for r in results for p in r.phases if p.name == phase and p.verdict is not None]
    return most_frequent([name for name in found if name != "unknown"])


def _why(found: Recommendation, limits: Mapping[int, str]) -> tuple[list[str], list[str]]:
    """Sentences on what limits the recommended count and those beyond, and on what would change that."""
    here, beyond = limits.get(found.count, ""), [limits[n] for n in sorted(limits) if n > found.count]
    after = most_frequent([name for name in beyond if name])
    reasons: list[str] = []
    if here in _FULL:
        reasons.append(f"{_FULL[here][0]} there" + (" and beyond" if after == here else ""))
    if after in _FULL and after != here:
        reasons.append(f"{_FULL[after][0]} beyond")
    changes = [_FULL[name][1] for name in dict.fromkeys((here, after)) if name in _FULL]
    if not changes:
        changes = ["a longer measurement or more operations at a time: no resource was seen at its limit"]
    return reasons, changes


def _figures(count: int, values: Sequence[float], scores: Scores[int], best: int, limit: str) -> CountFigures:
    """The median of a count, with the interval of its ratio to the best one around it."""
    middle = statistics.median(values)
    ratio = scores.ratio(count, best) if count != best else Ratio(1.0, 1.0, 1.0)
    factors = sorted((ratio.low / ratio.value, ratio.high / ratio.value))
    return CountFigures(count, middle, middle * factors[0], middle * factors[1], len(values), limit)


def _check(request: SearchRequest, found: Recommendation, setting: int, others: Sequence[OtherSetting]) -> str:
    """The sweep that would check the answer: the count, its measured neighbours and the base, six times each.

    With the recommended setting and the one that comes second.
    """
    counts = request.counts
    place = counts.index(found.count)
    near = {found.base, found.best, *counts[max(place - 1, 0) : place + 2], *found.alike}
    names = {setting_name(values): values for values in request.settings}
    chosen = [request.settings[setting], *(names[other.name] for other in others[:1])]
    axes = {key: _unique(values[key] for values in chosen) for key in chosen[0]}
    axes |= {SHARDS_AXIS: sorted(near)} if len(counts) > 1 else {}
    matrix = ", ".join(f"{key}: {json.dumps(values)}" for key, values in axes.items())
    return (
        f"matrix: {{{matrix}}}\nrepetitions: 6  # the fewest whose range covers the median with 95 %\n"
        f"order: {{policy: interleaved, seed: {request.seed + 1}}}\n"
    )


def _unique(values: Iterable[Any]) -> list[Any]:
    """Each value once, in its order; values may be mappings."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
