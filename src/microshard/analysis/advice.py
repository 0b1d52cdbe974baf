"""The answer of a search in words: a sentence, why it stops there, what would change it, the sweep that checks it."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence

from microshard.analysis.verdict import most_frequent
from microshard.model.advice import Advice, CountFigures, Gain, SearchRequest
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
    values: Mapping[int, Sequence[float]],
    results: Mapping[int, Sequence[StepResult]],
    metric: Metric,
    ended: Ended,
) -> Advice:
    """The advice from valid values and results by count; its price and what was tried are added by the caller."""
    found = recommend(settings, values)
    scores = Scores(values, settings.better, settings.certainty)
    limits = {count: _limit(each, request.phase) for count, each in results.items()}
    reasons, changes = _why(found, limits)
    advice = Advice(
        sentence="",
        count=found.count,
        base=found.base,
        gain=Gain(found.gain.value, found.gain.low, found.gain.high),
        alike=list(found.alike),
        close=list(found.close),
        known=ended.known,
        ended=ended.reason,
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        spread=found.spread,
        measurements=0,
        seconds=0.0,
        request=request,
        figures=[_figures(n, values[n], scores, found.best, limits.get(n, "")) for n in sorted(values)],
        reasons=reasons,
        changes=changes,
        check=_check(request, found),
    )
    advice.sentence = sentence(advice)
    return advice


def sentence(advice: Advice) -> str:
    """The answer: the count, its gain with the interval, the counts that are as good, and what limits beyond."""
    head = f"{shards(advice.count)}: "
    gain, base = advice.gain, shards(advice.base) if advice.base > 1 else "one shard"
    others = [n for n in advice.alike if n != advice.count]
    if advice.count == advice.base:
        head += "no other count is faster beyond doubt" if others else "more shards are slower"
    else:
        # Of two single measurements nobody knows how much they scatter: an interval would only look like one.
        repeated = all(each.measurements > 1 for each in advice.figures if each.count in {advice.count, advice.base})
        certainty = f"[{gain.low:.2g}–{gain.high:.2g}]" if repeated else "(not repeated: no interval)"
        head += f"{gain.value:.2g} × {base} {certainty}"
    parts = [head]
    if others:
        parts.append(f"{_span(advice.alike, advice.figures)} cannot be distinguished here")
    elif len(advice.close) > 1:
        parts.append(
            f"{_span(advice.close, advice.figures)} are within {advice.request.tolerance:.0%}".replace("%", " %")
        )
    parts += advice.reasons[:1]
    if not advice.known:
        parts.append(f"not known to {advice.request.certainty:.0%}".replace("%", " %") + f": {advice.ended}")
    return "; ".join(parts)


def price(advice: Advice, took: str) -> str:
    """What the answer cost; `took` is the duration in words."""
    request = advice.request
    return f"{took}, {advice.measurements} of {request.grid} measurements of the full grid"


def shards(count: int) -> str:
    """`1 shard`, `4 shards`."""
    return f"{count} shard{'' if count == 1 else 's'}"


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


def _figures(count: int, values: Sequence[float], scores: Scores, best: int, limit: str) -> CountFigures:
    """The median of a count, with the interval of its ratio to the best one around it."""
    middle = statistics.median(values)
    ratio = scores.ratio(count, best) if count != best else Ratio(1.0, 1.0, 1.0)
    factors = sorted((ratio.low / ratio.value, ratio.high / ratio.value))
    return CountFigures(count, middle, middle * factors[0], middle * factors[1], len(values), limit)


def _check(request: SearchRequest, found: Recommendation) -> str:
    """The sweep that would check the answer: the count, its measured neighbours and the base, six times each."""
    return "\n".join(_lines(request, found)) + "\n"


def _lines(request: SearchRequest, found: Recommendation) -> Iterator[str]:
    counts = request.counts
    place = counts.index(found.count)
    near = {found.base, found.best, *counts[max(place - 1, 0) : place + 2], *found.alike}
    yield f"matrix: {{topology.shards.count: {json.dumps(sorted(near))}}}"
    yield "repetitions: 6  # the fewest whose range covers the median with 95 %"
    yield f"order: {{policy: interleaved, seed: {request.seed + 1}}}"
