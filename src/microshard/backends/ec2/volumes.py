"""Volumes read back after launch: what is there must be what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from microshard.backends.ec2.api import Api
from microshard.backends.ec2.errors import LaunchError
from microshard.backends.ec2.spec import VolumeSpec

_IDS = 200  # ids asked for in one call
_GP3_IOPS = 3000  # a gp3 volume's own rates (EBS user guide); MiB/s
_GP3_THROUGHPUT = 125


@dataclass(frozen=True, slots=True)
class HostVolume:
    """A volume of a host as EC2 says it is. Units: GiB, IOPS, MiB/s."""

    purpose: str  # root, data, journal or log
    id: str  # empty for instance store
    serial: str  # of the NVMe disk: the id without its dash; empty for instance store
    device: str  # as attached; Nitro hosts name disks otherwise, so they are found by serial
    type: str
    size_gib: int
    iops: int | None
    throughput_mibps: int | None


def read_back(
    api: Api, instances: Sequence[dict[str, Any]], wanted: Mapping[str, Sequence[VolumeSpec]], roots: Mapping[str, str]
) -> dict[str, tuple[HostVolume, ...]]:
    """The volumes of every instance, once all are attached, by instance id.

    Raises LaunchError: VolumeNotAttached when one does not attach in time, VolumeMismatch with every difference.
    """
    facts: dict[str, dict[str, Any]] = {}
    devices = {str(i["InstanceId"]): _devices(i) for i in instances}
    missing = list[str]()
    for _ in api.patience.looks(api.patience.launch):
        ids = sorted({v for by_device in devices.values() for v in by_device.values()})
        facts = {v["VolumeId"]: v for v in _describe(api, ids)}
        missing = _not_attached(devices, wanted, roots, facts)
        if not missing:
            break
        if any("has no volume" in problem for problem in missing):
            devices = _look_again(api, list(devices))
    else:
        raise LaunchError(
            "DescribeVolumes", "VolumeNotAttached", f"after {api.patience.launch:.0f} s: {'; '.join(missing)}."
        )
    found = {name: tuple(_volumes(by_device, wanted[name], roots[name], facts)) for name, by_device in devices.items()}
    problems = [p for name, volumes in found.items() for p in _differences(name, volumes, wanted[name], facts)]
    if problems:
        raise LaunchError("DescribeVolumes", "VolumeMismatch", f"{'; '.join(problems)}.")
    return found


def _devices(instance: dict[str, Any]) -> dict[str, str]:
    return {m["DeviceName"]: m["Ebs"]["VolumeId"] for m in instance.get("BlockDeviceMappings", ()) if "Ebs" in m}


def _look_again(api: Api, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    from microshard.backends.ec2.launch import describe  # noqa: PLC0415 (launch knows nothing of volumes)

    return {str(i["InstanceId"]): _devices(i) for i in describe(api, ids)}


def _describe(api: Api, ids: Sequence[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for start in range(0, len(ids), _IDS):
        chosen = {"Name": "volume-id", "Values": list(ids[start : start + _IDS])}
        found += api.pages("describe_volumes", "Volumes", Filters=[chosen], MaxResults=1000)
    return found


def _not_attached(
    devices: Mapping[str, Mapping[str, str]],
    wanted: Mapping[str, Sequence[VolumeSpec]],
    roots: Mapping[str, str],
    facts: Mapping[str, dict[str, Any]],
) -> list[str]:
    problems = []
    for name, by_device in devices.items():
        for device in [roots[name], *(v.device for v in wanted[name] if v.type != "instance_store")]:
            if device not in by_device:
                problems.append(f"{name} has no volume at {device}")
                continue
            volume = facts.get(by_device[device])
            states = [a.get("State") for a in volume.get("Attachments", ())] if volume else []
            if states != ["attached"]:
                problems.append(
                    f"{by_device[device]} at {device} of {name} is {states[0] if states else 'not attached'}"
                )
    return problems


def _volumes(
    by_device: Mapping[str, str], wanted: Sequence[VolumeSpec], root: str, facts: Mapping[str, dict[str, Any]]
) -> list[HostVolume]:
    purposes = {root: "root", **{v.device: v.purpose for v in wanted if v.type != "instance_store"}}
    found = []
    for device, purpose in purposes.items():
        volume = facts[by_device[device]]
        identity = str(volume["VolumeId"])
        found.append(
            HostVolume(
                purpose=purpose,
                id=identity,
                serial=identity.replace("-", ""),
                device=device,
                type=str(volume["VolumeType"]),
                size_gib=int(volume["Size"]),
                iops=volume.get("Iops"),
                throughput_mibps=volume.get("Throughput"),
            )
        )
    found += [
        HostVolume(v.purpose, "", "", v.device, v.type, v.size_gib, None, None)
        for v in wanted
        if v.type == "instance_store"
    ]
    return found


def _differences(
    name: str, found: Sequence[HostVolume], wanted: Sequence[VolumeSpec], facts: Mapping[str, dict[str, Any]]
) -> list[str]:
    by_device = {v.device: v for v in found}
    problems = [f"{v.id} of {name} is not encrypted" for v in found if v.id and not facts[v.id].get("Encrypted")]
    for wish in wanted:
        if wish.type == "instance_store":
            continue
        own = by_device[wish.device]
        gp3 = wish.type == "gp3"
        asked: dict[str, Any] = {
            "type": (wish.type, own.type),
            "GiB": (wish.size_gib, own.size_gib),
            "IOPS": (wish.iops or (_GP3_IOPS if gp3 else own.iops), own.iops),
            "MiB/s": (
                wish.throughput_mibps or (_GP3_THROUGHPUT if gp3 else own.throughput_mibps),
                own.throughput_mibps,
            ),
        }
        problems += [
            f"{wish.purpose} volume {own.id} of {name}: {key} is {has}, asked for {want}"
            for key, (want, has) in asked.items()
            if want != has
        ]
    return problems
