"""The RunInstances request of a group: types, volumes, tags, user data, and the token that makes it safe to repeat."""

from __future__ import annotations

import hashlib
import json
import textwrap
from dataclasses import dataclass
from typing import Any

from microshard.backends.ec2.account import MachineImage
from microshard.backends.ec2.api import CloudError
from microshard.backends.ec2.spec import TAG_GROUP, TAG_SERVES, TAG_USER, FleetSpec, GroupSpec

_USER_DATA_BYTES = 16384  # EC2 user guide: raw user data

# A sleeping shell instead of a timer: the absolute time survives reboots, it needs neither logind nor D-Bus, ends at
# once when the time has passed while the host was off, and never wakes up during a measurement.
EXPIRY_SCRIPT = """\
#!/bin/sh
left=$(( {expires_at} - $(date +%s) ))
if [ "$left" -gt 0 ]; then sleep "$left"; fi
exec systemctl poweroff
"""
_SCRIPT_PATH = "/usr/local/sbin/microshard-expiry"
_UNIT = f"""\
[Unit]
Description=Power this host off when its run has expired

[Service]
ExecStart=/bin/sh {_SCRIPT_PATH}

[Install]
WantedBy=multi-user.target
"""
_UNIT_PATH = "/etc/systemd/system/microshard-expiry.service"


@dataclass(frozen=True, slots=True)
class TypeDescription:
    """What AWS says about an instance type."""

    name: str
    architecture: str
    cores: int
    threads_per_core: int
    valid_threads: tuple[int, ...]
    instance_store: bool
    instance_store_nvme: bool  # False: the disks appear only when they are mapped at launch
    ebs_nvme: bool  # False: an EBS volume appears under the name it is attached as, without a serial
    strategies: tuple[str, ...]  # of placement groups it supports
    ebs_shared: bool = False  # unless it is EBS-optimized on request, its volumes share the network's bandwidth

    @classmethod
    def of(cls, answer: dict[str, Any]) -> TypeDescription:
        """Read an entry of DescribeInstanceTypes."""
        cpu = answer["VCpuInfo"]
        store = answer.get("InstanceStorageInfo", {})
        return cls(
            name=str(answer["InstanceType"]),
            architecture=str(answer["ProcessorInfo"]["SupportedArchitectures"][-1]),
            cores=int(cpu.get("DefaultCores", cpu["DefaultVCpus"])),
            threads_per_core=int(cpu.get("DefaultThreadsPerCore", 1)),
            valid_threads=tuple(cpu.get("ValidThreadsPerCore", ())),
            instance_store=bool(answer.get("InstanceStorageSupported")),
            instance_store_nvme=store.get("NvmeSupport", "unsupported") != "unsupported",
            ebs_nvme=answer["EbsInfo"].get("NvmeSupport") == "required",
            strategies=tuple(answer.get("PlacementGroupInfo", {}).get("SupportedStrategies", ())),
            ebs_shared=answer["EbsInfo"].get("EbsOptimizedSupport") == "supported",
        )

    def check(self, group: GroupSpec, *, placement_group: bool) -> None:
        """Raise CloudError where the type lacks what the group needs; before anything is created."""
        threads = {*self.valid_threads, self.threads_per_core}
        problem = None
        if group.threads_per_core is not None and group.threads_per_core not in threads:
            valid = " or ".join(map(str, sorted(threads)))
            problem = "InvalidThreadsPerCore", f"takes {valid} threads per core, not {group.threads_per_core}"
        elif any(v.type == "instance_store" for v in group.volumes) and not self.instance_store:
            problem = "NoInstanceStore", "has no instance store"
        elif placement_group and "cluster" not in self.strategies:
            problem = "NoClusterPlacement", "cannot be in a cluster placement group"
        if problem:
            raise CloudError("DescribeInstanceTypes", problem[0], f"{self.name} {problem[1]}.")


