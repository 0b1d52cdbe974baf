"""From an experiment and the options of `microshard advise` to a search: the full grid it replaces, and its limits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from microshard.errors import EXIT_DEFINITION, MicroshardError
from microshard.model.advice import SearchRequest
from microshard.model.experiment import Experiment
from microshard.search.shard_count import doublings

AXIS = "topology.shards.count"
_SHARE = 3  # the search takes at most this part of the full grid's measurements, unless --points allows more
_REPEATS = 5  # measurements besides the bracket that a search of a small grid may take all the same
_SPARE_STEPS = 2  # planned for each count: measurements that stay invalid


class SearchError(MicroshardError):
    """The experiment cannot be searched, or not with these options."""

    exit_code = EXIT_DEFINITION


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The options of the command; None is the default."""

    counts: tuple[int, ...] | None = None
    phase: str | None = None
    points: int | None = None  # measurements
    hours: float | None = None
    certainty: float = 0.95
    tolerance: float = 0.03
    seed: int | None = None


def search_of(experiment: Experiment, options: SearchOptions) -> tuple[SearchRequest, dict[str, Any]]:
    """The search, and what it changes in the experiment (dotted key → value). Raises SearchError."""
    counts = _counts(experiment, options.counts)
    grid = len(counts) * experiment.repetitions
    most = max(math.ceil(grid / _SHARE), len(doublings(counts)) + _REPEATS)
    if options.points is not None:
        most = options.points
    most_each = max(experiment.repetitions, math.ceil(most / 2))
    request = SearchRequest(
        counts=list(counts),
        grid=grid,
        most=most,
        most_each=most_each,
        certainty=options.certainty,
        tolerance=options.tolerance,
        seed=experiment.order.seed if options.seed is None else options.seed,
        phase=_phase(experiment, options.phase),
        hours=options.hours or experiment.budget.max_hours,
    )
    changed: dict[str, Any] = {
        "matrix": {"axes": {AXIS: list(counts)}},
        "repetitions": min(most_each, most) + _SPARE_STEPS,
        "order.repeat_first": False,
        "teardown": "always",
    }
    if experiment.gates.max_drift is not None:  # it needs order.repeat_first
        changed["gates.max_drift"] = None
    return request, changed


def _counts(experiment: Experiment, given: Sequence[int] | None) -> list[int]:
    if experiment.topology.kind != "sharded":
        raise SearchError(f"topology.kind is {experiment.topology.kind}: only a sharded cluster has a shard count")
    matrix = experiment.matrix
    others = [key for key in (*matrix.axes, *matrix.zip) if key != AXIS]
    if others or matrix.zip or matrix.include or matrix.exclude:
        named = f"its matrix also has {', '.join(others)}" if others else "its matrix has zip, include or exclude"
        raise SearchError(
            f"advise searches {AXIS} alone, and {named}. Leave one value: --set 'matrix={{{AXIS}: [1, 16]}}', and "
            "--set KEY=VALUE for each other axis"
        )
    listed = sorted({int(n) for n in given or matrix.axes.get(AXIS, [])})
    if len(listed) < 2:
        raise SearchError(f"the matrix has no {AXIS} with two values or more: --counts 1-16 says what is searched")
    if listed[0] < 1:
        raise SearchError(f"{listed[0]} shards: a count is 1 or more")
    return listed if given else list(range(listed[0], listed[-1] + 1))


def _phase(experiment: Experiment, wanted: str | None) -> str:
    """The phase whose metric is searched: the one given, else that of the question, else the first measured one."""
    steps = {step.name or step.kind: step for step in experiment.workload}
    known = [name for name, step in steps.items() if step.kind != "warm_up"]
    if wanted is not None:
        if wanted not in known:
            raise SearchError(f"no phase {wanted!r}: the experiment has {', '.join(known)}")
        return wanted
    question = experiment.question
    phase = (question and question.phase) or next(name for name, step in steps.items() if step.kind == "measure")
    figures = steps[phase].phase.figures()
    if question is not None and figures and question.figure != figures[0]:
        raise SearchError(
            f"the question is about {question.figure}, and advise searches the metric of a phase: --phase {phase} "
            f"takes its {figures[0]} instead"
        )
    return phase
