"""What the real EC2 refuses and moto accepts: the order of deletion, and what may be launched."""

import base64
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from microshard.model.ec2_facts import ebs_types

from .account import Region
from .wire import ApiError, Call

_USER_DATA_BYTES = 16384


def check_deletion(call: Call, region: Region) -> None:
    """Raise ApiError where something else still depends on what is to be deleted."""
    backend = region.backend
    match call.action:
        case "DeleteSecurityGroup":
            group = call.get("GroupId")
            used = any(group in {g.id for g in eni.group_set} for eni in backend.enis.values())
            named = any(
                rule.source_group.get("GroupId") == group
                for by_id in backend.groups.values()
                for other in by_id.values()
                if other.id != group
                for rule in [*other.ingress_rules, *other.egress_rules]
            )
            if used or named:
                raise ApiError("DependencyViolation", f"resource {group} has a dependent object")
        case "DeleteSubnet":
            subnet = call.get("SubnetId")
            if any(eni.subnet.id == subnet for eni in backend.enis.values()):
                raise ApiError("DependencyViolation", f"The subnet '{subnet}' has dependencies and cannot be deleted.")
        case "DeleteVpc":
            vpc = call.get("VpcId")
            gateways = any(g.vpc is not None and g.vpc.id == vpc for g in backend.internet_gateways.values())
            groups = any(g.name != "default" for g in backend.groups.get(vpc, {}).values())
            if gateways or groups:
                raise ApiError("DependencyViolation", f"The vpc '{vpc}' has dependencies and cannot be deleted.")
        case "DetachInternetGateway":
            vpc = call.get("VpcId")
            if any(eni.subnet.vpc_id == vpc and eni.public_ip for eni in backend.enis.values()):
                raise ApiError(
                    "DependencyViolation",
                    f"Network {vpc} has some mapped public address(es). Please unmap those public address(es) first.",
                )


def zone_of(call: Call, region: Region) -> str:
    """The zone a launch goes to; empty for other calls and unknown subnets."""
    if call.action != "RunInstances":
        return ""
    subnet_id = call.get("NetworkInterface.1.SubnetId") or call.get("SubnetId")
    for zone, subnets in region.backend.subnets.items():
        if subnet_id in subnets:
            return str(zone)
    return call.get("Placement.AvailabilityZone")


def check_launch(call: Call, region: Region, quota: int | None) -> None:
    """Raise ApiError where the real RunInstances would refuse."""
    facts = _facts(call)
    _check_image(call, region, facts)
    if call.get("KeyName") and call.get("KeyName") not in region.backend.key_pairs:
        raise ApiError("InvalidKeyPair.NotFound", f"The key pair '{call.get('KeyName')}' does not exist")
    if call.members("NetworkInterface") and (call.values("SecurityGroupId") or call.get("SubnetId")):
        raise ApiError(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on the same request",
        )
    if len(base64.b64decode(call.get("UserData"))) > _USER_DATA_BYTES:
        raise ApiError("InvalidParameterValue", f"User data is limited to {_USER_DATA_BYTES} bytes")
    _check_zone(call, region)
    _check_placement(call, region, facts)
    _check_processor(call, facts)
    if call.get("EbsOptimized") == "true" and facts["EbsInfo"]["EbsOptimizedSupport"] == "unsupported":
        raise ApiError("Unsupported", "EBS-optimized instances are not supported for your requested configuration.")
    _check_volumes(call, region.backend.amis[call.get("ImageId")])
    if call.tags("spot-instances-request") and call.get("InstanceMarketOptions.MarketType") != "spot":
        raise ApiError("InvalidParameterValue", "'spot-instances-request' is not a valid taggable resource type here")
    if quota is not None:
        running = sum(
            INSTANCE_TYPES[i.instance_type]["VCpuInfo"]["DefaultVCpus"]
            for i in region.instances().values()
            if i.state in {"pending", "running"}
        )
        wanted = int(call.get("MaxCount")) * facts["VCpuInfo"]["DefaultVCpus"]
        if running + wanted > quota:
            raise ApiError(
                "VcpuLimitExceeded",
                f"You have requested more vCPU capacity than your current vCPU limit of {quota} allows for the "
                "instance bucket that the specified instance type belongs to.",
            )


def _root_of(image: Any) -> tuple[str, int]:
    """The root device of an image and its snapshot's size in GiB, as DescribeImages shows them."""
    sizes = {mapping["DeviceName"]: int(mapping["Ebs"]["VolumeSize"]) for mapping in image.block_device_mappings}
    return image.root_device_name, sizes.get(image.root_device_name, 0)


