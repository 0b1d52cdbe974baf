"""The order in which points are measured, and plans for different hosts joined into one."""

import dataclasses
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from microshard.model.plan import HostNeeds, Plan, Point, Purpose, Redeploy, Step


def host_settings(point: Point) -> str:
    """What prepare.yml sets on the hosts of a point and a point with other settings changes: alike or not, as text."""
    package = point.mongodb["version"] if point.mongodb["source"] == "packages" else None
    return json.dumps([point.machines, package], sort_keys=True, default=str)


def later_settings(first: Point, points: Sequence[Point]) -> dict[str, list[dict[str, Any]]]:
    """Group of hosts → the kernel settings of other points than the first that differ from its own, each once."""

    def kernel(point: Point, group: str) -> dict[str, Any]:
        settings = point.machines.get(group, {}).get("kernel", {})
        # Readahead is the volumes' (role host_storage).
        return {k: value for k, value in settings.items() if value is not None and k != "readahead_sectors"}

    later: dict[str, list[dict[str, Any]]] = {}
    for point in points:
        for group in point.machines:
            settings, known = kernel(point, group), later.setdefault(group, [])
            if settings not in ({}, kernel(first, group), *known):
                known.append(settings)
    return later


def steps(
    points: Sequence[str],
    repetitions: int,
    *,
    policy: str,
    seed: int,
    repeat_first: bool,
    redeploy: Redeploy,
    settings: Mapping[str, str] | None = None,
) -> tuple[Step, ...]:
    """Every point `repetitions` times, in the order of the policy.

    The same seed gives the same order. With `repeat_first` the first measured point comes once more at
    the end, with the purpose `drift`. A point is deployed before its first step and undeployed after its
    last one (redeploy per_point), or around every step (per_repetition).

    Each change of `settings` (point → host_settings) prepares the hosts anew: points with the same are neighbours, by
    the policy `sequential` in the whole order and by `interleaved` in each round; `random` disregards them.
    """
    pairs = _pairs(list(points), repetitions, policy, random.Random(seed), settings or {})  # noqa: S311 - no secret
    measurements: list[tuple[str, int, Purpose]] = [(point, repetition, "measure") for point, repetition in pairs]
    if repeat_first:
        measurements.append((measurements[0][0], 1, "drift"))
    last = {point: index for index, (point, _, _) in enumerate(measurements)}
    seen: set[str] = set()
    result = []
    for index, (point, repetition, purpose) in enumerate(measurements):
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


def _pairs(
    points: list[str], repetitions: int, policy: str, rng: random.Random, settings: Mapping[str, str]
) -> list[tuple[str, int]]:
    if policy == "sequential":
        points = _neighbours(points, settings)
        return [(point, repetition) for point in points for repetition in range(1, repetitions + 1)]
    rounds: list[tuple[str, int]] = []
    for repetition in range(1, repetitions + 1):
        shuffled = points.copy()
        rng.shuffle(shuffled)
        if policy == "interleaved":
            shuffled = _neighbours(shuffled, settings, rounds[-1][0] if rounds else None)
        rounds += [(point, repetition) for point in shuffled]
    if policy == "random":
        # The order of repetitions does not matter, only that of points.
        mixed = [point for point, _ in rounds]
        rng.shuffle(mixed)
        count: dict[str, int] = {}
        rounds = []
        for point in mixed:
            count[point] = count.get(point, 0) + 1
            rounds.append((point, count[point]))
    return rounds


def _neighbours(points: list[str], settings: Mapping[str, str], before: str | None = None) -> list[str]:
    """The points, those with the same settings together; first those with the settings of the point `before`."""
    order = dict.fromkeys(settings.get(point, "") for point in ([before] if before else []) + points)
    place = {value: number for number, value in enumerate(order)}
    return sorted(points, key=lambda point: place[settings.get(point, "")])


def join_plans(plans: Sequence[Plan]) -> Plan:
    """All points of the plans, their steps in the order of the plans.

    Points of different hosts cannot be interleaved without paying for all hosts at once. The plans are of one
    experiment and have no point in common.
    """
    first = plans[0]
    if len(plans) == 1:
        return first
    order = [step for plan in plans for step in plan.steps]
    needs: dict[str, HostNeeds] = {}
    for plan in plans:
        for host, own in plan.needs.items():
            most = needs.get(host, own)
            needs[host] = HostNeeds(max(own.disk_bytes, most.disk_bytes), max(own.memory_mib, most.memory_mib))
    return dataclasses.replace(
        first,
        redeploy="per_repetition" if any(p.redeploy == "per_repetition" for p in plans) else "per_point",
        hosts=tuple(dict.fromkeys(host for plan in plans for host in plan.hosts)),
        points=tuple(sorted((point for plan in plans for point in plan.points), key=lambda point: point.id)),
        steps=tuple(dataclasses.replace(step, index=index) for index, step in enumerate(order)),
        warnings=tuple(dict.fromkeys(warning for plan in plans for warning in plan.warnings)),
        estimate_seconds=sum(p.estimate_seconds for p in plans),
        disk_bytes=max(p.disk_bytes for p in plans),
        memory_mib=max(p.memory_mib for p in plans),
        needs=needs,
        assumptions=tuple(dict.fromkeys(each for plan in plans for each in plan.assumptions)),
    )