@dataclass(frozen=True, slots=True)
class LaunchAttempt:
    """One way of launching a group."""

    group: GroupSpec
    count: int
    type: TypeDescription
    zone: str
    market: str  # on-demand or spot
    image: MachineImage
    subnet_id: str
    number: int = 1  # raised when a token has been used up by instances that are gone

    def __str__(self) -> str:
        return f"{self.count} x {self.type.name} {self.market} in {self.zone}"

    def token(self, run: str) -> str:
        """Return the client token, the same for the same launch of the same run: repeating it launches no more."""
        key = (run, self.group.name, self.zone, self.type.name, self.market, self.count, self.number)
        return hashlib.sha256("|".join(map(str, key)).encode()).hexdigest()  # 64 characters, EC2's maximum


def run_instances(
    spec: FleetSpec, attempt: LaunchAttempt, *, security_group: str, placement_group: str | None, user_data: str
) -> dict[str, Any]:
    """Return the parameters of RunInstances."""
    group = attempt.group
    interface = {
        "DeviceIndex": 0,
        "SubnetId": attempt.subnet_id,
        "Groups": [security_group],
        "AssociatePublicIpAddress": spec.public_addresses,
        "DeleteOnTermination": True,
    }
    tagged = ["instance", "volume", "network-interface"]
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
        "BlockDeviceMappings": _block_devices(attempt),
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "UserData": user_data,  # botocore encodes it
    }
    if attempt.type.ebs_shared and any(volume.type != "instance_store" for volume in group.volumes):
        parameters["EbsOptimized"] = True  # the bandwidth that the plan counts on
    if placement_group is not None:
        parameters["Placement"] = {"GroupName": placement_group}
    if group.threads_per_core is not None and group.threads_per_core != attempt.type.threads_per_core:
        parameters["CpuOptions"] = {"CoreCount": attempt.type.cores, "ThreadsPerCore": group.threads_per_core}
    if attempt.market == "spot":
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        parameters["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
        tagged.append("spot-instances-request")
    parameters["TagSpecifications"] = [{"ResourceType": kind, "Tags": tags} for kind in tagged]
    return parameters


def _block_devices(attempt: LaunchAttempt) -> list[dict[str, Any]]:
    mappings: list[dict[str, Any]] = []
    ephemeral = 0
    for volume in (attempt.group.root_volume, *attempt.group.volumes):
        device = attempt.image.root_device if volume.purpose == "root" else volume.device
        if volume.type == "instance_store":
            if not attempt.type.instance_store_nvme:
                mappings.append({"DeviceName": device, "VirtualName": f"ephemeral{ephemeral}"})
                ephemeral += 1
            continue
        ebs = {"VolumeType": volume.type, "VolumeSize": volume.size_gib, "Encrypted": True, "DeleteOnTermination": True}
        if volume.iops is not None:
            ebs["Iops"] = volume.iops
        if volume.throughput_mibps is not None:
            ebs["Throughput"] = volume.throughput_mibps
        mappings.append({"DeviceName": device, "Ebs": ebs})
    return mappings


def user_data(host_private: str, host_public: str, expires_at: int) -> str:
    """Return the cloud-config of a host: a known ed25519 host key, and a power-off at `expires_at` (epoch seconds).

    Powering off terminates the instance (InstanceInitiatedShutdownBehavior), even if the controller never comes back.
    The image's host keys are removed and, as keys are given, cloud-init generates no others: only the known key is
    ever offered. Raises ValueError when the text is longer than EC2 accepts.
    """
    text = "\n".join(
        (
            "#cloud-config",
            "ssh_deletekeys: true",
            "ssh_keys:",
            "  ed25519_private: |",
            textwrap.indent(host_private.strip(), "    "),
            f"  ed25519_public: {json.dumps(host_public)}",
            "write_files:",
            *_file(_SCRIPT_PATH, "0755", EXPIRY_SCRIPT.format(expires_at=expires_at)),
            *_file(_UNIT_PATH, "0644", _UNIT),
            "runcmd:",
            "  - [systemctl, daemon-reload]",
            "  - [systemctl, enable, --now, --no-block, microshard-expiry.service]",
            "",
        )
    )
    if len(text.encode()) > _USER_DATA_BYTES:
        raise ValueError(f"user data has {len(text.encode())} bytes, EC2 accepts {_USER_DATA_BYTES}")
    return text


def _file(path: str, mode: str, content: str) -> tuple[str, ...]:
    body = textwrap.indent(content.rstrip(), "      ")
    return f"  - path: {path}", f"    permissions: '{mode}'", "    content: |", body
