"""How often `compare` calls equal runs different, how often it finds a slowdown of 10 %, and what intervals cover.

One mongod answers the same aggregation many times: as it is, as it is once more, and slowed down by a cap on its CPU
(`limits: {cpus}`, a control group) of 1/1.10 of a core, which is what one aggregation uses. The three follow one
another in an order shuffled each round, so that all see the same states of the machine. A repetition is the median of
nine queries, three seconds in all, as engine aggregate has it with `iterations: 9`.

Runs of five repetitions are drawn from all rounds, many times: what remains is the scatter, without its order. For
people, in a note: runs of five rounds beside those of the next five, which is what two runs one after the other are.

An interval should cover the figure of all rounds: that of `compare` the ratio of their geometric means, that of the
report their median. Of five values no interval of a median covers more than 93.75 % (their whole range).
"""

import random
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import bson
import numpy as np
from pymongo.collection import Collection
from tests.cluster.workloads.mongods import QUERY, start_mongod, stop_mongod

from bench.alone import alone, rounds, say, scratch, timed
from bench.findings import Findings, Row, Target
from microshard.analysis.bootstrap import median_estimate
from microshard.analysis.comparison import change, decide
from microshard.hostlib import process_limits
from microshard.hostlib.errors import HostError
from microshard.workloads.datasets import mot

REPETITIONS = 5
QUERIES = 9
SLOWDOWN = 1.10
NO_CAP = 8.0  # cores: more than one query could use
DRAWS, INTERVAL_DRAWS = 2000, 300
SEED = 3
Pair = tuple[Sequence[float], Sequence[float]]


def ask(collection: Collection[dict[str, Any]]) -> float:
    """A repetition, s."""
    return statistics.median(timed(lambda: list(collection.aggregate(QUERY["pipeline"]))) for _ in range(QUERIES))


def documents(number: int) -> Iterator[dict[str, Any]]:
    """The first so many inspections, as a load of them has them."""
    encoded, _ = mot.encode(mot.columns(0, number, SEED), np.arange(number, dtype=np.int64))
    yield from bson.decode_all(encoded)


def repetitions(folder: Path, number: int, least: int, seconds: float) -> dict[str, list[float]]:
    """Seconds of each repetition: base, again (the same), slower (with the cap). HostError where none can be set."""
    found: dict[str, list[float]] = {"base": [], "again": [], "slower": []}
    order = random.Random(7)
    place = str(folder / "p01" / "mongod")

    def cap(cores: float) -> list[str]:
        return process_limits.create(place, {"cpus": cores})

    groups = cap(NO_CAP)
    mongod = start_mongod(Path(place))
    try:
        for group in groups:
            (Path(group) / "cgroup.procs").write_text(str(mongod.pid()))
        with mongod.client() as client:
            collection = client.vosa.mot_results
            collection.insert_many(documents(number), ordered=False)
            ask(collection)
            for _ in rounds(least, 100, seconds):
                for name in order.sample(sorted(found), len(found)):
                    cap(1 / SLOWDOWN if name == "slower" else NO_CAP)
                    found[name].append(ask(collection))
    finally:
        stop_mongod(mongod)
        process_limits.remove(place, {"cpus": NO_CAP})
    return found


def different(pairs: Sequence[Pair], verdicts: set[str]) -> float:
    """The share, %, of pairs of runs with one of these verdicts, each compared by itself as a run of one point is."""
    called = [decide([change(base, other)], ["lower"])[0].verdict for base, other in pairs]
    return 100 * sum(verdict in verdicts for verdict in called) / len(pairs)


def in_turn(first: Sequence[float], second: Sequence[float]) -> list[Pair]:
    """Five repetitions of one, and the next five of the other."""
    starts = range(0, len(first) - 2 * REPETITIONS + 1, REPETITIONS)
    return [(first[n : n + REPETITIONS], second[n + REPETITIONS : n + 2 * REPETITIONS]) for n in starts]


def covered(draw: Callable[[], tuple[float, float] | None], truth: float) -> float:
    """The share, %, of drawn intervals that the truth lies in."""
    spans = [span for _ in range(INTERVAL_DRAWS) if (span := draw()) is not None]
    return 100 * sum(low <= truth <= high for low, high in spans) / len(spans)


def measure(quick: bool) -> Findings:
    """Besides: shares of false and of right verdicts, and coverage."""
    findings = Findings()
    with scratch() as folder:
        try:
            found = repetitions(folder, 20_000 if quick else 150_000, 2 * REPETITIONS, 20 if quick else 300)
        except HostError as error:
            findings.missing.append(f"other: what compare finds: {error}")
            return findings
    rng = random.Random(11)
    base, again, slower = (found[name] for name in ("base", "again", "slower"))
    true = statistics.geometric_mean(slower) / statistics.geometric_mean(base)
    scatter = statistics.stdev(base) / statistics.fmean(base)
    say(f"{len(base)} rounds of {statistics.median(base):.3f} s, slowed down to {true:.3f} ×, scatter {scatter:.1%}")

    def drawn(first: Sequence[float], second: Sequence[float]) -> Pair:
        return rng.sample(first, REPETITIONS), rng.sample(second, REPETITIONS)

    def of_ratio() -> tuple[float, float] | None:
        seen = change(*drawn(base, slower))
        return None if seen.low is None or seen.high is None else (seen.low, seen.high)

    def of_median() -> tuple[float, float] | None:
        span = median_estimate(rng.sample(base, REPETITIONS)).interval
        return None if span is None else (span.low, span.high)

    same = different([drawn(base, again) for _ in range(DRAWS)], {"better", "worse"})
    right = different([drawn(base, slower) for _ in range(DRAWS)], {"worse"})
    pairs = in_turn(base, again)
    note = (
        f"compare, {len(base)} rounds whose repetitions scatter by {scatter:.1%} (standard deviation / mean): of "
        f"{len(pairs)} runs one after the other {different(pairs, {'better', 'worse'}):.0f} % were called different "
        f"though equal, and {different(in_turn(base, slower), {'worse'}):.0f} % of the slower ones found"
    )
    slowed = f"{true - 1:.1%}".replace("%", " %")
    for name, share, target, more in (
        ("two equal runs called different", same, Target(5.0), note),
        (f"a slowdown of {slowed} by a cap on the CPU found", right, Target(95.0, most=False), ""),
        ("intervals of the ratio that cover it", covered(of_ratio, true), None, ""),
        ("intervals of a median that cover it", covered(of_median, statistics.median(base)), None, ""),
    ):
        row = Row(0, f"compare, runs of five repetitions: {name}", "", share, None, target, "%", note=more)
        findings.rows.append(row)
    return findings


if __name__ == "__main__":
    sys.exit(alone(measure))
