"""What the hosts of a point are to be: volumes and kernel, or on one machine emulated volumes."""

from __future__ import annotations

from typing import Any

from microshard.definition.experiment import Experiment
from microshard.plan.model import EmulatedVolume, Point
from microshard.plan.placement import GROUPS


def machines(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Group → volumes and kernel settings of its hosts with every default explicit, for the roles that prepare them."""
    infrastructure = experiment.infrastructure
    groups = {name: getattr(infrastructure, name) for name in GROUPS}
    return {
        name: {"volumes": group.volumes.model_dump(), "kernel": group.kernel.model_dump()}
        for name, group in groups.items()
        if group is not None
    }


def emulated(experiment: Experiment, point: str) -> tuple[EmulatedVolume, ...]:
    """The volumes the experiment gives its shard hosts; every point has its own, so that they can be an axis.

    The data volume is mounted where the processes have their folders, so that journal and log lie on it too unless they
    have volumes of their own.
    """
    group = experiment.infrastructure.shard_hosts
    return tuple(
        EmulatedVolume(
            name=name,
            image=f"volumes/{point}/{name}.img",
            mount=f"deployments/{point}" if name == "data" else f"volumes/{point}/{name}",
            size_gib=volume.size_gib,
            filesystem=volume.filesystem,
            lazy_init=volume.lazy_init,
            iops=volume.iops,
            throughput_mibps=volume.throughput_mibps,
            readahead_sectors=group.kernel.readahead_sectors if name == "data" else None,
        )
        for name, volume in group.volumes.named()
        if volume.type == "emulated"
    )


def too_small(point: Point) -> str | None:
    """Why a point does not fit on its data volume, None when it does or has none."""
    data = next((v for v in point.volumes if v.name == "data"), None)
    if data is None or point.disk_bytes <= data.size_gib * 2**30 * _USABLE:
        return None
    return (
        f"{point.label}: about {point.disk_bytes / 2**30:,.1f} GiB are written to the data volume, which has "
        f"{data.size_gib} GiB ({_USABLE:.0%} of it for files)"
    )


_USABLE = 0.93  # ext4 keeps 5 % for root and needs 1.6 % for inodes; XFS less
