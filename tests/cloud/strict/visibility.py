"""Eventual consistency: what was made a moment ago is not seen yet."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from .wire import Answer, ApiError, Call
from .world import Region

# Which element of an answer names the thing just made, and the error for one that cannot be seen yet.
_MADE = {
    "CreateVpc": "vpcId",
    "CreateSubnet": "subnetId",
    "CreateSecurityGroup": "groupId",
    "CreateInternetGateway": "internetGatewayId",
    "ImportKeyPair": "keyName",
}
_NOT_FOUND = {
    "i": "InvalidInstanceID.NotFound",
    "vol": "InvalidVolume.NotFound",
    "eni": "InvalidNetworkInterfaceID.NotFound",
    "sg": "InvalidGroup.NotFound",
    "subnet": "InvalidSubnetID.NotFound",
    "vpc": "InvalidVpcID.NotFound",
    "igw": "InvalidInternetGatewayID.NotFound",
    "sir": "InvalidSpotInstanceRequestID.NotFound",
}
# Lists in answers and the element that says what an entry of the list is.
_LISTS = {
    "instancesSet": "instanceId",
    "volumeSet": "volumeId",
    "networkInterfaceSet": "networkInterfaceId",
    "subnetSet": "subnetId",
    "securityGroupInfo": "groupId",
    "internetGatewaySet": "internetGatewayId",
    "keySet": "keyName",
    "vpcSet": "vpcId",
}


def note_made(call: Call, answer: Answer, region: Region) -> None:
    """Hide what this call has made for a while."""
    name = _MADE.get(call.action)
    if name and answer.status == 200 and region.timing.consistency > 0:
        found = re.search(f"<{name}>([^<]+)</{name}>", answer.body.decode())
        if found:
            region.hide(found[1])


def refuse_hidden(call: Call, region: Region) -> None:
    """Raises ApiError when the call names something that cannot be seen yet."""
    for name, value in call.parameters.items():
        if value in region.hidden and not name.startswith(("TagSpecification", "Filter")):
            if name == "KeyName" and call.action == "RunInstances":
                raise ApiError("InvalidKeyPair.NotFound", f"The key pair '{value}' does not exist")
            if name == "Placement.GroupName":
                raise ApiError("InvalidPlacementGroup.Unknown", f"The Placement Group '{value}' is unknown.")
            code = _NOT_FOUND.get(value.partition("-")[0])
            if code and name not in {"KeyName", "GroupName"}:
                raise ApiError(code, f"The ID '{value}' does not exist")


def without_hidden(answer: Answer, region: Region) -> Answer:
    """A Describe answer as it is while new things are not visible yet."""
    if not region.hidden or answer.status != 200:
        return answer
    root = ET.fromstring(answer.body)  # noqa: S314 (moto's own answer)
    ET.register_namespace("", root.tag[1:].partition("}")[0])
    for list_name, identity in _LISTS.items():
        for entries in root.findall(f".//{{*}}{list_name}"):
            for item in list(entries):
                found = item.find(f"{{*}}{identity}")
                if found is not None and found.text in region.hidden:
                    entries.remove(item)
    for reservations in root.findall(".//{*}reservationSet"):
        for item in list(reservations):
            instances = item.find("{*}instancesSet")
            if instances is not None and not len(instances):
                reservations.remove(item)
    return Answer(ET.tostring(root, encoding="utf-8", xml_declaration=True), answer.status)
