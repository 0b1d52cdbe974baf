"""The picture of a search: which shard counts were tried in which order, and how the answer became certain."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from microshard.analysis.advice import point_name, setting_name, shards
from microshard.analysis.report_model import ReportModel
from microshard.model.advice import Advice, TriedCount
from microshard.report import format as fmt
from microshard.report.figures import lines
from microshard.report.figures.content import Content, in_words
from microshard.report.figures.style import SERIES
from microshard.search.shard_count import Recommendation, SearchSettings, recommend

_WORDS = {"bracket": "doubling", "narrow": "beside the best", "repeat": "repetition"}
_MOST_TIMES = 12.0  # an interval beyond is cut off: of the first measurements it may be anything


def of_search(model: ReportModel) -> Content | None:
    """The counts in the order they were measured, and below the gain of the recommended count after each."""
    advice = model.advice
    if advice is None:
        return None
    tried = [(number, each) for number, each in enumerate(advice.tried, start=1) if each.value is not None]
    after = dict(_answers(advice))
    mine = advice.request.settings.index(advice.setting)
    point = point_name(advice.request, mine, advice.count)
    title = f"{point[0].upper()}{point[1:]} after {fmt.count(len(tried), 'measurement')}"
    dropped = ", and a setting that is not measured any more was dropped" if len(advice.request.settings) > 1 else ""
    columns = {
        "measurement": lambda number, _each: str(number),
        "setting": lambda _number, each: setting_name(advice.request.settings[each.setting]),
        "shards": lambda _number, each: str(each.count),
        f"{advice.metric}, {advice.unit}": lambda _number, each: fmt.number(each.value),
        "why": lambda _number, each: _WORDS.get(each.why, each.why),
        "best so far": lambda number, _each: str(after[number].count),
        "its gain": lambda number, _each: _gain(after[number]),
    }
    if len(advice.request.settings) == 1:
        del columns["setting"]
    table = fmt.table(tried, columns)
    return Content(
        title,
        f"Above the shard count of each measurement in the order they were made; the ring is the recommended count"
        f"{dropped}. Below how many times as fast as {shards(advice.base)} the best count so far is, with its interval "
        f"of {fmt.per_cent(advice.request.certainty)}: it closes in as measurements are repeated.",
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
    settings = advice.request.settings
    mine = settings.index(advice.setting)
    found = [
        _counts_of(advice, [(n, each) for n, each in tried if each.setting == setting], setting, mine)
        for setting in range(len(settings))
    ]
    places = tuple(float(number) for number, each in tried if each.setting == mine)
    gains = [after[int(number)].gain for number in places]
    best = lines.Line(
        "best so far",
        "measured",
        places,
        tuple(gain.value for gain in gains),
        spans=tuple((gain.low, min(gain.high, _MOST_TIMES)) for gain in gains),
        mark="o",
    )
    return (
        lines.Panel("shards (hollow: a repetition)", tuple(line for line in found if line.x)),
        lines.Panel(f"times as fast as {shards(advice.base)}", (best,)),
    )


def _counts_of(advice: Advice, tried: list[tuple[int, TriedCount]], setting: int, mine: int) -> lines.Line:
    """The counts of one setting; the ring is at the last measurement of the recommended point."""
    places = tuple(float(number) for number, _ in tried)
    rings = [float(number) for number, each in tried if setting == mine and each.count == advice.count]
    name = setting_name(advice.request.settings[setting])
    return lines.Line(
        name or "tried",
        "measured" if setting == mine else SERIES[1 + setting % (len(SERIES) - 1)],
        places,
        tuple(float(each.count) for _, each in tried),
        hollow=frozenset(float(number) for number, each in tried if each.why == "repeat"),
        ringed=rings[-1] if rings else None,
        mark="o" if setting == mine else "D",
    )


def _answers(advice: Advice) -> Iterator[tuple[int, Recommendation]]:
    """What the search would have said of a measurement's setting after it."""
    request = advice.request
    settings = SearchSettings(
        tuple(request.counts), advice.better, request.most, request.most_each, request.certainty, request.tolerance
    )
    measured: defaultdict[int, dict[int, list[float]]] = defaultdict(dict)
    for number, each in enumerate(advice.tried, start=1):
        if each.value is not None:
            measured[each.setting].setdefault(each.count, []).append(each.value)
            yield number, recommend(settings, measured[each.setting])


def _gain(found: Recommendation) -> str:
    gain = found.gain
    return f"{fmt.span(gain.value, gain.low, gain.high)} {fmt.TIMES}"
