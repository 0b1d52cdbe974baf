"""EBS volumes of a host, from what EC2 says about it, in the form of `microshard_volumes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# As src/microshard/backends/ec2/spec.py attaches them.
_FIRST = {"/dev/sdf": "data", "/dev/sdg": "journal", "/dev/sdh": "log"}
_MORE = {"/dev/xvdb": "data", "/dev/xvdc": "journal", "/dev/xvdd": "log"}  # and a letter


def ebs_volumes(mappings: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Data, journal and log volume from `block_device_mappings`; the NVMe disk is found by the serial."""
    return [
        {
            "purpose": purpose,
            "serial": str(entry["ebs"]["volume_id"]).replace("-", ""),
            "device": str(entry["device_name"]),
        }
        for entry in mappings
        if "ebs" in entry and (purpose := _purpose(str(entry.get("device_name"))))
    ]


def _purpose(device: str) -> str | None:
    return _FIRST.get(device) or (_MORE.get(device[:-1]) if len(device) == len("/dev/xvdba") else None)


class FilterModule:
    """For Ansible."""

    def filters(self) -> dict[str, Any]:
        """Names of the filters."""
        return {"ebs_volumes": ebs_volumes}
