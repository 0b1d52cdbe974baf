"""Launch instances where there is capacity, wait until they run, and compare their volumes with what was requested."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from microshard.backends.ec2.account import MachineImage
from microshard.backends.ec2.api import (
    CAPACITY,
    SPOT_CAPACITY,
    Api,
    CapacityError,
    CloudError,
    LaunchError,
    advice,
    is_unclear,
)
from microshard.backends.ec2.network import FleetNetwork, NetworkBuilder
from microshard.backends.ec2.request import LaunchAttempt, TypeDescription, run_instances
from microshard.backends.ec2.resources import record_created, record_creating
from microshard.backends.ec2.spec import FleetSpec, GroupSpec, VolumeSpec
from microshard.model.ec2_facts import ebs_types
from microshard.records.run_folder import Ledger

Instance = dict[str, Any]  # as DescribeInstances shows it
_ENDED = {"shutting-down", "terminated", "stopping", "stopped"}
_IDS = 200  # ids in one call
MARKETS = {"on_demand": ["on-demand"], "spot": ["spot"], "spot_or_on_demand": ["spot", "on-demand"]}


class _NoCapacityError(Exception):
    def __init__(self, group: GroupSpec, code: str) -> None:
        super().__init__(group.name)
        self.group = group
        self.code = code


@dataclass(slots=True)
class Launcher:
    """Launches all groups of a fleet into one zone."""

    api: Api
    spec: FleetSpec
    ledger: Ledger
    builder: NetworkBuilder
    network: FleetNetwork
    types: Mapping[str, TypeDescription]
    images: Mapping[tuple[str, str], MachineImage]  # by name in the experiment and architecture
    offered: Mapping[str, Sequence[str]]  # zones by type
    zones: list[str]
    user_data: str
    failed_attempts: list[str] = field(default_factory=list)

    def launch(self, existing: Mapping[str, Sequence[str]], zone: str | None) -> dict[str, list[str]]:
        """Return the ids of running instances by group; `existing` ones run already, in `zone`.

        All hosts are in one zone: the first that has room for all of them. What was launched in a zone that has not is
        terminated before the next is tried. When no zone has room, the group that found none goes on to its next type.
        Raises CapacityError when every allowed way was tried, LaunchError and CloudError.
        """
        choice = {g.name: 0 for g in self.spec.groups}
        while True:
            failed: _NoCapacityError | None = None
            types = [g.instance_types[choice[g.name]] for g in self.spec.groups]
            for candidate in [zone] if zone else self.zones:
                if all(candidate in self.offered[name] for name in types):
                    try:
                        return self._launch_in(candidate, choice, existing)
                    except _NoCapacityError as problem:
                        failed = problem
            if failed is None:
                message = f"no zone of {self.api.region} offers {', '.join(types)}"
                raise CapacityError("the fleet", "Unsupported", [message])
            if choice[failed.group.name] + 1 >= len(failed.group.instance_types):
                raise CapacityError(failed.group.name, failed.code, self.failed_attempts)
            choice[failed.group.name] += 1

    def _launch_in(
        self, zone: str, choice: Mapping[str, int], existing: Mapping[str, Sequence[str]]
    ) -> dict[str, list[str]]:
        launched: dict[str, list[str]] = {}
        try:
            for group in self.spec.groups:
                missing = group.count - len(existing.get(group.name, ()))
                if missing > 0:
                    instance_type = self.types[group.instance_types[choice[group.name]]]
                    launched[group.name] = self._launch_group(group, missing, instance_type, zone)
            ids = {g.name: [*existing.get(g.name, ()), *launched.get(g.name, ())] for g in self.spec.groups}
            self._wait_running(ids)
        except _NoCapacityError:
            self._terminate([i for group_ids in launched.values() for i in group_ids])
            raise
        return ids

    def _launch_group(self, group: GroupSpec, count: int, instance_type: TypeDescription, zone: str) -> list[str]:
        subnet = self.builder.ensure_subnet(self.network, zone, self.zones)
        image = self.images[group.image, instance_type.architecture]
        code = ""
        for market in MARKETS[group.market]:
            attempt = LaunchAttempt(group, count, instance_type, zone, market, image, subnet)
            try:
                return self._run(attempt)
            except CloudError as error:
                if error.code not in (SPOT_CAPACITY if market == "spot" else CAPACITY):
                    raise
                code = error.code
                self.failed_attempts.append(f"{attempt}: {error.code}")
        raise _NoCapacityError(group, code)

    def _run(self, attempt: LaunchAttempt) -> list[str]:
        """Call RunInstances, again with the same token while it is unclear whether it has worked."""
        problem: CloudError | None = None
        tries, number = 0, 1
        while tries < self.api.retry.attempts:
            attempt = dataclasses.replace(attempt, number=number)
            parameters = run_instances(
                self.spec, attempt, security_group=self.network.security_group,
                placement_group=self.network.placement_group, user_data=self.user_data,
            )  # fmt: skip
            name = f"{attempt.group.name}-{parameters['ClientToken'][:12]}"
            record_creating(
                self.ledger, "instance", name, run=self.spec.run, region=self.api.region, count=attempt.count,
                token=parameters["ClientToken"], attempt=str(attempt),
            )  # fmt: skip
            try:
                answer = self.api.call_when_visible("run_instances", creates=True, **parameters)
            except CloudError as error:
                if error.code == "IdempotentParameterMismatch":
                    number += 1  # the token of an earlier run of this command, with another request
                elif is_unclear(error):
                    self.api.retry.back_off(tries)
                    tries += 1
                else:
                    record_created(self.ledger, "instance", name, [])
                    raise
                problem = error
                continue
            instances = answer["Instances"]
            ids = [str(i["InstanceId"]) for i in instances]
            record_created(self.ledger, "instance", name, ids)
            if all(i["State"]["Name"] not in _ENDED for i in instances):
                return ids
            number += 1  # the token stands for instances that are gone
        raise problem or CloudError("RunInstances", "NoAttempts", "RetryPolicy.attempts is 0")

    def _wait_running(self, ids: Mapping[str, Sequence[str]]) -> None:
        group_of = {i: group for group in self.spec.groups for i in ids[group.name]}
        pending: list[str] = []
        for _ in self.api.retry.polls(self.api.retry.launch):
            states = dict.fromkeys(group_of, "not visible")
            for instance in describe_instances(self.api, list(group_of)):
                identity = str(instance["InstanceId"])
                states[identity] = str(instance["State"]["Name"])
                if states[identity] in _ENDED:
                    self._raise_ended(instance, group_of[identity])
            pending = [f"{identity} ({state})" for identity, state in states.items() if state != "running"]
            if not pending:
                return
        message = f"not running after {self.api.retry.launch:.0f} s: {', '.join(pending)}."
        raise LaunchError("RunInstances", "LaunchTimeout", message)

    def _raise_ended(self, instance: Instance, group: GroupSpec) -> None:
        reason = instance.get("StateReason", {})
        code = str(reason.get("Code", ""))
        if code in CAPACITY:
            self.failed_attempts.append(f"{group.name} {instance['InstanceId']}: {code}")
            raise _NoCapacityError(group, code)
        message = reason.get("Message") or code or "no reason given"
        raise LaunchError(
            "RunInstances", "InstanceEnded",
            f"{group.name}: {instance['InstanceId']} ended while it was starting: {message}. {advice(code)}".rstrip(),
        )  # fmt: skip

    def _terminate(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        self.api.call_when_visible("terminate_instances", InstanceIds=list(ids))
        for _ in self.api.retry.polls(self.api.retry.terminate):
            if all(i["State"]["Name"] == "terminated" for i in describe_instances(self.api, ids)):
                return
        raise LaunchError("TerminateInstances", "TerminateTimeout", f"not terminated: {', '.join(ids)}.")


def describe_instances(api: Api, ids: Sequence[str]) -> list[Instance]:
    """Return what DescribeInstances shows of these, without those that are not visible yet. Raises CloudError."""
    reservations = _describe(api, "describe_instances", "Reservations", "instance-id", ids)
    return [instance for reservation in reservations for instance in reservation["Instances"]]


def _describe(api: Api, action: str, key: str, id_filter: str, ids: Sequence[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for start in range(0, len(ids), _IDS):
        filters = [{"Name": id_filter, "Values": list(ids[start : start + _IDS])}]
        found += api.pages(action, key, Filters=filters, MaxResults=1000)
    return found


@dataclass(frozen=True, slots=True)
class HostVolume:
    """A volume of a host as EC2 describes it. Units: GiB, IOPS, MiB/s."""

    purpose: str  # root, data, journal or log
    id: str  # empty for instance store
    serial: str  # of the NVMe disk: the id without its dash; empty for instance store and where disks have none
    device: str  # as attached
    nvme: bool  # how the type shows such disks (model.ec2_facts, devices)
    type: str
    size_gib: int
    iops: int | None
    throughput_mibps: int | None

    @property
    def inventory_entry(self) -> dict[str, str] | None:
        """An entry of `microshard_volumes` (role host_storage): `serial`, or `device` where the disk has none.

        None for the NVMe disks of an instance store, which the role finds by their model.
        """
        if not self.nvme:
            return {"purpose": self.purpose, "device": self.device.replace("/dev/sd", "/dev/xvd")}
        return {"purpose": self.purpose, "serial": self.serial} if self.serial else None


def read_volumes(
    api: Api,
    instances: Sequence[Instance],
    requested: Mapping[str, Mapping[str, VolumeSpec]],
    types: Mapping[str, TypeDescription],
) -> dict[str, tuple[HostVolume, ...]]:
    """Wait until the volumes of every instance are attached, and return them by instance id.

    `requested` maps instance id → device → volume. Raises LaunchError: VolumeNotAttached when one does not attach in
    time, VolumeMismatch with every difference to what was requested.
    """
    described: dict[str, dict[str, Any]] = {}
    missing = list[str]()
    for _ in api.retry.polls(api.retry.launch):
        ids = {
            str(i["InstanceId"]): {
                m["DeviceName"]: m["Ebs"]["VolumeId"] for m in i.get("BlockDeviceMappings", ()) if "Ebs" in m
            }
            for i in instances
        }
        wanted = sorted({volume for by_device in ids.values() for volume in by_device.values()})
        described = {v["VolumeId"]: v for v in _describe(api, "describe_volumes", "Volumes", "volume-id", wanted)}
        missing = list(_not_attached(ids, requested, described))
        if not missing:
            break
        if any("has no volume" in problem for problem in missing):
            instances = describe_instances(api, list(ids))
    else:
        message = f"after {api.retry.launch:.0f} s: {'; '.join(missing)}."
        raise LaunchError("DescribeVolumes", "VolumeNotAttached", message)
    found, problems = {}, []
    type_of = {str(i["InstanceId"]): types[str(i["InstanceType"])] for i in instances}
    for name, by_device in requested.items():
        kind = type_of[name]
        volumes = []
        for device, spec in by_device.items():
            if spec.type == "instance_store":
                nvme = kind.instance_store_nvme
                volumes.append(HostVolume(spec.purpose, "", "", device, nvme, spec.type, spec.size_gib, None, None))
                continue
            found_volume = described[ids[name][device]]
            identity = str(found_volume["VolumeId"])
            volume = HostVolume(
                purpose=spec.purpose,
                id=identity,
                serial=identity.replace("-", "") if kind.ebs_nvme else "",
                device=device,
                nvme=kind.ebs_nvme,
                type=str(found_volume["VolumeType"]),
                size_gib=int(found_volume["Size"]),
                iops=found_volume.get("Iops"),
                throughput_mibps=found_volume.get("Throughput"),
            )
            volumes.append(volume)
            if not found_volume.get("Encrypted"):
                problems.append(f"{volume.id} of {name} is not encrypted")
            if spec.purpose != "root":
                problems += [f"{spec.purpose} volume {volume.id} of {name}: {p}" for p in _differences(spec, volume)]
        found[name] = tuple(volumes)
    if problems:
        raise LaunchError("DescribeVolumes", "VolumeMismatch", f"{'; '.join(problems)}.")
    return found


def _not_attached(
    ids: Mapping[str, Mapping[str, str]],
    requested: Mapping[str, Mapping[str, VolumeSpec]],
    described: Mapping[str, dict[str, Any]],
) -> Iterator[str]:
    for name, by_device in requested.items():
        for device in (device for device, spec in by_device.items() if spec.type != "instance_store"):
            volume = ids[name].get(device)
            if volume is None:
                yield f"{name} has no volume at {device}"
                continue
            states = [a.get("State") for a in described.get(volume, {}).get("Attachments", ())]
            if states != ["attached"]:
                yield f"{volume} at {device} of {name} is {states[0] if states else 'not attached'}"


def _differences(spec: VolumeSpec, found: HostVolume) -> Iterator[str]:
    limits = ebs_types()[spec.type]
    iops = limits.iops[0] if limits.iops and not limits.iops_required else found.iops
    throughput = limits.mibps[0] if limits.mibps else found.throughput_mibps
    for key, requested, actual in (
        ("type", spec.type, found.type),
        ("GiB", spec.size_gib, found.size_gib),
        ("IOPS", spec.iops or iops, found.iops),
        ("MiB/s", spec.throughput_mibps or throughput, found.throughput_mibps),
    ):
        if requested != actual:
            yield f"{key} is {actual}, requested {requested}"
