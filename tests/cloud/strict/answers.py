"""The calls moto does not have, or answers too kindly: placement groups, spot requests, termination, SSM."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable

from .wire import Answer, ApiError, Call, element, items, result, tag_set
from .world import ACCOUNT, IMAGES, PlacementGroup, Region, SpotRequest

# Services that speak JSON.
JSON = {"ssm", "servicequotas"}
DEFAULT_QUOTA = 1152  # vCPUs, where a test says nothing
OWN = {
    "CreatePlacementGroup",
    "DescribePlacementGroups",
    "DeletePlacementGroup",
    "DescribeSpotInstanceRequests",
    "CancelSpotInstanceRequests",
    "TerminateInstances",
}


def answer(call: Call, region: Region) -> Answer:
    """Carry out one of the calls in OWN. Raises ApiError."""
    match call.action:
        case "CreatePlacementGroup":
            group = region.make_placement_group(
                call.get("GroupName"), call.get("Strategy", "cluster"), call.tags("placement-group")
            )
            return result(
                call.action, element("return", value=True) + f"<placementGroup>{_group(group)}</placementGroup>"
            )
        case "DescribePlacementGroups":
            return result(call.action, items("placementGroupSet", map(_group, _groups(call, region))))
        case "DeletePlacementGroup":
            region.drop_placement_group(call.get("GroupName"))
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
        return Answer(
            json.dumps({"__type": "ParameterNotFound", "message": ""}).encode(), 400, "application/x-amz-json-1.1"
        )
    parameter = {"Name": name, "Type": "String", "Value": IMAGES[name][0], "Version": 1, "DataType": "text"}
    return Answer(json.dumps({"Parameter": parameter}).encode(), 200, "application/x-amz-json-1.1")


def service_quota(call: Call, body: bytes, vcpus: int | None) -> Answer:
    """GetServiceQuota for the vCPUs of EC2 and the VPCs of a region. Raises ApiError."""
    wish = json.loads(body)
    if call.action != "GetServiceQuota" or wish.get("ServiceCode") not in {"ec2", "vpc"}:
        raise ApiError("NoSuchResourceException", call.action)
    value = 5.0 if wish["ServiceCode"] == "vpc" else float(DEFAULT_QUOTA if vcpus is None else vcpus)
    quota = {"ServiceCode": wish["ServiceCode"], "QuotaCode": wish["QuotaCode"], "Value": value, "Unit": "None"}
    return Answer(json.dumps({"Quota": quota}).encode(), 200, "application/x-amz-json-1.1")


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
        region.spot[name].state = "cancelled"  # the instance lives on: cancelling a request ends no instance
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
