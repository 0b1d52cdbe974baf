"""Plan an experiment on EC2 for hosts that do not exist yet, and again for those that do."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.backends.ec2.account import fetch_account_limits
from microshard.backends.ec2.api import default_region
from microshard.backends.ec2.cost_estimate import (
    ASSUMPTION,
    DEFAULT_REGION,
    CostEstimate,
    FleetPoints,
    estimate_cost,
    group_into_fleets,
)
from microshard.backends.ec2.tables import find_instance
from microshard.experiment.load import LoadedExperiment, load
from microshard.experiment.matrix import PointDefinition, expand
from microshard.model.advice import COST, SearchRequest
from microshard.model.infrastructure import Infrastructure
from microshard.model.plan import HOST_GROUPS, Host, Inputs, Plan
from microshard.plan.build import point_labels
from microshard.plan.checks import not_on_hosts_yet
from microshard.plan.order import join_plans
from microshard.plan.search_grid import SearchError, refuse_hopeless
from microshard.run.prepare import RunRequest, make_plan, pipelines
from microshard.search.settings import number_of_rounds


@dataclass(frozen=True, slots=True)
class Ec2Plan:
    """A definition, the plans made of it for EC2, and what they cost."""

    request: RunRequest
    folder: Path  # of the files the experiment names
    definitions: Mapping[str, PointDefinition]  # by the point's id
    labels: Mapping[str, str]  # the same, of all points of the experiment: those of one fleet may differ in less
    plans: tuple[Plan, ...]  # one a fleet
    estimate: CostEstimate

    @property
    def loaded(self) -> LoadedExperiment:
        """The definition."""
        return self.request.loaded

    @property
    def plan(self) -> Plan:
        """All fleets' plans as one; its time includes launching and terminating the fleets."""
        whole = join_plans(self.plans)
        return dataclasses.replace(
            whole, estimate_seconds=self.estimate.seconds, assumptions=(*whole.assumptions, ASSUMPTION)
        )

    def raise_on_violations(self) -> None:
        """Raise DefinitionError, with the places in the file, when EC2 or the budget would refuse it."""
        errors = [(v.key, v.message) for v in self.estimate.violations if v.severity == "error"]
        if errors:
            raise self.loaded.error(errors)

    @property
    def unsupported(self) -> tuple[tuple[str, str], ...]:
        """What can be planned and created, but no role or client supports: (dotted key, sentence)."""
        return tuple(dict.fromkeys(p for d in self.definitions.values() for p in not_on_hosts_yet(d.experiment)))

    def not_run(self) -> Iterator[str]:
        """Yield a line for everything that is `unsupported`, as plan and rehearsal begin."""
        return (f"Planned, not run: {key}: {reason}." for key, reason in self.unsupported)

    def raise_on_unsupported(self) -> None:
        """Raise DefinitionError for what is `unsupported`."""
        if self.unsupported:
            raise self.loaded.error(self.unsupported)

    def replan(self, points: Sequence[str], inputs: Inputs) -> Plan:
        """Return the plan of a fleet's points for hosts that exist. Raises DefinitionError."""
        inputs = dataclasses.replace(inputs, folder=self.folder)
        return _plan_points(self.request, self.definitions, self.labels, points, inputs)


def plan_ec2(
    path: Path,
    *,
    scale: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    only: Callable[[Plan], Plan] = lambda plan: plan,
    parallel: int = 1,
    search: SearchRequest | None = None,
) -> Ec2Plan:
    """Load, expand and plan for EC2, with the account's quotas and images where it answers. Creates nothing.

    `folder` has the files the experiment names, when it is not the experiment's folder; `only` returns the part of the
    plan that is wanted; `parallel` fleets may exist at a time; of a `search` the estimate has the steps it may take.
    Raises DefinitionError, also for what EC2 cannot do;
    PlaceError for a broken pipeline file.
    """
    loaded = load(path, scale=scale, overrides=overrides or {})
    request = RunRequest(path, loaded, "ec2", scale, dict(overrides or {}), search, parallel)
    folder = folder or path.absolute().parent
    points = expand(loaded)
    labels = point_labels(points)
    definitions = dict(zip(labels, points, strict=True))
    fleets, plans = _plan_fleets(request, definitions, labels, folder)
    wanted = {point.id for point in only(join_plans(plans)).points}
    if wanted != definitions.keys():
        definitions = {name: point for name, point in definitions.items() if name in wanted}
        fleets, plans = _plan_fleets(request, definitions, labels, folder)
    region = default_region() or DEFAULT_REGION
    if search:
        refuse_hopeless(search, join_plans(plans))
    estimate = estimate_cost(
        join_plans(plans if search is None else searched(plans, search.most)),
        fleets,
        loaded.experiment.budget,
        teardown=loaded.experiment.teardown,
        region=region,
        account=fetch_account_limits((fleet.infrastructure for fleet in fleets), region, vpcs=parallel > 1),
        parallel=parallel,
        launches=number_of_rounds(len(search.settings)) if search and len(fleets) > 1 else 1,
    )
    if search and search.objective == COST and estimate.cost_usd is None:
        unknown = ", ".join(dict.fromkeys(name for fleet in estimate.fleets for name in fleet.price.unknown))
        raise SearchError(f"--objective '{COST}': there is no price of {unknown}")
    return Ec2Plan(request, folder, definitions, labels, plans, estimate)


def _plan_fleets(
    request: RunRequest, definitions: Mapping[str, PointDefinition], labels: Mapping[str, str], folder: Path
) -> tuple[list[FleetPoints], tuple[Plan, ...]]:
    """Return the fleets and the plan of each."""
    fleets = group_into_fleets([(name, point.experiment.infrastructure) for name, point in definitions.items()])
    hosts = [Inputs(folder=folder, hosts=tuple(_hosts(fleet.infrastructure))) for fleet in fleets]
    parts = zip((f.points for f in fleets), hosts, strict=True)
    plans = (_plan_points(request, definitions, labels, *part) for part in parts)
    return fleets, tuple(plans)


def _plan_points(
    request: RunRequest,
    definitions: Mapping[str, PointDefinition],
    labels: Mapping[str, str],
    names: Sequence[str],
    inputs: Inputs,
) -> Plan:
    inputs = dataclasses.replace(
        inputs,
        names={name: labels[name] for name in names},
        pipelines=pipelines(request.path),
        backend="ec2",
        where="EC2",
    )
    return make_plan(request.loaded, [definitions[name] for name in names], inputs)


def _hosts(infrastructure: Infrastructure) -> Iterator[Host]:
    """Yield the hosts as they will be named, with their type's cores and RAM from the dated table.

    They have no address yet: their names stand for it. A type that is not in the table counts as one core.
    """
    for name in HOST_GROUPS:
        group = getattr(infrastructure, name)
        facts = find_instance(group.instance_type) if group is not None and group.instance_type else None
        for number in range(1, group.count + 1 if group is not None else 1):
            yield Host(
                name=f"{name}-{number}",
                address=f"{name}-{number}",
                groups=(name,),
                cores=facts.vcpus if facts else 1,
                ram_mib=facts.memory_mib if facts else None,
            )


def searched(plans: Sequence[Plan], most: int) -> list[Plan]:
    """The plans with as many steps as a search may take, each its part."""
    share = most / sum(len(plan.steps) for plan in plans)
    return [dataclasses.replace(plan, steps=plan.steps[: math.ceil(share * len(plan.steps))]) for plan in plans]
