"""Calls moto does not have or is too lenient with: launches, placement groups, spot, termination, SSM, quotas."""

import base64
import fnmatch
import hashlib
import json
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from microshard.model.ec2_facts import ebs_types

from .account import ACCOUNT, IMAGES, Launch, PlacementGroup, Region, SpotRequest
from .rules import check_launch
from .wire import NAMESPACE, Answer, ApiError, Call, element, items, json_answer, result, tag_set

Forward = Callable[[Call], Answer]

_ROOT_GIB = 8
# Services that speak JSON.
JSON = {"ssm", "servicequotas", "pricing"}
_DEFAULT_QUOTA = 1152  # vCPUs, unless a test sets another
ANSWERED_HERE = {
    "CreatePlacementGroup",
    "DescribePlacementGroups",
    "DeletePlacementGroup",
    "DescribeSpotInstanceRequests",
    "CancelSpotInstanceRequests",
    "TerminateInstances",
}


def answer(call: Call, region: Region) -> Answer:
    """Carry out one of the calls in ANSWERED_HERE. Raises ApiError."""
    match call.action:
        case "CreatePlacementGroup":
            group = region.create_placement_group(
                call.get("GroupName"), call.get("Strategy", "cluster"), call.tags("placement-group")
            )
            return result(
                call.action, element("return", value=True) + f"<placementGroup>{_group(group)}</placementGroup>"
            )
        case "DescribePlacementGroups":
            return result(call.action, items("placementGroupSet", map(_group, _groups(call, region))))
        case "DeletePlacementGroup":
            region.delete_placement_group(call.get("GroupName"))
            return result(call.action, element("return", value=True))
        case "DescribeSpotInstanceRequests":
            return result(call.action, items("spotInstanceRequestSet", map(_spot, _requests(call, region))))
        case "CancelSpotInstanceRequests":
            return _cancel(call, region)
        case _:
            return _terminate(call, region)


def ssm(call: Call, region: Region, body: bytes) -> Answer:
    """GetParameter for the public parameters of Linux distributions. Raises ApiError."""
    name = json.loads(body).get("Name", "")
    if call.action != "GetParameter":
        raise ApiError("UnknownOperationException", call.action)
    if name not in IMAGES:
        raise ApiError("ParameterNotFound", "")
    parameter = {"Name": name, "Type": "String", "Value": IMAGES[name][0], "Version": 1, "DataType": "text"}
    return json_answer({"Parameter": parameter})


def service_quota(call: Call, body: bytes, vcpus: int | None, *, applied: bool) -> Answer:
    """GetServiceQuota and GetAWSDefaultServiceQuota for the vCPUs of EC2 and the VPCs of a region. Raises ApiError."""
    request = json.loads(body)
    known = {"GetAWSDefaultServiceQuota", *(["GetServiceQuota"] if applied else [])}
    if call.action not in known or request.get("ServiceCode") not in {"ec2", "vpc"}:
        raise ApiError("NoSuchResourceException", call.action)
    value = 5.0 if request["ServiceCode"] == "vpc" else float(_DEFAULT_QUOTA if vcpus is None else vcpus)
    quota = {"ServiceCode": request["ServiceCode"], "QuotaCode": request["QuotaCode"], "Value": value, "Unit": "None"}
    return json_answer({"Quota": quota})


