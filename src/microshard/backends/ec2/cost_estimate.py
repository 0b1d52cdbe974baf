"""What an experiment would make on EC2, cost and break, before a single call that costs anything. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from microshard.backends.ec2 import fleet_plan as fleets
from microshard.backends.ec2.fleet_plan import Cost, LimitViolation
from microshard.backends.ec2.quota import Quotas
from microshard.backends.ec2.spec import STAND_IN, GroupSpec, group_specs
from microshard.model.experiment import Budget
from microshard.model.infrastructure import Infrastructure
from microshard.model.plan import Plan, Point, Step

DEFAULT_REGION = "us-east-1"
# Not measured on EC2 yet: instances run after about a minute and answer SSH half a minute later; MongoDB's packages and
# the volumes' file systems are made once a fleet; terminating takes minutes for some types (cloud.api.RetryPolicy).
PROVISION_SECONDS = 120.0
PREPARE_SECONDS = 180.0
REMOVE_SECONDS = 180.0
# The controller's own work for each further host while prepare.yml runs: some 25 tasks at 0.17 s of its CPU each, as
# plays for one and for three hosts on two cores show.
PREPARE_SECONDS_EACH = 4.0
# A host outlives the budget by this: the running repetition ends, logs are collected, then the run removes it itself.
GRACE_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class FleetEstimate:
    """Hosts that are made once, for all points that can share them."""

    name: str  # fleet1, fleet2 …, in the order in which they are made
    points: tuple[str, ...]
    forced_by: tuple[str, ...]  # what keeps these points from using the hosts of the fleet before
    region: str
    infrastructure: Infrastructure
    groups: tuple[GroupSpec, ...]
    cost: Cost
    seconds: float  # from the first host to none, estimated
    broken: tuple[LimitViolation, ...]

    @property
    def cost_usd(self) -> float | None:
        """What the fleet costs in its time; None when a price is unknown."""
        return self.cost.total(self.seconds / 3600)


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """All fleets of an experiment, one after the other."""

    fleets: tuple[FleetEstimate, ...]
    budget: Budget
    broken: tuple[LimitViolation, ...]  # of the experiment as a whole
    quota: str  # what is known of the account's quotas, in words
    images: Mapping[tuple[str, str], str]  # (region, wish) → what it stands for now; empty when AWS was not asked

    @property
    def seconds(self) -> float:
        """Estimated time of all fleets."""
        return sum(f.seconds for f in self.fleets)

    @property
    def cost_usd(self) -> float | None:
        """Estimated price of the run; None as soon as one part is unknown."""
        parts = [f.cost_usd for f in self.fleets]
        return None if any(p is None for p in parts) else sum(p for p in parts if p is not None)

    @property
    def most_usd(self) -> float | None:
        """What the run costs when it lasts as long as it may; None when that is unknown or it may last for ever."""
        hourly = [f.cost.hourly_usd for f in self.fleets]
        if self.budget.max_hours is None or any(h is None for h in hourly):
            return None
        return max(h for h in hourly if h is not None) * (self.budget.max_hours + GRACE_SECONDS / 3600)

    @property
    def limits(self) -> tuple[LimitViolation, ...]:
        """Every limit broken anywhere, each once."""
        return tuple(dict.fromkeys([*(b for f in self.fleets for b in f.broken), *self.broken]))

    def as_json(self) -> dict[str, Any]:
        """Plain data, with what is computed. Prices that are unknown are null."""
        return {
            "fleets": [
                {
                    "name": f.name, "points": f.points, "forced_by": f.forced_by, "region": f.region,
                    "groups": [dataclasses.asdict(g) for g in f.groups],
                    "placement_group": f.infrastructure.ec2.placement_group,
                    "hourly_usd": f.cost.hourly_usd, "cost_usd": f.cost_usd, "seconds": f.seconds,
                    "prices": {"exact": f.cost.exact, "dates": f.cost.dates, "unknown": f.cost.unknown},
                }
                for f in self.fleets
            ],
            "seconds": self.seconds, "cost_usd": self.cost_usd, "most_usd": self.most_usd,
            "budget": self.budget.model_dump(), "quota": self.quota,
            "images": {f"{region} {wish}": told for (region, wish), told in self.images.items()},
            "limits": [dataclasses.asdict(b) for b in self.limits],
        }  # fmt: skip


def outlook(
    plan: Plan,
    infrastructures: Sequence[tuple[str, Infrastructure]],
    budget: Budget,
    *,
    teardown: str = "always",
    region: str = DEFAULT_REGION,
    quotas: Mapping[str, Quotas] | None = None,
    quota: str = "not asked",
    images: Mapping[tuple[str, str], str] | None = None,
) -> CostEstimate:
    """Sort the points of a plan into fleets, and say what each costs and breaks.

    `infrastructures` are those of the points, by id; `region` is used where they name none; `quotas` are by region.
    Raises SpecError for hosts EC2 cannot give.
    """
    found = []
    for number, shared in enumerate(fleets.share_hosts(infrastructures), 1):
        groups = group_specs(shared.infrastructure)
        where = shared.infrastructure.ec2.region or region
        caches = _caches([plan.point(p) for p in shared.points], groups)
        broken = fleets.broken_limits(groups, cache_mib=caches, quotas=(quotas or {}).get(where))
        found.append(
            FleetEstimate(
                name=f"fleet{number}",
                points=shared.points,
                forced_by=shared.forced_by,
                region=where,
                infrastructure=shared.infrastructure,
                groups=groups,
                cost=fleets.cost(groups, where),
                seconds=_seconds(plan, shared.points, sum(group.count for group in groups)),
                broken=tuple(broken),
            )
        )
    whole = CostEstimate(tuple(found), budget, (), quota, dict(images or {}))
    return CostEstimate(whole.fleets, budget, (*_of_budget(whole), *_of_teardown(whole, teardown)), quota, whole.images)


def of_the_rest(view: CostEstimate, plans: Sequence[Plan], left: Sequence[Sequence[Step]]) -> CostEstimate:
    """The fleets that are still needed, with the points, time and price of the steps that are left.

    `plans` and `left` have an entry for each fleet of `view`.
    """
    found = []
    for fleet, plan, steps in zip(view.fleets, plans, left, strict=True):
        points = tuple(name for name in fleet.points if name in {step.point for step in steps})
        if points:
            rest = dataclasses.replace(plan, steps=tuple(steps))
            seconds = _seconds(rest, points, sum(group.count for group in fleet.groups))
            found.append(dataclasses.replace(fleet, points=points, seconds=seconds))
    whole = dataclasses.replace(view, fleets=tuple(found), broken=())
    return dataclasses.replace(whole, broken=tuple(_of_budget(whole)))


def _seconds(plan: Plan, points: Sequence[str], hosts: int) -> float:
    seconds = PROVISION_SECONDS + PREPARE_SECONDS + PREPARE_SECONDS_EACH * (hosts - 1) + REMOVE_SECONDS
    for step in plan.steps:
        if step.point in points:
            point = plan.point(step.point)
            seconds += point.measure_seconds + (point.deploy_seconds + point.load_seconds if step.deploy else 0.0)
    return seconds


def _caches(points: Sequence[Point], groups: Sequence[GroupSpec]) -> dict[str, float]:
    """The largest sum of caches on one host of each group, MiB."""
    own = {g.name for g in groups}
    largest: dict[str, float] = {}
    for point in points:
        groups_of = {h.name: h.groups for h in point.hosts}
        sums: dict[str, float] = {}
        for process in point.processes:
            sums[process.host] = sums.get(process.host, 0.0) + (process.cache_mib or 0.0)
        for host, total in sums.items():
            for group in {STAND_IN.get(g, g) if g not in own else g for g in groups_of.get(host, ())}:
                largest[group] = max(largest.get(group, 0.0), total)
    return largest


def _of_teardown(whole: CostEstimate, teardown: str) -> Iterator[LimitViolation]:
    """Fleets are made one after the other, each for the points of its own: hosts that stay would be in the way."""
    if teardown != "always" and len(whole.fleets) > 1:
        message = f"{teardown}: hosts can stay where one fleet is enough, and this experiment needs {len(whole.fleets)}"
        yield LimitViolation("teardown", message, "error")


def _of_budget(whole: CostEstimate) -> list[LimitViolation]:
    budget, cost, found = whole.budget, whole.cost_usd, list[LimitViolation]()
    if budget.max_cost_usd is not None:
        if cost is None:
            unknown = ", ".join(dict.fromkeys(u for f in whole.fleets for u in f.cost.unknown))
            message = f"cannot be kept, for there is no price of {unknown}; leave it out and trust budget.max_hours"
            found.append(LimitViolation("budget.max_cost_usd", message, "error"))
        elif cost > budget.max_cost_usd:
            message = f"the run is estimated at {cost:.2f} USD; it would end before all is measured"
            found.append(LimitViolation("budget.max_cost_usd", message, "warning"))
    if budget.max_hours is not None and whole.seconds > budget.max_hours * 3600:
        message = f"the run is estimated at {whole.seconds / 3600:.1f} hours; it would end before all is measured"
        found.append(LimitViolation("budget.max_hours", message, "warning"))
    return found
