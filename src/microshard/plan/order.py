"""The order in which measurements are taken."""

from __future__ import annotations

import random
from collections.abc import Sequence

from microshard.model.plan import Purpose, Redeploy, Step


def steps(
    points: Sequence[str], repetitions: int, *, policy: str, seed: int, repeat_first: bool, redeploy: Redeploy
) -> tuple[Step, ...]:
    """Every point `repetitions` times, in the order of the policy.

    The same seed gives the same order. With `repeat_first` the first measured point comes once more at
    the end, with the purpose `drift`. A point is deployed before its first step and undeployed after its
    last one (redeploy per_point), or around every step (per_repetition).
    """
    pairs = _pairs(list(points), repetitions, policy, random.Random(seed))  # noqa: S311 - an order, not a secret
    takes: list[tuple[str, int, Purpose]] = [(point, repetition, "measure") for point, repetition in pairs]
    if repeat_first:
        takes.append((takes[0][0], 1, "drift"))
    last = {point: index for index, (point, _, _) in enumerate(takes)}
    seen: set[str] = set()
    result = []
    for index, (point, repetition, purpose) in enumerate(takes):
        always = redeploy == "per_repetition"
        result.append(
            Step(
                index=index,
                point=point,
                repetition=repetition,
                purpose=purpose,
                deploy=always or point not in seen,
                undeploy=always or last[point] == index,
            )
        )
        seen.add(point)
    return tuple(result)


def _pairs(points: list[str], repetitions: int, policy: str, rng: random.Random) -> list[tuple[str, int]]:
    if policy == "sequential":
        return [(point, repetition) for point in points for repetition in range(1, repetitions + 1)]
    rounds: list[tuple[str, int]] = []
    for repetition in range(1, repetitions + 1):
        shuffled = points.copy()
        rng.shuffle(shuffled)
        rounds += [(point, repetition) for point in shuffled]
    if policy == "random":
        # Which repetition comes when says nothing; only the mixture of points does.
        mixed = [point for point, _ in rounds]
        rng.shuffle(mixed)
        count: dict[str, int] = {}
        rounds = []
        for point in mixed:
            count[point] = count.get(point, 0) + 1
            rounds.append((point, count[point]))
    return rounds
