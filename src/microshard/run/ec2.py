"""An experiment on EC2: planned for hosts that are not there yet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.cloud import api, ask, instances
from microshard.cloud.outlook import DEFAULT_REGION, Outlook, outlook
from microshard.cloud.plan import Broken
from microshard.definition.check import Checker
from microshard.definition.errors import DefinitionError
from microshard.definition.infrastructure import HostGroup
from microshard.definition.load import Loaded, load
from microshard.definition.matrix import PointDefinition, expand
from microshard.plan import Inputs
from microshard.plan.model import Host, Plan
from microshard.plan.order import host_by_host
from microshard.plan.placement import GROUPS
from microshard.run.prepare import key_path, made_plan, pipelines


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A definition, the plan made of it for EC2, and what that makes and costs."""

    loaded: Loaded
    plan: Plan
    view: Outlook

    def refuse_broken(self) -> None:
        """Raises DefinitionError, with the places in the file, when EC2 or the budget would refuse it."""
        errors = [b for b in self.view.limits if b.severity == "error"]
        if errors:
            raise DefinitionError([self._problem(b) for b in errors])

    def _problem(self, broken: Broken) -> Any:
        at = Checker(self.loaded.source, self.loaded.data, self.loaded.source.spot)
        return at.at_value(key_path(broken.key), broken.message)


def foresee(path: Path, *, scale: str | None = None, overrides: Mapping[str, Any] | None = None) -> Foreseen:
    """Load, expand and plan for EC2, and ask the account what may be asked. Nothing is made.

    Raises DefinitionError, also for what EC2 cannot do; PlaceError for a broken pipeline file.
    """
    loaded = load(path, scale=scale, overrides=overrides or {})
    points = expand(loaded)
    plan = made_plan(loaded, points, _inputs(points, path))
    infrastructures = [(p.id, d.experiment.infrastructure) for p, d in zip(plan.points, points, strict=True)]
    region = api.default_region() or DEFAULT_REGION
    asked = ask.account((i for _, i in infrastructures), region)
    view = outlook(
        plan,
        infrastructures,
        loaded.experiment.budget,
        region=region,
        quotas=asked.quotas,
        quota=asked.quota,
        images=asked.images,
    )
    order = host_by_host(plan.steps, [fleet.points for fleet in view.fleets])
    return Foreseen(loaded, dataclasses.replace(plan, steps=order, estimate_seconds=view.seconds), view)


def _inputs(points: Sequence[PointDefinition], path: Path) -> Inputs:
    """The hosts as they will be named, with the smallest type's cores and RAM from the dated table.

    They have no address yet: their names stand for it. Of a type the table does not know too little is assumed.
    """
    groups: dict[str, list[HostGroup]] = {}
    for point in points:
        for name in GROUPS:
            group: HostGroup | None = getattr(point.experiment.infrastructure, name)
            if group is not None:
                groups.setdefault(name, []).append(group)
    return Inputs(
        hosts=tuple(host for name, wishes in groups.items() for host in _hosts(name, wishes)),
        pipelines=pipelines(path),
        backend="ec2",
        where="EC2",
    )


def _hosts(name: str, wishes: Sequence[HostGroup]) -> Iterator[Host]:
    found = [instances.find(wish.instance_type) for wish in wishes if wish.instance_type]
    known = [facts for facts in found if facts is not None]
    for number in range(1, max(wish.count for wish in wishes) + 1):
        yield Host(
            name=f"{name}-{number}",
            address=f"{name}-{number}",
            groups=(name,),
            cores=min((f.vcpus for f in known), default=1),
            ram_mib=min((f.memory_mib for f in known), default=None),
        )