def _facts(call: Call) -> dict[str, Any]:
    name = call.get("InstanceType")
    if name not in INSTANCE_TYPES:
        raise ApiError("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
    facts: dict[str, Any] = INSTANCE_TYPES[name]
    return facts


def _check_image(call: Call, region: Region, facts: dict[str, Any]) -> None:
    image = region.backend.amis.get(call.get("ImageId"))
    if image is None:
        raise ApiError("InvalidAMIID.NotFound", f"The image id '[{call.get('ImageId')}]' does not exist")
    if image.architecture not in facts["ProcessorInfo"]["SupportedArchitectures"]:
        raise ApiError(
            "InvalidParameterValue",
            "The architecture of the specified instance type does not match the architecture "
            f"'{image.architecture}' of the specified AMI.",
        )


def _check_zone(call: Call, region: Region) -> None:
    zone = zone_of(call, region)
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region.name, [])
    if zone and not any(o["Location"] == zone and o["InstanceType"] == call.get("InstanceType") for o in offered):
        raise ApiError(
            "Unsupported",
            f"Your requested instance type ({call.get('InstanceType')}) is not supported in your requested "
            f"Availability Zone ({zone}).",
        )


def _check_placement(call: Call, region: Region, facts: dict[str, Any]) -> None:
    name = call.get("Placement.GroupName")
    if not name:
        return
    if name not in region.placement:
        raise ApiError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    strategy = region.placement[name].strategy
    if strategy not in facts["PlacementGroupInfo"]["SupportedStrategies"]:
        raise ApiError(
            "InvalidParameterCombination",
            f"{strategy.capitalize()} placement groups are not supported by '{call.get('InstanceType')}'.",
        )


def _check_processor(call: Call, facts: dict[str, Any]) -> None:
    cores, threads = call.get("CpuOptions.CoreCount"), call.get("CpuOptions.ThreadsPerCore")
    if not cores and not threads:
        return
    if not (cores and threads):
        raise ApiError("InvalidParameterCombination", "CoreCount and ThreadsPerCore must be specified together")
    cpu = facts["VCpuInfo"]
    if int(cores) not in cpu.get("ValidCores", []) or int(threads) not in cpu.get("ValidThreadsPerCore", []):
        raise ApiError(
            "InvalidParameterValue", f"CpuOptions {cores}x{threads} are not valid for {call.get('InstanceType')}."
        )


def _check_volumes(call: Call, image: Any) -> None:
    root, least = _root_of(image)
    for mapping in call.members("BlockDeviceMapping"):
        _check_volume(mapping)
        if mapping.get("DeviceName") == root and int(mapping.get("Ebs.VolumeSize", least)) < least:
            message = f"Volume of size {mapping['Ebs.VolumeSize']}GB is smaller than snapshot, expect size >= {least}GB"
            raise ApiError("InvalidBlockDeviceMapping", message)
    names = [m.get("DeviceName") for m in call.members("BlockDeviceMapping")]
    if len(set(names)) != len(names):
        raise ApiError("InvalidBlockDeviceMapping", "The device is used in more than one block-device mapping")


def _check_volume(mapping: dict[str, str]) -> None:
    if "VirtualName" in mapping or "NoDevice" in mapping:
        return
    kind = mapping.get("Ebs.VolumeType", "gp2")
    limits = ebs_types().get(kind)
    if limits is None:
        raise ApiError("InvalidParameterValue", f"Invalid volume type: {kind}")
    size = int(mapping.get("Ebs.VolumeSize", "8"))
    low, high = limits.gib
    if not low <= size <= high:
        raise ApiError("InvalidParameterValue", f"Volume of {size}GiB is not in the limits {low} to {high} of {kind}")
    iops, throughput = mapping.get("Ebs.Iops"), mapping.get("Ebs.Throughput")
    if iops is None and limits.iops_required:
        raise ApiError("MissingParameter", f"The parameter iops must be specified for {kind} volumes.")
    for name, value, range_ in (("iops", iops, limits.iops), ("throughput", throughput, limits.mibps)):
        if value is not None and range_ is None:
            raise ApiError("InvalidParameterCombination", f"The parameter {name} is not supported for {kind} volumes.")
    if iops is not None and limits.iops and not limits.iops[0] <= int(iops) <= limits.highest_iops(size):
        raise ApiError("InvalidParameterCombination", f"{iops} IOPS are not possible for {kind} of {size} GiB")
    provisioned = int(iops) if iops is not None else None
    most = limits.highest_mibps(provisioned)
    if throughput is not None and limits.mibps and not limits.mibps[0] <= int(throughput) <= most:
        raise ApiError("InvalidParameterCombination", f"Throughput {throughput} does not fit {iops} IOPS")
