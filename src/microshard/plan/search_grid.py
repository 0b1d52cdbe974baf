"""From an experiment and the options of `microshard advise` to a search: the full grid it replaces, and its limits."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from microshard.errors import EXIT_DEFINITION, MicroshardError
from microshard.model.advice import COST, LOAD_TIME, P99, SearchLimits, SearchRequest
from microshard.model.experiment import Experiment
from microshard.model.plan import Plan, Point
from microshard.search.settings import number_of_rounds
from microshard.search.shard_count import doublings

AXIS = "topology.shards.count"
_SHARE = 3  # the search takes at most this part of the full grid's measurements, unless --points allows more
_REPEATS = 5  # measurements besides the bracket that each round of a small grid's search may take all the same
_MOST_AXES = 3  # besides the shard count
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
    cost: float | None = None  # USD, on EC2
    certainty: float = 0.95
    tolerance: float = 0.03
    seed: int | None = None
    objective: str | None = None
    max_ram: float | None = None  # GiB
    max_disk: float | None = None  # GiB
    max_p99: float | None = None  # ms


def search_of(experiment: Experiment, options: SearchOptions) -> tuple[SearchRequest, dict[str, Any]]:
    """The search, and what it changes in the experiment (dotted key → value). Raises SearchError."""
    others = _other_axes(experiment)
    settings = [dict(zip(others, values, strict=True)) for values in itertools.product(*others.values())]
    counts = _counts(experiment, options.counts, fewest=1 if others else 2)
    grid = len(settings) * len(counts) * experiment.repetitions
    repeats = _REPEATS * number_of_rounds(len(settings))
    most = max(math.ceil(grid / _SHARE), len(settings) * len(doublings(counts)) + repeats)
    if options.points is not None:
        most = options.points
    if most < len(settings):
        raise SearchError(f"--points {most}: each of the {len(settings)} settings needs a measurement at least")
    most_each = max(experiment.repetitions, math.ceil(most / 2))
    objective = _objective(experiment, options)
    phase = _phase(experiment, options, objective)
    limits = SearchLimits(options.max_ram, options.max_disk, options.max_p99)
    keys = next(step.phase for step in experiment.workload if (step.name or step.kind) == phase)
    if limits.p99_ms is not None and not keys.reports_latency:
        raise SearchError(f"--max-p99: {phase} ({keys.engine}) reports no latency; mix, ycsb and readers do")
    request = SearchRequest(
        counts=list(counts),
        grid=grid,
        most=most,
        most_each=most_each,
        certainty=options.certainty,
        tolerance=options.tolerance,
        seed=experiment.order.seed if options.seed is None else options.seed,
        phase=phase,
        hours=options.hours or experiment.budget.max_hours,
        objective=objective,
        limits=limits,
        settings=settings,
    )
    changed: dict[str, Any] = {
        "matrix": {"axes": others | ({AXIS: list(counts)} if experiment.topology.kind == "sharded" else {})},
        "repetitions": min(most_each, most) + _SPARE_STEPS,
        "order.repeat_first": False,
        "teardown": "always",
    }
    if request.hours is not None:
        changed["budget.max_hours"] = request.hours
    if options.cost is not None:
        changed["budget.max_cost_usd"] = options.cost
    if experiment.gates.max_drift is not None:  # it needs order.repeat_first
        changed["gates.max_drift"] = None
    if objective == LOAD_TIME or any((s.name or s.kind) == phase and s.kind == "load" for s in experiment.workload):
        changed |= {"order.redeploy": "per_repetition", "load.image": "never"}  # else only the first one loads
    return request, changed


def refuse_hopeless(request: SearchRequest, plan: Plan) -> None:
    """Raise SearchError where every point needs more than the limits allow."""
    broken = [over_planned(point, request.limits) for point in plan.points]
    if all(broken):
        raise SearchError(f"no point keeps the limits; {plan.points[0].label}: {broken[0]}")


def over_planned(point: Point, limits: SearchLimits) -> str:
    """Why a point breaks a limit by what the plan says it needs; empty where it does not."""
    ram = max((needs.memory_mib for needs in point.needs.values()), default=0) / 1024
    disk = max((needs.disk_bytes for needs in point.needs.values()), default=0) / 1024**3
    return over(limits, ram, disk, None, "as planned")


def over(limits: SearchLimits, ram_gib: float | None, disk_gib: float | None, p99_ms: float | None, how: str) -> str:
    """The first limit that is exceeded, as a sentence; empty where none is."""
    for what, value, limit, unit in (
        ("RAM", ram_gib, limits.ram_gib, "GiB"),
        ("disk", disk_gib, limits.disk_gib, "GiB"),
        ("p99", p99_ms, limits.p99_ms, "ms"),
    ):
        if limit is not None and value is not None and value > limit:
            return f"{what} of {value:.3g} {unit} {how}, more than {limit:g} {unit}"
    return ""


def _other_axes(experiment: Experiment) -> dict[str, list[Any]]:
    """The axes beside the shard count. Raises SearchError."""
    matrix = experiment.matrix
    if matrix.zip or matrix.include or matrix.exclude:
        raise SearchError(
            "advise searches the axes of a matrix, and this one has zip, include or exclude; replace it: "
            f"--set 'matrix={{{AXIS}: [1, 16]}}'"
        )
    others = {key: list(values) for key, values in matrix.axes.items() if key != AXIS}
    if len(others) > _MOST_AXES:
        raise SearchError(
            f"advise searches {_MOST_AXES} axes besides {AXIS} at most, and the matrix has {', '.join(others)}: "
            "leave some out with --set 'matrix={…}'"
        )
    return others


def _counts(experiment: Experiment, given: Sequence[int] | None, fewest: int) -> list[int]:
    if experiment.topology.kind != "sharded":
        if fewest == 1:
            return [1]
        raise SearchError(f"topology.kind is {experiment.topology.kind}: only a sharded cluster has a shard count")
    listed = sorted({int(n) for n in given or experiment.matrix.axes.get(AXIS, [])})
    if not listed and fewest == 1:
        listed = [experiment.topology.shards.count]
    if len(listed) < fewest:
        raise SearchError(f"the matrix has no {AXIS} with two values or more: --counts 1-16 says what is searched")
    if listed[0] < 1:
        raise SearchError(f"{listed[0]} shards: a count is 1 or more")
    return listed if given else list(range(listed[0], listed[-1] + 1))


def _objective(experiment: Experiment, options: SearchOptions) -> str:
    """The figure that is searched: the one given, else that of the question; empty for the phase's metric."""
    question = experiment.question
    if options.objective is not None:
        return options.objective
    return question.figure if question is not None and options.phase is None else ""


