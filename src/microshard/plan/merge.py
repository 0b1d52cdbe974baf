"""Plans for different hosts, one after the other, as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from microshard.model.plan import HostNeeds, Plan


def merged(plans: Sequence[Plan]) -> Plan:
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
    )
