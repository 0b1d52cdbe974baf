"""What the hosts of a point are to be: volumes and kernel, or on one machine emulated volumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from microshard.memoize import memoize_by_identity
from microshard.model.experiment import Experiment
from microshard.model.infrastructure import Infrastructure
from microshard.model.plan import EmulatedVolume, Point
from microshard.plan.placement import GROUPS


@memoize_by_identity
def machines(infrastructure: Infrastructure) -> dict[str, dict[str, Any]]:
    """Group → volumes and kernel settings of its hosts with every default explicit, for the roles that prepare them."""
    groups = {name: getattr(infrastructure, name) for name in GROUPS}
    return {
        name: {"volumes": group.volumes.model_dump(), "kernel": group.kernel.model_dump()}
        for name, group in groups.items()
        if group is not None
    }


def varied(experiment: Experiment, first: Experiment) -> Iterator[tuple[str, str]]:
    """What of the hosts differs between two points: they are prepared once, before the first of all points."""
    before = machines(first.infrastructure)
    for group, wanted in machines(experiment.infrastructure).items():
        for part, value in wanted.items():
            if group in before and before[group][part] != value:
                yield (
                    f"infrastructure.{group}.{part}",
                    "hosts are prepared once for a run: it is no axis",
                )


HOST_VOLUMES = "/srv/microshard"  # where the role host_storage mounts all volumes but a single data volume


def homes(point: Point) -> dict[str, dict[str, str]]:
    """Process → purpose → name of the volume of its host that holds it, where that is not the one of the run's folder.

    A data volume that is one filesystem is where the run's folder lies; of several each data-bearing process of a host
    gets one, in turns, and its journal and log likewise.
    """
    found: dict[str, dict[str, str]] = {}
    turns: Counter[str] = Counter()
    for process in point.processes:
        turn = turns[process.host]
        turns[process.host] += process.role not in {"config", "mongos"}
        here = found.setdefault(process.name, {})
        for purpose, volume in _volumes(point, process.host).items():
            if process.db_path is None and purpose != "log":
                continue
            if volume["policy"] == "per_shard":
                here[purpose] = f"{purpose}-{turn % volume['count'] + 1:02d}"
            elif purpose != "data":
                here[purpose] = purpose
    return found


def _volumes(point: Point, host: str) -> dict[str, Any]:
    """data, journal and log of a host, those there are: of the first of its groups that says something."""
    groups = next((h.groups for h in point.hosts if h.name == host), ())  # none where the point is without the host
    group = next((name for name in GROUPS if name in groups and name in point.machines), None)
    wanted = point.machines[group]["volumes"] if group else {}
    return {name: volume for name, volume in wanted.items() if volume}


def data_room(point: Point, host: str) -> int | None:
    """Bytes for files on the data volumes a host is given; None where it keeps the files on what it has."""
    volume = _volumes(point, host).get("data")
    return int(volume["size_gib"] * volume["count"] * 2**30 * _USABLE) if volume else None


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
