"""The RunInstances request of a group, and the token that makes it safe to repeat."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from microshard.backends.ec2.errors import CloudError
from microshard.backends.ec2.images import Image
from microshard.backends.ec2.spec import TAG_GROUP, TAG_SERVES, TAG_USER, FleetSpec, GroupSpec, VolumeSpec

_GROUP_TAGGED = ("instance", "volume", "network-interface")


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """What AWS says about an instance type."""

    name: str
    architecture: str
    cores: int
    threads_per_core: int
    valid_threads: tuple[int, ...]
    instance_store: bool
    instance_store_nvme: bool  # False: the disks appear only when they are mapped at launch
    strategies: tuple[str, ...]  # of placement groups it can be in

    @classmethod
    def of(cls, answer: dict[str, Any]) -> TypeFacts:
        """From an entry of DescribeInstanceTypes."""
        cpu = answer["VCpuInfo"]
        store = answer.get("InstanceStorageInfo", {})
        return cls(
            name=str(answer["InstanceType"]),
            architecture=str(answer["ProcessorInfo"]["SupportedArchitectures"][-1]),
            cores=int(cpu["DefaultCores"]) if "DefaultCores" in cpu else int(cpu["DefaultVCpus"]),
            threads_per_core=int(cpu.get("DefaultThreadsPerCore", 1)),
            valid_threads=tuple(cpu.get("ValidThreadsPerCore", ())),
            instance_store=bool(answer.get("InstanceStorageSupported")),
            instance_store_nvme=store.get("NvmeSupport", "unsupported") != "unsupported",
            strategies=tuple(answer.get("PlacementGroupInfo", {}).get("SupportedStrategies", ())),
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way of launching a group."""

    group: GroupSpec
    count: int
    type: TypeFacts
    zone: str
    market: str  # on-demand or spot
    image: Image
    subnet_id: str
    number: int = 1  # raised when a token has been used up by instances that are gone

    def __str__(self) -> str:
        return f"{self.count} x {self.type.name} {self.market} in {self.zone}"

    def token(self, run: str) -> str:
        """The client token: the same launch of the same run always has the same, so repeating it adds nothing."""
        what = (run, self.group.name, self.zone, self.type.name, self.market, self.count, self.number)
        return hashlib.sha256("|".join(map(str, what)).encode()).hexdigest()  # 64 characters, the most EC2 takes


def check(group: GroupSpec, facts: TypeFacts, *, placement: bool) -> None:
    """Raises CloudError where a type cannot be what the group asks of it; before anything is made."""
    if group.threads_per_core is not None and group.threads_per_core not in {
        *facts.valid_threads,
        facts.threads_per_core,
    }:
        raise CloudError(
            "DescribeInstanceTypes", "InvalidThreadsPerCore",
            f"{facts.name} takes {' or '.join(map(str, facts.valid_threads)) or facts.threads_per_core} threads "
            f"per core, not {group.threads_per_core}.",
        )  # fmt: skip
    if any(v.type == "instance_store" for v in group.volumes) and not facts.instance_store:
        raise CloudError("DescribeInstanceTypes", "NoInstanceStore", f"{facts.name} has no instance store.")
    if placement and "cluster" not in facts.strategies:
        raise CloudError(
            "DescribeInstanceTypes", "NoClusterPlacement", f"{facts.name} cannot be in a cluster placement group."
        )


def run_instances(
    spec: FleetSpec, attempt: Attempt, *, security_group: str, placement: str | None, user_data: str
) -> dict[str, Any]:
    """The parameters of RunInstances."""
    group = attempt.group
    interface = {
        "DeviceIndex": 0,
        "SubnetId": attempt.subnet_id,
        "Groups": [security_group],
        "AssociatePublicIpAddress": spec.public_addresses,
        "DeleteOnTermination": True,
    }
    kinds = [*_GROUP_TAGGED, *(["spot-instances-request"] if attempt.market == "spot" else [])]
    serves = " ".join(spec.serves(group.name))
    tags = spec.tags(**{TAG_GROUP: group.name, TAG_SERVES: serves, TAG_USER: attempt.image.user})
    parameters: dict[str, Any] = {
        "ImageId": attempt.image.id,
        "InstanceType": attempt.type.name,
        "MinCount": attempt.count,
        "MaxCount": attempt.count,
        "KeyName": spec.name,
        "ClientToken": attempt.token(spec.run),
        "NetworkInterfaces": [interface],
        "BlockDeviceMappings": _mappings(attempt),
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "UserData": user_data,  # botocore encodes it
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in kinds],
    }
    if placement is not None:
        parameters["Placement"] = {"GroupName": placement}
    if group.threads_per_core is not None and group.threads_per_core != attempt.type.threads_per_core:
        parameters["CpuOptions"] = {"CoreCount": attempt.type.cores, "ThreadsPerCore": group.threads_per_core}
    if attempt.market == "spot":
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        parameters["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    return parameters


def _mappings(attempt: Attempt) -> list[dict[str, Any]]:
    root = {"VolumeType": "gp3", "VolumeSize": attempt.group.root_gib, "Encrypted": True, "DeleteOnTermination": True}
    mappings: list[dict[str, Any]] = [{"DeviceName": attempt.image.root_device, "Ebs": root}]
    ephemeral = 0
    for volume in attempt.group.volumes:
        if volume.type == "instance_store":
            if not attempt.type.instance_store_nvme:
                mappings.append({"DeviceName": volume.device, "VirtualName": f"ephemeral{ephemeral}"})
                ephemeral += 1
            continue
        mappings.append({"DeviceName": volume.device, "Ebs": _ebs(volume)})
    return mappings


def _ebs(volume: VolumeSpec) -> dict[str, Any]:
    ebs: dict[str, Any] = {
        "VolumeType": volume.type,
        "VolumeSize": volume.size_gib,
        "Encrypted": True,
        "DeleteOnTermination": True,
    }
    if volume.iops is not None:
        ebs["Iops"] = volume.iops
    if volume.throughput_mibps is not None:
        ebs["Throughput"] = volume.throughput_mibps
    return ebs
