"""How often `compare` calls equal runs different, and how often it finds a slowdown of 10 %.

One mongod, two collections: documents, and the same with 10 % more of them. The same aggregation runs on both,
many times in turn (documents, documents again, more documents, in an order shuffled each round), so that all see the
same moods of the machine. A repetition is the median of a few queries, as engine aggregate has it. Runs of five
repetitions are formed three ways:

    beside     repetitions of the same rounds: two runs that were interleaved
    after      five rounds, then the next five: two runs one right after the other
    drawn      five at random of all rounds, many times: what remains is the scatter, without its order

A test at 5 % calls 5 % of equal runs different; what `after` has above it is the machine that changes between runs.
How far a query over 10 % more documents really is slower is given as the ratio of all medians.

    .venv/bin/python bench/compare_power.py [--rounds 60] [--documents 60000] [--queries 3] [--tolerance 0]
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import bson
import numpy as np
from pymongo.collection import Collection
from tests.cluster.workloads.mongods import QUERY, start_mongod, stop_mongod

from microshard.analysis.comparison import change, decide
from microshard.workloads.datasets import mot

REPETITIONS = 5
SEED = 3
DRAWS = 2000
MORE = 1.10
FALSE_LIMIT, FOUND_LIMIT = 0.10, 0.80
Pair = tuple[Sequence[float], Sequence[float]]


def ask(collection: Collection[dict[str, Any]], queries: int) -> float:
    """A repetition: the median time of so many queries, s."""
    seconds = []
    for _ in range(queries):
        started = time.perf_counter()
        list(collection.aggregate(QUERY["pipeline"]))
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def measure(rounds: int, documents: int, queries: int) -> dict[str, list[float]]:
    """Seconds of each repetition by query: base, again (the same), more (10 % more documents)."""
    found: dict[str, list[float]] = {"base": [], "again": [], "more": []}
    order = random.Random(7)
    with tempfile.TemporaryDirectory(prefix="microshard-bench-") as scratch:
        mongod = start_mongod(Path(scratch) / "mongod")
        try:
            with mongod.client() as client:
                collections = {"base": client.vosa.base, "again": client.vosa.base, "more": client.vosa.more}
                for name, number in (("base", documents), ("more", round(documents * MORE))):
                    batch = list(_documents(number))
                    collections[name].insert_many(batch, ordered=False)
                for name in found:
                    ask(collections[name], queries)
                for _ in range(rounds):
                    for name in order.sample(sorted(found), len(found)):
                        found[name].append(ask(collections[name], queries))
        finally:
            stop_mongod(mongod)
    return found


def _documents(number: int) -> Iterator[dict[str, Any]]:
    """The first so many inspections, as a load of them has them."""
    ids = np.arange(number, dtype=np.int64)
    encoded, _ = mot.encode(mot.columns(0, number, SEED), ids)
    yield from bson.decode_all(encoded)


def called(pairs: Sequence[Pair], tolerance: float) -> dict[str, int]:
    """Verdicts of pairs of runs, each compared by itself as a run of one point is."""
    counts: dict[str, int] = {}
    for base, other in pairs:
        verdict = decide([change(base, other, tolerance)], ["lower"])[0].verdict
        counts[verdict] = counts.get(verdict, 0) + 1
    return counts


def runs(values: Sequence[float]) -> list[Sequence[float]]:
    """Whole runs of consecutive repetitions."""
    return [values[n : n + REPETITIONS] for n in range(0, len(values) - REPETITIONS + 1, REPETITIONS)]


def pairs_of(found: dict[str, list[float]], rng: random.Random) -> dict[str, tuple[list[Pair], list[Pair]]]:
    """Way of forming runs → pairs of equal runs, pairs of a run and a slower one."""
    base, again, more = (runs(found[name]) for name in ("base", "again", "more"))

    def drawn(first: str, second: str) -> list[Pair]:
        return [(rng.sample(found[first], REPETITIONS), rng.sample(found[second], REPETITIONS)) for _ in range(DRAWS)]

    return {
        "beside": (list(zip(base, again, strict=True)), list(zip(base, more, strict=True))),
        "after": (list(zip(base, again[1:], strict=False)), list(zip(base, more[1:], strict=False))),
        "drawn": (drawn("base", "again"), drawn("base", "more")),
    }


def main() -> int:
    """Measure and print; 0 when equal runs are rarely called different and the slowdown is mostly found."""
    parser = argparse.ArgumentParser(description="How often compare errs, and how often it finds 10 %")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--documents", type=int, default=60_000)
    parser.add_argument("--queries", type=int, default=3, help="a repetition is the median of so many")
    parser.add_argument("--tolerance", type=float, default=0.0)
    given = parser.parse_args()
    if given.rounds < 2 * REPETITIONS:
        parser.error(f"--rounds: at least {2 * REPETITIONS} make two runs of {REPETITIONS} repetitions")
    found = measure(given.rounds, given.documents, given.queries)
    medians = {name: statistics.median(values) for name, values in found.items()}
    scatter = {name: statistics.stdev(values) / statistics.fmean(values) for name, values in found.items()}
    rows = {}
    for way, (equal, slower) in pairs_of(found, random.Random(11)).items():
        same, worse = called(equal, given.tolerance), called(slower, given.tolerance)
        rows[way] = {
            "equal_runs": len(equal),
            "called_different": (same.get("better", 0) + same.get("worse", 0)) / len(equal),
            "slower_runs": len(slower),
            "found": worse.get("worse", 0) / len(slower),
            "wrong_way": worse.get("better", 0) / len(slower),
        }
    slowdown = medians["more"] / medians["base"]
    print(json.dumps({"slowdown": slowdown, "scatter": scatter, "tolerance": given.tolerance, **rows}))
    print(f"slower by {slowdown - 1:.1%}; repetitions scatter by {scatter['base']:.1%} (standard deviation / mean)")
    for way, row in rows.items():
        print(
            f"{way:7} equal runs called different {row['called_different']:.1%} of {row['equal_runs']}, "
            f"slowdown found {row['found']:.1%} of {row['slower_runs']}"
        )
    drawn = rows["drawn"]
    return 0 if drawn["called_different"] <= FALSE_LIMIT and drawn["found"] >= FOUND_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