def products(call: Call, body: bytes, prices: dict[str, float]) -> Answer:
    """GetProducts of the price list, for what an instance or the capacity of a volume is billed as. Raises ApiError.

    A volume type is an attribute of other products, too, of provisioned IOPS for one: `productFamily` tells them apart.
    """
    request = json.loads(body)
    wanted = {each["Field"]: each["Value"] for each in request["Filters"]}
    billed = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
    known = billed.items() <= wanted.items() or wanted.get("productFamily") == "Storage"
    if call.action != "GetProducts" or request["ServiceCode"] != "AmazonEC2" or not known:
        raise ApiError("InvalidParameterException", call.action)
    if call.region not in {"us-east-1", "eu-central-1", "ap-south-1"}:
        raise ApiError("EndpointConnectionError", f"the price list has no endpoint in {call.region}")
    name = wanted.get("instanceType") or wanted["volumeApiName"]
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{prices[name]:.10f}"}} if name in prices else {}
    product = {"terms": {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": dimension}}}}}
    return json_answer({"FormatVersion": "aws_v1", "PriceList": [json.dumps(product)] if dimension else []})


def identity() -> Answer:
    """GetCallerIdentity."""
    arn = f"arn:aws:iam::{ACCOUNT}:user/tester"
    inner = element("Arn", arn) + element("UserId", "AIDATESTER") + element("Account", ACCOUNT)
    text = (
        '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
        f"<GetCallerIdentityResult>{inner}</GetCallerIdentityResult></GetCallerIdentityResponse>"
    )
    return Answer(text.encode())


def _passes(filters: dict[str, list[str]], tags: dict[str, str], facts: dict[str, str]) -> bool:
    for name, patterns in filters.items():
        value = tags.get(name[4:]) if name.startswith("tag:") else facts.get(name)
        if name == "tag-key":
            if not any(fnmatch.fnmatchcase(k, p) for k in tags for p in patterns):
                return False
        elif value is None or not any(fnmatch.fnmatchcase(value, p) for p in patterns):
            return False
    return True


def _groups(call: Call, region: Region) -> Iterable[PlacementGroup]:
    for name in call.values("GroupName"):
        if name not in region.placement or name in region.hidden:
            raise ApiError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
    wanted = set(call.values("GroupName"))
    return [
        g
        for g in region.placement.values()
        if (not wanted or g.name in wanted)
        and g.id not in region.hidden
        and _passes(call.filters(), g.tags, {"group-name": g.name, "strategy": g.strategy, "state": "available"})
    ]


def _group(group: PlacementGroup) -> str:
    return (
        element("groupName", group.name)
        + element("groupId", group.id)
        + element("strategy", group.strategy)
        + element("state", "available")
        + tag_set(group.tags)
    )


def _requests(call: Call, region: Region) -> Iterable[SpotRequest]:
    wanted = set(call.values("SpotInstanceRequestId"))
    unknown = wanted - set(region.spot) or wanted & set(region.hidden)
    if unknown:
        raise ApiError(
            "InvalidSpotInstanceRequestID.NotFound", f"The spot instance request ID '{min(unknown)}' does not exist"
        )
    return [
        s
        for s in region.spot.values()
        if (not wanted or s.id in wanted)
        and s.id not in region.hidden
        and _passes(call.filters(), s.tags, {"state": s.state, "instance-id": s.instance})
    ]


def _spot(request: SpotRequest) -> str:
    return (
        element("spotInstanceRequestId", request.id)
        + element("state", request.state)
        + element("instanceId", request.instance)
        + element("type", "one-time")
        + tag_set(request.tags)
    )


def _cancel(call: Call, region: Region) -> Answer:
    ended = []
    for name in call.values("SpotInstanceRequestId"):
        if name not in region.spot:
            raise ApiError(
                "InvalidSpotInstanceRequestID.NotFound", f"The spot instance request ID '{name}' does not exist"
            )
        region.spot[name].state = "cancelled"  # its instance runs on (RequestSpotInstances, CancelSpotInstanceRequests)
        ended.append(element("spotInstanceRequestId", name) + element("state", "cancelled"))
    return result(call.action, items("spotInstanceRequestSet", ended))


def _terminate(call: Call, region: Region) -> Answer:
    instances = region.instances()
    wanted = call.values("InstanceId")
    unknown = [name for name in wanted if name not in instances or name in region.hidden]
    if unknown:
        listed = ", ".join(unknown)
        noun = "ID" if len(unknown) == 1 else "IDs"
        verb = "does" if len(unknown) == 1 else "do"
        raise ApiError("InvalidInstanceID.NotFound", f"The instance {noun} '{listed}' {verb} not exist")
    entries = []
    for name in wanted:
        before = region.terminate(instances[name], "Client.UserInitiatedShutdown")
        code = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48}[before]
        after = ("terminated", 48) if before == "terminated" else ("shutting-down", 32)
        entries.append(
            element("instanceId", name)
            + f"<currentState>{element('code', after[1])}{element('name', after[0])}</currentState>"
            + f"<previousState>{element('code', code)}{element('name', before)}</previousState>"
        )
    return result(call.action, items("instancesSet", entries))


def run_instances(call: Call, region: Region, quota: int | None, forward: Forward) -> Answer:
    """Launch, or answer again with what this client token has launched already."""
    token = call.get("ClientToken")
    fingerprint = _fingerprint(call)
    known = region.tokens.get(token) if token else None
    if known is not None:
        if known.fingerprint != fingerprint:
            raise ApiError(
                "IdempotentParameterMismatch",
                "The client token you have provided is associated with a resource created with different parameters",
            )
        return _again(call, region, known, forward)
    check_launch(call, region, quota)
    before = set(region.backend.reservations)
    answer = forward(_for_moto(call, region))
    made = [r for r in region.backend.reservations.values() if r.id not in before]
    if answer.status != 200 or not made:
        return answer
    for instance in made[0].instances:
        _complete(call, region, instance)
    if token:
        region.tokens[token] = Launch(fingerprint, made[0].id)
    return answer


def _fingerprint(call: Call) -> str:
    return hashlib.sha256(json.dumps(sorted(call.parameters.items())).encode()).hexdigest()


def _again(call: Call, region: Region, known: Launch, forward: Forward) -> Answer:
    reservation = region.backend.reservations[known.reservation]
    question = {f"InstanceId.{n}": i.id for n, i in enumerate(reservation.instances, 1)}
    described = forward(Call("ec2", region.name, "DescribeInstances", question, call.index))
    # The reservation as DescribeInstances shows it is what RunInstances answers, one level less deep.
    text = described.body.decode()
    start = text.index("<item>", text.index("<reservationSet>")) + len("<item>")
    inner = text[start : text.rindex("</item></reservationSet>")]
    return Answer(f'<RunInstancesResponse xmlns="{NAMESPACE}">{inner}</RunInstancesResponse>'.encode())


def _for_moto(call: Call, region: Region) -> Call:
    """Translate for moto, which drops gp3's IOPS and fails on io1 and io2: it gets gp2, and `_complete` corrects it.

    The image's root volume, which EC2 adds by itself, is named where the call does not.
    """
    parameters = dict(call.parameters)
    for name, value in call.parameters.items():
        if name.startswith("BlockDeviceMapping.") and name.endswith(".Ebs.VolumeType") and value in {"io1", "io2"}:
            parameters[name] = "gp2"
    root = region.backend.amis[call.get("ImageId")].root_device_name
    # moto knows no instance store, and stops at a gap in the numbers.
    changed = Call(call.service, call.region, call.action, parameters)
    mappings = [m for m in changed.members("BlockDeviceMapping") if "VirtualName" not in m]
    if root not in {m.get("DeviceName") for m in mappings}:
        mappings.append({"DeviceName": root, "Ebs.VolumeSize": str(_ROOT_GIB), "Ebs.DeleteOnTermination": "true"})
    parameters = {k: v for k, v in parameters.items() if not k.startswith("BlockDeviceMapping.")}
    for number, mapping in enumerate(mappings, 1):
        parameters |= {f"BlockDeviceMapping.{number}.{key}": value for key, value in mapping.items()}
    parameters["MinCount"] = parameters["MaxCount"]  # moto launches MinCount
    return Call(call.service, call.region, call.action, parameters, call.index)


def _complete(call: Call, region: Region, instance: Any) -> None:
    """Add to moto's model what it left out of the request."""
    timing = region.timing
    instance.instance_state.name, instance.instance_state.code = "pending", 0
    if "stuck_pending" not in call.alter:
        region.later(instance, "running", timing.pending)
    instance.placement.group_name = call.get("Placement.GroupName")
    if call.get("CpuOptions.CoreCount"):
        instance.cpu_options = {
            "CoreCount": int(call.get("CpuOptions.CoreCount")),
            "ThreadsPerCore": int(call.get("CpuOptions.ThreadsPerCore")),
        }
    created = [instance.id]
    machines = region.machines
    address = machines.addresses.pop(0) if machines.addresses else ""
    for interface in instance.nics.values() if address else ():
        interface.private_ip_address = interface.public_ip = address
        interface.private_ip_addresses[0]["PrivateIpAddress"] = address
    if address:
        key = region.backend.key_pairs[call.get("KeyName")].public_key
        root = region.backend.amis[call.get("ImageId")].root_device_name
        nitro = INSTANCE_TYPES[instance.instance_type]["EbsInfo"]["NvmeSupport"] == "required"
        disks = _own_disks(call, instance) | {
            attached.volume_id if nitro else device.replace("/dev/sd", "/dev/xvd"): int(
                region.backend.volumes[attached.volume_id].size
            )
            for device, attached in instance.block_device_mapping.items()
            if device != root
        }
        machines.boot(address, key, base64.b64decode(call.get("UserData")).decode(), disks)
    for interface in instance.nics.values():
        interface.delete_on_termination = True
        instance.security_groups = list({g.id: g for g in interface.group_set}.values())
        interface.add_tags(call.tags("network-interface"))
        created.append(interface.id)
    created += _complete_volumes(call, region, instance)
    if call.get("InstanceMarketOptions.MarketType") == "spot":
        request = SpotRequest(f"sir-{secrets.token_hex(4)}", instance.id, "active", call.tags("spot-instances-request"))
        region.spot[request.id] = request
        instance.spot_instance_request_id = request.id
        created.append(request.id)
    if "no_tags" in call.alter:
        for name in created:
            region.backend.tags.pop(name, None)
    region.hide(*created)


def _own_disks(call: Call, instance: Any) -> dict[str, int]:
    """The instance store: NVMe disks are all there, those of other types as they are mapped."""
    info = INSTANCE_TYPES[instance.instance_type].get("InstanceStorageInfo", {})
    sizes = [int(disk["SizeInGB"] * 10**9 / 2**30) for disk in info.get("Disks", ()) for _ in range(disk["Count"])]
    if info.get("NvmeSupport", "unsupported") != "unsupported":
        return {f"AWS{instance.id[2:].upper()}{number}": gib for number, gib in enumerate(sizes)}
    mapped = [m["DeviceName"] for m in call.members("BlockDeviceMapping") if "VirtualName" in m]
    return {name.replace("/dev/sd", "/dev/xvd"): gib for name, gib in zip(mapped, sizes, strict=False)}


def _complete_volumes(call: Call, region: Region, instance: Any) -> list[str]:
    wanted = {m.get("DeviceName", ""): m for m in call.members("BlockDeviceMapping")}
    altered = next((a.partition("=")[2] for a in call.alter if a.startswith("iops=")), None)
    created = []
    for device, attached in instance.block_device_mapping.items():
        volume = region.backend.volumes[attached.volume_id]
        ebs = wanted.get(device, {})
        volume.volume_type = ebs.get("Ebs.VolumeType", "gp2")
        volume.iops = int(ebs["Ebs.Iops"]) if "Ebs.Iops" in ebs else _iops(volume)
        if altered and "Ebs.Iops" in ebs:
            volume.iops = int(altered)
        throughput = ebs_types()[volume.volume_type].mibps
        volume.throughput = int(ebs.get("Ebs.Throughput", "0")) or (throughput[0] if throughput else None)
        volume.attachment.delete_on_termination = ebs.get("Ebs.DeleteOnTermination", "true") == "true"
        volume.encrypted = ebs.get("Ebs.Encrypted") == "true"
        if "never_attach" in call.alter and ebs:
            volume.attachment.status = "attaching"
        created.append(volume.id)
    return created


def _iops(volume: Any) -> int | None:
    """What DescribeVolumes shows of a volume without provisioned IOPS: gp2 has a baseline, magnetic types none."""
    return ebs_types()[volume.volume_type].iops_of(volume.size, None) if volume.volume_type in {"gp2", "gp3"} else None
