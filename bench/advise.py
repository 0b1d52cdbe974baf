"""The search of `microshard advise` on surfaces from measured sweeps (besides): how often right, at what price.

The search was tuned on the first forty; of the others it has seen nothing, and nothing was changed to suit them. A
surface is the curve of a measured sweep, published or from a run, and the residuals of repetitions of real runs: as
they were on a busy machine, and scaled down to quieter ones. Between measured counts the curve is interpolated
monotonically (PCHIP); the search knows nothing of that. A measurement is the curve times a residual, drawn by seed.

On each surface the search chooses, and a full grid is drawn apart from it, six repetitions a count, the fewest whose
range covers the median with 95 %. The advice is *right* when this grid cannot tell with 95 % that another count is
better: when it is the grid's best or in the 95 % confidence set of the best. Beside it is what an oracle gets that
always names the best count of the curve, and the same for two other rules: the bootstrap interval of the ratio of the
two includes 1 (each comparison by itself), and the median of the advised count lies inside the interval of the best
median (which was chosen as the smallest of all, so it is too good, and an oracle fails as well). The price is compared
with a grid of three repetitions, as experiments have.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.interpolate import PchipInterpolator

from bench.alone import alone, say
from bench.findings import Findings, Target, absolute
from microshard.analysis.bootstrap import median_estimate, ratio_estimate
from microshard.search.scores import Better
from microshard.search.shard_count import Choice, SearchSettings, decide, doublings, recommend

GRID_REPETITIONS, TRUE_REPETITIONS = 3, 6
DRAWS = 60  # of each surface: a search and a grid

# Repetitions of two runs of quickstart with other programs on the machine's 2 cores, s: 120,000 records and 20,000.
BUSY = {
    1: (0.9164, 0.7619, 2.0859, 1.2412, 0.8218, 1.6458, 1.9177),
    2: (0.7513, 0.5934, 1.1423, 0.6778, 0.5686, 0.767, 0.5951),
    3: (0.766, 0.6533, 0.7611, 1.161, 0.6808, 1.1741, 0.8056),
    4: (0.5646, 0.5369, 0.6683, 0.6802, 0.5093, 0.5554, 0.6409),
    5: (0.6019, 0.4034, 0.5369, 0.5234, 0.6629, 0.6218, 0.4696),
    6: (0.5579, 0.434, 0.4606, 0.574, 0.4384, 0.5353, 0.9091),
    8: (0.4252, 0.4742, 0.5264, 0.477, 0.565, 0.432, 0.4623),
    10: (0.6667, 0.384, 0.413, 0.581, 0.4112, 0.4788, 0.5005),
}
SHORT = {
    1: (0.1965, 0.1476, 0.1916, 0.2725, 0.3204, 0.252, 0.6743, 0.2474, 0.199),
    2: (0.1438, 0.1451, 0.1321, 0.108, 0.1665, 0.1777, 0.2534, 0.1304, 0.1272),
    3: (0.1341, 0.1338, 0.1081, 0.1388, 0.1077, 0.1375, 0.2724, 0.1653, 0.1248),
    4: (0.0984, 0.1021, 0.1003, 0.1051, 0.1336, 0.1271, 0.1562, 0.1158, 0.095),
    5: (0.1917, 0.0777, 0.0757, 0.1058, 0.1341, 0.2959, 0.1627, 0.1288, 0.1014),
    6: (0.132, 0.0733, 0.0741, 0.0897, 0.1025, 0.15, 0.1377, 0.092, 0.0902),
    7: (0.1177, 0.0819, 0.0957, 0.0953, 0.1051, 0.1108, 0.1678, 0.1014, 0.0955),
    8: (0.0964, 0.0814, 0.0647, 0.0872, 0.0929, 0.0915, 0.2001, 0.0897, 0.1072),
}

Curve = Mapping[int, float]


def _medians(run: Mapping[int, Sequence[float]]) -> Curve:
    return {count: statistics.median(values) for count, values in run.items()}


# Name → whether more is better, and the measured curve by shard count.
CURVES: Mapping[str, tuple[Better, Curve]] = {
    "published, query time": ("lower", {1: 1392, 2: 931, 4: 512, 8: 276, 16: 215}),
    "published, load time": ("lower", {1: 88, 2: 68, 4: 68, 8: 67, 16: 66}),
    "600,000 records on 2 cores": ("lower", {1: 2.4, 2: 1.35, 4: 1.37, 8: 1.9}),
    "120,000 records, busy machine": ("lower", _medians(BUSY)),
    "20,000 records, busy machine": ("lower", _medians(SHORT)),
    # docs/benchmarks.md, row 5
    "load rate": ("higher", {1: 51129, 2: 64385, 16: 66813}),
    "load rate, mongods apart": ("higher", {1: 35694, 2: 41481, 16: 38921}),
    "load rate, encoded before": ("higher", {1: 83585, 2: 80448, 16: 69253}),
    "load rate, insert_many": ("higher", {1: 42015, 2: 39518, 16: 44359}),
    "load rate, JSON lines": ("higher", {1: 33032, 2: 30333, 16: 34402}),
}
# Not used for tuning. By connections instead of shards, or by shards where one is best: docs/benchmarks.md, Growth.
HELD_OUT: Mapping[str, tuple[Better, Curve]] = {
    "point reads through the mongos, by connections": ("higher", {1: 1110, 4: 2089, 8: 2461, 16: 2203}),
    "point reads directly, by connections": ("higher", {1: 1346, 4: 2509, 8: 2735, 16: 2981}),
    "aggregations through the mongos, by connections": ("higher", {1: 59.5, 4: 64.6, 8: 91.0, 16: 75.2}),
    "aggregations directly, by connections": ("higher", {1: 61.2, 4: 73.6, 8: 91.1, 16: 92.1}),
    "time until a cluster takes writes": ("lower", {1: 3.25, 4: 4.73, 16: 9.77}),
    "time until a cluster is gone": ("lower", {1: 1.6, 4: 1.85, 16: 1.82}),
    "load rate, encoded before, mongods apart": ("higher", {1: 38904, 2: 45630, 16: 44208}),
}
# Repetitions of three phases of one sweep: an aggregation (s), a count (s), point reads (1/s).
SWEEP: Mapping[str, Mapping[int, Sequence[float]]] = {
    "grouping": {
        1: (1.3476, 0.3809, 0.3905, 0.5, 0.4637),
        2: (0.6685, 0.217, 0.3428, 0.2202, 0.2532, 0.219),
        3: (0.8326, 0.2139, 0.2895, 0.2401, 0.2579),
        4: (0.4809, 0.3106, 0.2341, 0.2344, 0.2277, 0.2935),
        5: (0.7202, 0.3487, 0.3729, 0.2646, 0.2345),
        6: (0.3186, 0.2602, 0.2752, 0.2454, 0.2727, 0.2624),
        7: (0.525, 0.2475, 0.2444, 0.2534, 0.3919),
        8: (0.5369, 0.2711, 0.2749, 0.2375, 0.3395),
    },
    "counting": {
        1: (0.2431, 0.0789, 0.0783, 0.0795, 0.083),
        2: (0.144, 0.0604, 0.0715, 0.0434, 0.0443, 0.0425),
        3: (0.1554, 0.0527, 0.0573, 0.043, 0.0803),
        4: (0.1151, 0.0534, 0.0521, 0.0456, 0.0512, 0.0652),
        5: (0.1223, 0.0562, 0.0666, 0.0654, 0.0649),
        6: (0.0601, 0.0692, 0.0552, 0.0492, 0.0582, 0.0699),
        7: (0.1532, 0.0479, 0.0534, 0.0505, 0.0668),
        8: (0.122, 0.0515, 0.0715, 0.0486, 0.0662),
    },
    "reading": {
        1: (2084.7652, 3334.2835, 2923.8074, 2964.4245, 3363.4622),
        2: (1270.126, 2976.3834, 2769.6519, 3022.8606, 2654.5354, 2714.5657),
        3: (620.5748, 2798.0171, 3103.1759, 3043.5472, 2497.4664),
        4: (1547.2862, 1987.9983, 2952.8368, 2774.6211, 2842.103, 2494.2078),
        5: (350.8282, 2230.465, 1921.6477, 2597.2075, 2246.3666),
        6: (1705.5578, 2881.9691, 2526.5488, 2395.4713, 2603.601, 2723.8097),
        7: (365.4501, 2302.0758, 2516.039, 2517.6185, 2563.3492),
        8: (398.1692, 2268.6144, 2184.7964, 2590.629, 2395.678),
    },
}
SWEPT: Mapping[str, Better] = {"grouping": "lower", "counting": "lower", "reading": "higher"}
SPREADS = (0.01, 0.03, 0.10, None)  # standard deviation of the residuals, as a share; None: as they were


@dataclass(frozen=True)
class Surface:
    """What is measured at each count, with noise."""

    name: str
    better: Better
    curve: Curve  # of every count
    residuals: tuple[float, ...]  # of logarithms

    def draw(self, count: int, rng: random.Random) -> float:
        """A measurement."""
        return self.curve[count] * math.exp(rng.choice(self.residuals))


RULES = ("among the grid's best with 95 %", "the ratio's interval includes 1", "inside the interval of the best")


@dataclass
class Tally:
    """How searches ended."""

    right: list[tuple[bool, ...]] = field(default_factory=list)  # by RULES
    oracle: list[tuple[bool, ...]] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)  # of the grid's measurements
    losses: list[float] = field(default_factory=list)  # by how much the curve is worse there than at its best
    known: list[bool] = field(default_factory=list)  # the search said that the answer is certain

    def add(self, other: Tally) -> None:
        """Add the searches of another."""
        for name in ("right", "oracle", "shares", "losses", "known"):
            getattr(self, name).extend(getattr(other, name))


def surfaces(*, held_out: bool = False) -> Iterator[Surface]:
    """Every curve with every noise: residuals of one run as they were, of others scaled down."""
    noises = [_residuals(run) for run in (SWEEP.values() if held_out else (BUSY, SHORT))]
    swept = {f"{name}, three sweeps": (better, _medians(SWEEP[name])) for name, better in SWEPT.items()}
    for name, (better, known) in ({**HELD_OUT, **swept} if held_out else CURVES).items():
        line = PchipInterpolator([math.log(n) for n in known], [math.log(v) for v in known.values()])
        curve = {n: math.exp(float(line(math.log(n)))) for n in range(min(known), max(known) + 1)}
        for number, spread in enumerate(SPREADS):
            found = noises[number % len(noises)]
            scale = 1.0 if spread is None else spread / statistics.pstdev(found)
            label = "as it was" if spread is None else f"{spread:.0%}"
            yield Surface(f"{name}, noise {label}", better, curve, tuple(r * scale for r in found))


def _residuals(run: Mapping[int, Sequence[float]]) -> list[float]:
    return [math.log(v / statistics.median(values)) for values in run.values() for v in values]


def settings_of(surface: Surface, seed: int) -> SearchSettings:
    """As `microshard advise` searches by default: at most a third of the grid."""
    counts = tuple(surface.curve)
    most = max(math.ceil(len(counts) * GRID_REPETITIONS / 3), len(doublings(counts)) + 5)
    return SearchSettings(counts, surface.better, most, max(GRID_REPETITIONS, math.ceil(most / 2)), seed=seed)


def search(surface: Surface, seed: int, tally: Tally) -> int:
    """Search a surface; returns the count advised."""
    settings, rng = settings_of(surface, seed), random.Random(f"search {surface.name} {seed}")
    measured: dict[int, list[float]] = {}
    while isinstance(choice := decide(settings, measured), Choice):
        measured.setdefault(choice.count, []).append(surface.draw(choice.count, rng))
    count = recommend(settings, measured).count
    best = (min if surface.better == "lower" else max)(surface.curve, key=lambda n: surface.curve[n])
    tally.right.append(judged(surface, count, seed))
    tally.oracle.append(judged(surface, best, seed))
    tally.known.append(choice.known)
    tally.shares.append(sum(map(len, measured.values())) / (len(surface.curve) * GRID_REPETITIONS))
    tally.losses.append(abs(math.log(surface.curve[count] / surface.curve[best])))
    return count


def judged(surface: Surface, count: int, seed: int) -> tuple[bool, ...]:
    """Whether a full grid, drawn apart from the search, confirms a count: by each of RULES."""
    rng = random.Random(f"grid {surface.name} {seed}")
    grid = {n: [surface.draw(n, rng) for _ in range(TRUE_REPETITIONS)] for n in surface.curve}
    medians = {n: statistics.median(values) for n, values in grid.items()}
    best = (min if surface.better == "lower" else max)(medians, key=lambda n: medians[n])
    ratio = ratio_estimate(grid[count], grid[best]).interval
    span = median_estimate(grid[best]).interval
    if span is None or ratio is None:
        raise ValueError("six repetitions have intervals")
    return (
        count in confidence_set(grid, surface.better),
        count == best or ratio.low <= 1 <= ratio.high,
        count == best or span.low <= medians[count] <= span.high,
    )


def confidence_set(grid: Mapping[int, Sequence[float]], better: Better) -> set[int]:
    """The counts of which one is the best with 95 %: multiple comparisons with the best, of logarithms.

    Every count has as many repetitions as the first.
    """
    sign = -1 if better == "lower" else 1
    scores = {n: [sign * math.log(value) for value in values] for n, values in grid.items()}
    means = {n: statistics.fmean(values) for n, values in scores.items()}
    repetitions = len(next(iter(grid.values())))
    spread = math.sqrt(statistics.fmean(statistics.variance(values) for values in scores.values()))
    margin = _critical(len(grid), len(grid) * (repetitions - 1)) * spread * math.sqrt(2 / repetitions)
    most = max(means.values())
    return {n for n, mean in means.items() if most - mean <= margin}


@lru_cache
def _critical(counts: int, freedom: int) -> float:
    """What the largest of the standardised differences of all others from one mean exceeds in 5 % (Dunnett's t)."""
    rng = np.random.default_rng(1)
    means = rng.standard_normal((200_000, counts))
    largest = (means[:, 1:].max(axis=1) - means[:, 0]) / math.sqrt(2)
    return float(np.quantile(largest / np.sqrt(rng.chisquare(freedom, 200_000) / freedom), 0.95))


def measure(quick: bool) -> Findings:
    """How often the search is right, and the share of the grid it takes: where it was tuned, and where it was not."""
    findings = Findings()
    draws = 3 if quick else DRAWS
    for held_out in (False, True):
        _measure(findings, list(surfaces(held_out=held_out)), draws, "held-out " if held_out else "")
    for name, better in SWEPT.items():
        right, shares = _replay(name, better, draws)
        row = f"advise, replayed on the repetitions of a real sweep ({name})"
        findings.rows.append(absolute(0, f"{row}: among the grid's best", [right], "%", Target(95, most=False)))
        findings.rows.append(absolute(0, f"{row}: share of the grid's measurements", shares, "%"))
    return findings


def _replay(name: str, better: Better, draws: int) -> tuple[float, list[float]]:
    """How often the search is right when it draws what a sweep has measured, and the shares of the grid it takes, in %.

    The first repetition of each count is left out: it fell into a time with many other programs.
    """
    swept = {count: values[1:] for count, values in SWEEP[name].items()}
    fewest = min(map(len, swept.values()))
    best = confidence_set({count: values[:fewest] for count, values in swept.items()}, better)
    surface = Surface(f"{name}, replayed", better, _medians(swept), ())
    right, shares = [], []
    for seed in range(draws):
        rng, measured = random.Random(f"replay {name} {seed}"), dict[int, list[float]]()
        while isinstance(choice := decide(settings_of(surface, seed), measured), Choice):
            measured.setdefault(choice.count, []).append(rng.choice(swept[choice.count]))
        right.append(recommend(settings_of(surface, seed), measured).count in best)
        shares.append(100 * sum(map(len, measured.values())) / (len(swept) * GRID_REPETITIONS))
    return 100 * statistics.fmean(right), shares


def _measure(findings: Findings, every: Sequence[Surface], draws: int, kind: str) -> None:
    total = Tally()
    for surface in every:
        tally = Tally()
        found = [search(surface, seed, tally) for seed in range(draws)]
        right = statistics.fmean(each[0] for each in tally.right)
        share, lost = statistics.median(tally.shares), statistics.median(tally.losses)
        say(f"{surface.name:60} {right:4.0%} right, {share:3.0%} of the grid, loss {lost:.1%}: {sorted(set(found))}")
        total.add(tally)
    name = f"advise, {len(every)} {kind}surfaces of measured sweeps"
    lost, known = statistics.median(total.losses), statistics.fmean(total.known)
    silent = statistics.fmean(k and loss > math.log1p(0.03) for k, loss in zip(total.known, total.losses, strict=True))
    note = (
        f"{name}, {draws} searches each: the advised count is {lost:.1%} slower than the best of the curve "
        f"in the median, {statistics.fmean(total.losses):.1%} on average; {known:.0%} say that the answer is known, "
        f"and {silent:.1%} say so although the curve has a count that is better by more than the tolerance of 3%"
    ).replace("%", " %")
    for number, rule in enumerate(RULES):
        rate, most = (100 * statistics.fmean(each[number] for each in found) for found in (total.right, total.oracle))
        target = Target(95, most=False) if number == 0 else None
        findings.rows.append(absolute(0, f"{name}: {rule}", [rate], "%", target, note if number == 0 else ""))
        findings.rows.append(absolute(0, f"{name}: {rule}, of an oracle", [most], "%"))
    shares = [100 * share for share in total.shares]
    findings.rows.append(absolute(0, f"{name}: share of the grid's measurements", shares, "%", Target(100 / 3 + 0.1)))


if __name__ == "__main__":
    sys.exit(alone(measure))
