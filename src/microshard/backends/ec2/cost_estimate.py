"""The fleets of an experiment on EC2, and what they cost and violate, before any call that costs money. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from microshard.backends.ec2.account import AccountLimits
from microshard.backends.ec2.limits import (
    LimitViolation,
    limit_violations,
    package_versions,
    package_violations,
    vcpus_needed,
)
from microshard.backends.ec2.spec import STAND_IN, GroupSpec, group_specs
from microshard.backends.ec2.tables import FleetPrice, fleet_price
from microshard.model.experiment import Budget
from microshard.model.infrastructure import Infrastructure
from microshard.model.plan import HOST_GROUPS, Plan, Point, Step

DEFAULT_REGION = "us-east-1"
# Not measured on EC2 yet: instances run after about a minute and answer SSH half a minute later; MongoDB's packages and
# the volumes' file systems are installed once a fleet; terminating takes minutes for some types (api.RetryPolicy).
PROVISION_SECONDS = 120.0
PREPARE_SECONDS = 180.0
REMOVE_SECONDS = 180.0
# The controller's work for each additional host while prepare.yml runs: some 25 tasks at 0.17 s of its CPU each, as
# plays for one and for three hosts on two cores show.
PREPARE_SECONDS_EACH = 4.0
ASSUMPTION = (
    f"each fleet: {PROVISION_SECONDS:g} s until its hosts answer, {PREPARE_SECONDS:g} s to prepare them, "
    f"{PREPARE_SECONDS_EACH:g} s for each host after the first, {REMOVE_SECONDS:g} s to remove them "
    "(not measured on EC2)"
)
# A host outlives the budget by this: the running repetition ends, logs are collected, then the run terminates it.
GRACE_SECONDS = 900.0
# Of a host group: another value needs other hosts.
_FIXED_AT_LAUNCH = ("instance_type", "alternative_types", "image", "market", "threads_per_core", "root_size_gib")


@dataclass(frozen=True, slots=True)
class FleetPoints:
    """Points that run on the same hosts, one after the other."""

    points: tuple[str, ...]
    infrastructure: Infrastructure  # with the most hosts any of the points needs
    forced_by: tuple[str, ...]  # why they cannot use the hosts of the points before; empty for the first


def group_into_fleets(points: Sequence[tuple[str, Infrastructure]]) -> list[FleetPoints]:
    """Group points (id, infrastructure) that can use the same hosts, in the order of their first point.

    Hosts are shared when network, types, images and volumes are the same. A point that needs fewer hosts leaves some
    idle, and kernel and NUMA settings are set for each point, so neither forces new hosts.
    """
    shared: dict[str, list[tuple[str, Infrastructure]]] = {}
    for name, infrastructure in points:
        shared.setdefault(repr(sorted(_host_needs(infrastructure).items())), []).append((name, infrastructure))
    found: list[FleetPoints] = []
    for members in shared.values():
        largest = _with_most_hosts([infrastructure for _, infrastructure in members])
        forced_by = _differences(_host_needs(found[-1].infrastructure), _host_needs(largest)) if found else ()
        found.append(FleetPoints(tuple(name for name, _ in members), largest, forced_by))
    return found


def _host_needs(infrastructure: Infrastructure) -> dict[str, Any]:
    """Return what decides whether hosts can be shared, by dotted key."""
    needs: dict[str, Any] = {f"ec2.{k}": v for k, v in infrastructure.ec2.model_dump().items()}
    for name in HOST_GROUPS:
        group = getattr(infrastructure, name)
        needs[name] = "separate hosts" if group is not None else "no separate hosts"
        if group is not None:
            needs |= {f"{name}.{key}": getattr(group, key) for key in _FIXED_AT_LAUNCH}
            needs |= {f"{name}.volumes.{purpose}": None for purpose in ("data", "journal", "log")}
            for purpose, volume in group.volumes.named():
                changed = volume.model_dump(exclude_defaults=True)
                needs[f"{name}.volumes.{purpose}"] = {"type": volume.type, "size_gib": volume.size_gib, **changed}
    return needs


def _with_most_hosts(members: Sequence[Infrastructure]) -> Infrastructure:
    most = members[0]
    for name in HOST_GROUPS:
        groups = [getattr(i, name) for i in members]
        if groups[0] is not None:
            count = max(g.count for g in groups)
            most = most.model_copy(update={name: groups[0].model_copy(update={"count": count})})
    return most


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
    return tuple(f"infrastructure.{k}: {_format(before.get(k))} → {_format(after.get(k))}" for k in keys)


def _format(value: Any) -> str:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class FleetEstimate:
    """Hosts that are launched once, for all points that can share them."""

    name: str  # fleet1, fleet2 …, in the order in which they are launched
    points: tuple[str, ...]
    forced_by: tuple[str, ...]  # what keeps these points from using the hosts of the fleet before
    region: str
    infrastructure: Infrastructure
    groups: tuple[GroupSpec, ...]
    price: FleetPrice
    seconds: float  # from the launch to the last termination, estimated
    violations: tuple[LimitViolation, ...]

    @property
    def cost_usd(self) -> float | None:
        """What the fleet costs in its time; None when a price is unknown."""
        return None if self.price.hourly_usd is None else self.price.hourly_usd * self.seconds / 3600

    @property
    def creates_vpc(self) -> bool:
        """Whether a VPC is created for the fleet."""
        return not (self.infrastructure.ec2.vpc_id or self.infrastructure.ec2.subnet_id)

    @property
    def host_count(self) -> int:
        """Hosts of all groups."""
        return sum(group.count for group in self.groups)


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """All fleets of an experiment, one after the other or side by side."""

    fleets: tuple[FleetEstimate, ...]
    budget: Budget
    account: AccountLimits
    experiment_violations: tuple[LimitViolation, ...] = ()
    parallel: int = 1  # fleets that may exist at a time

    def fits(self, fleet: FleetEstimate, others: Sequence[FleetEstimate]) -> bool:
        """Whether a fleet may be launched beside others: their number, and the quotas as far as they are known."""
        beside = [other for other in others if other.region == fleet.region]
        needed = vcpus_needed(group for each in (fleet, *beside) for group in each.groups)
        quotas = self.account.quotas.get(fleet.region, {})
        enough = all(needed[kind] <= quota.vcpus - quota.used for kind, quota in quotas.items())
        vpcs = sum(1 for each in (fleet, *beside) if each.creates_vpc)
        enough = enough and vpcs <= self.account.free_vpcs.get(fleet.region, vpcs)
        return not others or (enough and len(others) < self.parallel)

    @property
    def seconds(self) -> float:
        """Estimated time of all fleets, launched in their order as soon as each fits."""
        now, ends = 0.0, list[tuple[float, FleetEstimate]]()
        for fleet in self.fleets:
            while not self.fits(fleet, [other for _, other in ends]):
                now, _ = done = min(ends, key=lambda end: end[0])
                ends.remove(done)
            ends.append((now + fleet.seconds, fleet))
        return max((end for end, _ in ends), default=0.0)

    @property
    def cost_usd(self) -> float | None:
        """Estimated cost of the run; None as soon as one part is unknown."""
        parts = [f.cost_usd for f in self.fleets]
        return None if any(p is None for p in parts) else sum(p for p in parts if p is not None)

    @property
    def most_usd(self) -> float | None:
        """Cost of the run when it lasts as long as its budget; None when that is unknown or the time is unlimited."""
        hourly = [f.price.hourly_usd for f in self.fleets]
        if self.budget.max_hours is None or any(h is None for h in hourly):
            return None
        together = sum(sorted((h for h in hourly if h is not None), reverse=True)[: self.parallel])
        return together * (self.budget.max_hours + GRACE_SECONDS / 3600)

    @property
    def violations(self) -> tuple[LimitViolation, ...]:
        """Every violated limit of the fleets and of the experiment, each once."""
        return tuple(dict.fromkeys([*(v for f in self.fleets for v in f.violations), *self.experiment_violations]))

    def as_json(self) -> dict[str, Any]:
        """Return plain data with what is computed. Unknown prices are null."""
        return {
            "fleets": [
                {
                    "name": f.name, "points": f.points, "forced_by": f.forced_by, "region": f.region,
                    "groups": [dataclasses.asdict(g) for g in f.groups],
                    "placement_group": f.infrastructure.ec2.placement_group,
                    "hourly_usd": f.price.hourly_usd, "cost_usd": f.cost_usd, "seconds": f.seconds,
                    "prices": {"exact": f.price.exact, "dates": f.price.dates, "unknown": f.price.unknown},
                }
                for f in self.fleets
            ],
            "parallel": self.parallel, "seconds": self.seconds, "cost_usd": self.cost_usd, "most_usd": self.most_usd,
            "budget": self.budget.model_dump(), "quota": str(self.account),
            "images": {f"{region} {name}": image for (region, name), image in self.account.images.items()},
            "limits": [dataclasses.asdict(v) for v in self.violations],
        }  # fmt: skip


def estimate_cost(
    plan: Plan,
    fleets: Sequence[FleetPoints],
    budget: Budget,
    *,
    teardown: str = "always",
    region: str = DEFAULT_REGION,
    account: AccountLimits | None = None,
    parallel: int = 1,
    launches: int = 1,
) -> CostEstimate:
    """Estimate what each fleet of a plan costs and which limits it violates; `region` is used where none is named.

    `launches`: how often the hosts of a fleet are launched at most. Raises SpecError for hosts EC2 cannot provide.
    """
    account = account or AccountLimits()
    found = []
    for number, fleet in enumerate(fleets, 1):
        groups = group_specs(fleet.infrastructure)
        fleet_region = fleet.infrastructure.ec2.region or region
        points = [plan.point(p) for p in fleet.points]
        caches = _cache_sums(points, groups)
        packages = package_violations(groups, package_versions(point.mongodb for point in points))
        violations = limit_violations(groups, cache_mib=caches, quotas=account.quotas.get(fleet_region))
        found.append(
            FleetEstimate(
                name=f"fleet{number}",
                points=fleet.points,
                forced_by=fleet.forced_by,
                region=fleet_region,
                infrastructure=fleet.infrastructure,
                groups=groups,
                price=fleet_price(groups, fleet_region, public_addresses=fleet.infrastructure.ec2.public_addresses),
                seconds=_seconds(plan, fleet.points, sum(group.count for group in groups), launches),
                violations=(*violations, *packages),
            )
        )
    whole = CostEstimate(tuple(found), budget, account, parallel=parallel)
    violations = _budget_violations(whole)
    if teardown != "always" and len(fleets) > 1:  # the hosts that stay would take the place of the next fleet
        message = f"{teardown}: hosts can stay where one fleet is enough, and this experiment needs {len(fleets)}"
        violations.append(LimitViolation("teardown", message, "error"))
    return dataclasses.replace(whole, experiment_violations=tuple(violations))


def estimate_remaining(
    estimate: CostEstimate, plans: Sequence[Plan], remaining: Sequence[Sequence[Step]]
) -> CostEstimate:
    """Return the fleets that are still needed, with the points, time and cost of the remaining steps.

    `plans` and `remaining` have an entry for each fleet of `estimate`.
    """
    found = []
    for fleet, plan, steps in zip(estimate.fleets, plans, remaining, strict=True):
        points = tuple(name for name in fleet.points if name in {step.point for step in steps})
        if points:
            seconds = _seconds(dataclasses.replace(plan, steps=tuple(steps)), points, fleet.host_count)
            found.append(dataclasses.replace(fleet, points=points, seconds=seconds))
    whole = dataclasses.replace(estimate, fleets=tuple(found), experiment_violations=())
    return dataclasses.replace(whole, experiment_violations=tuple(_budget_violations(whole)))


def _seconds(plan: Plan, points: Sequence[str], hosts: int, launches: int = 1) -> float:
    seconds = launches * (PROVISION_SECONDS + PREPARE_SECONDS + PREPARE_SECONDS_EACH * (hosts - 1) + REMOVE_SECONDS)
    for step in plan.steps:
        if step.point in points:
            point = plan.point(step.point)
            seconds += point.measure_seconds + (point.deploy_seconds + point.load_seconds if step.deploy else 0.0)
    return seconds


def _cache_sums(points: Sequence[Point], groups: Sequence[GroupSpec]) -> dict[str, float]:
    """Return the largest sum of caches on one host of each group, MiB."""
    names = {g.name for g in groups}
    largest: dict[str, float] = {}
    for point in points:
        groups_of = {h.name: h.groups for h in point.hosts}
        sums: dict[str, float] = {}
        for process in point.processes:
            sums[process.host] = sums.get(process.host, 0.0) + (process.cache_mib or 0.0)
        for host, total in sums.items():
            for group in {STAND_IN.get(g, g) if g not in names else g for g in groups_of.get(host, ())}:
                largest[group] = max(largest.get(group, 0.0), total)
    return largest


def _budget_violations(whole: CostEstimate) -> list[LimitViolation]:
    budget, cost, found = whole.budget, whole.cost_usd, list[LimitViolation]()
    if budget.max_cost_usd is not None:
        if cost is None:
            unknown = ", ".join(dict.fromkeys(u for f in whole.fleets for u in f.price.unknown))
            message = f"cannot be enforced: there is no price of {unknown}; remove it and rely on budget.max_hours"
            found.append(LimitViolation("budget.max_cost_usd", message, "error"))
        elif cost > budget.max_cost_usd:
            message = f"the run is estimated at {cost:.2f} USD; it would end before all is measured"
            found.append(LimitViolation("budget.max_cost_usd", message, "warning"))
    if budget.max_hours is not None and whole.seconds > budget.max_hours * 3600:
        message = f"the run is estimated at {whole.seconds / 3600:.1f} hours; it would end before all is measured"
        found.append(LimitViolation("budget.max_hours", message, "warning"))
    return found
