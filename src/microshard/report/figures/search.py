"""The picture of a search: which shard counts were tried in which order, and how the answer became certain."""

from collections.abc import Iterator
from functools import partial

from microshard.analysis.advice import shards
from microshard.analysis.report_model import ReportModel
from microshard.model.advice import Advice, TriedCount
from microshard.report import format as fmt
from microshard.report.figures import lines
from microshard.report.figures.content import Content, in_words
from microshard.search.shard_count import Recommendation, SearchSettings, recommend

_WORDS = {"bracket": "doubling", "narrow": "beside the best", "repeat": "repetition", "earlier": "before resuming"}
_MOST_TIMES = 12.0  # an interval beyond is cut off: of the first measurements it may be anything


def of_search(model: ReportModel) -> Content | None:
    """The counts in the order they were measured, and below the gain of the recommended count after each."""
    advice = model.advice
    if advice is None:
        return None
    tried = [(number, each) for number, each in enumerate(advice.tried, start=1) if each.value is not None]
    after = dict(_answers(advice))
    title = f"{shards(advice.count).capitalize()} after {fmt.count(len(tried), 'measurement')}"
    columns = {
        "measurement": lambda number, _each: str(number),
        "shards": lambda _number, each: str(each.count),
        f"{advice.metric}, {advice.unit}": lambda _number, each: fmt.number(each.value),
        "why": lambda _number, each: _WORDS.get(each.why, each.why),
        "best so far": lambda number, _each: str(after[number].count),
        "its gain": lambda number, _each: _gain(after[number]),
    }
    table = fmt.table(tried, columns)
    return Content(
        title,
        f"Above the shard count of each measurement in the order they were made; the ring is the recommended count. "
        f"Below how many times as fast as {shards(advice.base)} the best count so far is, with its interval of "
        f"{fmt.per_cent(advice.request.certainty)}: it closes in as measurements are repeated.",
        in_words("Two line charts", title, (f"{n}: {shards(each.count)}" for n, each in tried)),
        table,
        partial(
            lines.draw,
            subtitle=f"{len(tried)} of {advice.request.grid} measurements of the full grid",
            axis="measurement",
            panels=_panels(advice, tried, after),
            as_written=False,
        ),
    )


def _panels(
    advice: Advice, tried: list[tuple[int, TriedCount]], after: dict[int, Recommendation]
) -> tuple[lines.Panel, lines.Panel]:
    places = tuple(float(number) for number, _ in tried)
    last = max((place for place, (_, each) in zip(places, tried, strict=True) if each.count == advice.count), default=0)
    counts = lines.Line(
        "tried",
        "measured",
        places,
        tuple(float(each.count) for _, each in tried),
        hollow=frozenset(p for p, (_, each) in zip(places, tried, strict=True) if each.why == "repeat"),
        ringed=last,
        mark="o",
    )
    gains = [after[number].gain for number, _ in tried]
    best = lines.Line(
        "best so far",
        "measured",
        places,
        tuple(gain.value for gain in gains),
        spans=tuple((gain.low, min(gain.high, _MOST_TIMES)) for gain in gains),
        mark="o",
    )
    return (
        lines.Panel("shards (hollow: a repetition)", (counts,)),
        lines.Panel(f"times as fast as {shards(advice.base)}", (best,)),
    )


def _answers(advice: Advice) -> Iterator[tuple[int, Recommendation]]:
    """What the search would have said after each measurement."""
    request = advice.request
    settings = SearchSettings(
        tuple(request.counts), advice.better, request.most, request.most_each, request.certainty, request.tolerance
    )
    measured: dict[int, list[float]] = {}
    for number, each in enumerate(advice.tried, start=1):
        if each.value is not None:
            measured.setdefault(each.count, []).append(each.value)
            yield number, recommend(settings, measured)


def _gain(found: Recommendation) -> str:
    gain = found.gain
    return f"{fmt.span(gain.value, gain.low, gain.high)} {fmt.TIMES}"