def _phase(experiment: Experiment, options: SearchOptions, objective: str) -> str:
    """The phase whose figure is searched: the one given, else that of the question, else the first measured one."""
    steps = {step.name or step.kind: step for step in experiment.workload}
    known = [name for name, step in steps.items() if step.kind != "warm_up"]
    if options.phase is not None and options.phase not in known:
        raise SearchError(f"no phase {options.phase!r}: the experiment has {', '.join(known)}")
    if objective == LOAD_TIME and "load" not in {step.kind for step in steps.values()}:
        raise SearchError("--objective 'load time': the experiment has no load phase")
    default = experiment.question and experiment.question.phase
    phase = options.phase or default or next(name for name, step in steps.items() if step.kind == "measure")
    keys = steps[phase].phase
    figures = keys.figures()
    if objective == COST:
        if figures is not None and not is_time_or_rate(figures[0]):
            raise SearchError(
                f"--objective '{COST}' needs a query time or a rate, and {phase} measures {figures[0]}: --phase"
            )
    elif objective == P99 and keys.reports_latency:
        pass
    elif objective not in ("", LOAD_TIME) and figures is not None and objective not in figures:
        raise SearchError(f"{phase} reports no {objective}; there is: {', '.join((*figures, LOAD_TIME, COST))}")
    return phase


def is_time_or_rate(figure: str) -> bool:
    """Whether a metric says how long an operation takes, or how many there are in a time."""
    return figure.endswith(("time", "throughput", "rate"))
