"""RunInstances as the real one does it: tokens, volume attributes, placement, spot, tags on everything."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from typing import Any

from .rules import refuse_launch, zone_of
from .wire import Answer, ApiError, Call
from .world import Launch, Region, SpotRequest

Forward = Callable[[Call], Answer]

_DEFAULT_IOPS = {"gp3": 3000}
_DEFAULT_THROUGHPUT = {"gp3": 125}  # MiB/s
_ROOT_GIB = 8


def run_instances(call: Call, region: Region, quota: int | None, forward: Forward) -> Answer:
    """Launch, or answer again what this client token has launched already."""
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
    refuse_launch(call, region, quota)
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
    head = text[: text.index("<DescribeInstancesResponse")]
    name = "RunInstancesResponse"
    namespace = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
    return Answer(f"{head}<{name} {namespace}>{inner}</{name}>".encode())


def _for_moto(call: Call, region: Region) -> Call:
    """What moto can digest: it drops gp3's IOPS and fails on io1 and io2, so it gets gp2; `_complete` puts it right.

    The image's root volume, which EC2 makes by itself, is asked for where the call does not name it.
    """
    parameters = dict(call.parameters)
    for name, value in call.parameters.items():
        if name.startswith("BlockDeviceMapping.") and name.endswith(".Ebs.VolumeType") and value in {"io1", "io2"}:
            parameters[name] = "gp2"
    root = region.backend.amis[call.get("ImageId")].root_device_name
    names = [m.get("DeviceName") for m in call.members("BlockDeviceMapping")]
    virtual = [n for n, m in enumerate(call.members("BlockDeviceMapping"), 1) if "VirtualName" in m]
    for number in virtual:
        for key in [k for k in parameters if k.startswith(f"BlockDeviceMapping.{number}.")]:
            del parameters[key]
    if root not in names:
        parameters[f"BlockDeviceMapping.{len(names) + 1}.DeviceName"] = root
        parameters[f"BlockDeviceMapping.{len(names) + 1}.Ebs.VolumeSize"] = str(_ROOT_GIB)
        parameters[f"BlockDeviceMapping.{len(names) + 1}.Ebs.DeleteOnTermination"] = "true"
    parameters["MinCount"] = parameters["MaxCount"]  # moto launches MinCount
    return Call(call.service, call.region, call.action, parameters, call.index)


def _complete(call: Call, region: Region, instance: Any) -> None:
    """Put into moto's model what it left out of the request."""
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
    made = [instance.id]
    boots = region.boots
    address = boots.addresses.pop(0) if boots.addresses else ""
    for interface in instance.nics.values() if address else ():
        interface.private_ip_address = interface.public_ip = address
        interface.private_ip_addresses[0]["PrivateIpAddress"] = address
    if address:
        key = region.backend.key_pairs[call.get("KeyName")].public_key
        root = region.backend.amis[call.get("ImageId")].root_device_name
        volumes = {
            attached.volume_id: int(region.backend.volumes[attached.volume_id].size)
            for device, attached in instance.block_device_mapping.items()
            if device != root
        }
        boots.boot(address, key, base64.b64decode(call.get("UserData")).decode(), volumes)
    for interface in instance.nics.values():
        interface.delete_on_termination = True
        instance.security_groups = list({g.id: g for g in interface.group_set}.values())
        interface.add_tags(call.tags("network-interface"))
        made.append(interface.id)
    made += _complete_volumes(call, region, instance)
    if call.get("InstanceMarketOptions.MarketType") == "spot":
        request = SpotRequest(f"sir-{secrets.token_hex(4)}", instance.id, "active", call.tags("spot-instances-request"))
        region.spot[request.id] = request
        instance.spot_instance_request_id = request.id
        made.append(request.id)
    if "no_tags" in call.alter:
        for name in made:
            region.backend.tags.pop(name, None)
    region.hide(*made)


def _complete_volumes(call: Call, region: Region, instance: Any) -> list[str]:
    wanted = {m.get("DeviceName", ""): m for m in call.members("BlockDeviceMapping")}
    altered = next((a.partition("=")[2] for a in call.alter if a.startswith("iops=")), None)
    made = []
    for device, attached in instance.block_device_mapping.items():
        volume = region.backend.volumes[attached.volume_id]
        wish = wanted.get(device, {})
        volume.volume_type = wish.get("Ebs.VolumeType", "gp2")
        volume.iops = int(wish["Ebs.Iops"]) if "Ebs.Iops" in wish else _iops(volume)
        if altered and "Ebs.Iops" in wish:
            volume.iops = int(altered)
        volume.throughput = int(wish.get("Ebs.Throughput", "0")) or _DEFAULT_THROUGHPUT.get(volume.volume_type)
        volume.attachment.delete_on_termination = wish.get("Ebs.DeleteOnTermination", "true") == "true"
        volume.encrypted = wish.get("Ebs.Encrypted") == "true"
        if "never_attach" in call.alter and wish:
            volume.attachment.status = "attaching"
        made.append(volume.id)
    return made


def _iops(volume: Any) -> int | None:
    if volume.volume_type == "gp2":  # 3 IOPS for each GiB, 100 to 16000
        return int(max(100, min(16000, 3 * volume.size)))
    return _DEFAULT_IOPS.get(volume.volume_type)


__all__ = ["run_instances", "zone_of"]
