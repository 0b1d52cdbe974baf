"""An experiment on EC2: planned for hosts that are not there yet, and again for those that are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.backends.ec2 import account_limits as ask
from microshard.backends.ec2 import api, instances
from microshard.backends.ec2.cost_estimate import DEFAULT_REGION, CostEstimate, outlook
from microshard.backends.ec2.fleet_plan import share_hosts
from microshard.experiment.load import LoadedExperiment, load
from microshard.experiment.matrix import PointDefinition, expand
from microshard.model.infrastructure import Infrastructure
from microshard.model.plan import Host, Plan
from microshard.plan import Inputs
from microshard.plan.build import point_names
from microshard.plan.merge import merged
from microshard.plan.placement import GROUPS
from microshard.plan.support import not_on_hosts_yet
from microshard.run.prepare import RunRequest, make_plan, pipelines


@dataclass(frozen=True, slots=True)
class Ec2Plan:
    """A definition, the plans made of it for EC2, and what they make and cost."""

    asked: RunRequest
    folder: Path  # where files lie that the experiment names
    definitions: Mapping[str, PointDefinition]  # by the point's id
    plans: tuple[Plan, ...]  # one a fleet
    view: CostEstimate

    @property
    def loaded(self) -> LoadedExperiment:
        """The definition."""
        return self.asked.loaded

    @property
    def plan(self) -> Plan:
        """All fleets' plans as one; the time is that of the fleets from their first host to none."""
        return dataclasses.replace(merged(self.plans), estimate_seconds=self.view.seconds)

    def refuse_broken(self) -> None:
        """Raises DefinitionError, with the places in the file, when EC2 or the budget would refuse it."""
        errors = [b for b in self.view.limits if b.severity == "error"]
        if errors:
            raise self.loaded.error((b.key, b.message) for b in errors)

    def refuse_not_yet(self) -> None:
        """Raises DefinitionError for what can be planned and made, but is not used by any role on the hosts yet."""
        problems = dict.fromkeys(p for d in self.definitions.values() for p in not_on_hosts_yet(d.experiment))
        if problems:
            raise self.loaded.error(problems)

    def planned(self, points: Sequence[str], inputs: Inputs) -> Plan:
        """The plan of a fleet's points for hosts that are there. Raises DefinitionError."""
        there = dataclasses.replace(inputs, folder=self.folder)
        return _planned(self.asked, self.definitions, points, there)


def plan_ec2(
    path: Path, *, scale: str | None = None, overrides: Mapping[str, Any] | None = None, folder: Path | None = None
) -> Ec2Plan:
    """Load, expand and plan for EC2, and ask the account what may be asked. Nothing is made.

    `folder` is where files lie that the experiment names, when it is not the experiment's own. Raises
    DefinitionError, also for what EC2 cannot do; PlaceError for a broken pipeline file.
    """
    loaded = load(path, scale=scale, overrides=overrides or {})
    asked = RunRequest(path, loaded, "ec2", scale, dict(overrides or {}))
    folder = folder or path.absolute().parent
    points = expand(loaded)
    definitions = dict(zip(point_names(len(points)), points, strict=True))
    wishes = [(name, point.experiment.infrastructure) for name, point in definitions.items()]
    plans = tuple(
        _planned(asked, definitions, shared.points, Inputs(folder=folder, hosts=tuple(_hosts(shared.infrastructure))))
        for shared in share_hosts(wishes)
    )
    region = api.default_region() or DEFAULT_REGION
    told = ask.account((wish for _, wish in wishes), region)
    view = outlook(
        merged(plans),
        wishes,
        loaded.experiment.budget,
        teardown=loaded.experiment.teardown,
        region=region,
        quotas=told.quotas,
        quota=told.quota,
        images=told.images,
    )
    return Ec2Plan(asked, folder, definitions, plans, view)


def _planned(
    asked: RunRequest, definitions: Mapping[str, PointDefinition], names: Sequence[str], inputs: Inputs
) -> Plan:
    inputs = dataclasses.replace(
        inputs,
        names=tuple(names),
        pipelines=pipelines(asked.path),
        backend="ec2",
        where="EC2",
    )
    return make_plan(asked.loaded, [definitions[name] for name in names], inputs)


def _hosts(infrastructure: Infrastructure) -> Iterator[Host]:
    """The hosts as they will be named, with their type's cores and RAM from the dated table.

    They have no address yet: their names stand for it. Of a type the table does not know too little is assumed.
    """
    for name in GROUPS:
        group = getattr(infrastructure, name)
        facts = instances.find(group.instance_type) if group is not None and group.instance_type else None
        for number in range(1, group.count + 1 if group is not None else 1):
            yield Host(
                name=f"{name}-{number}",
                address=f"{name}-{number}",
                groups=(name,),
                cores=facts.vcpus if facts else 1,
                ram_mib=facts.memory_mib if facts else None,
            )
