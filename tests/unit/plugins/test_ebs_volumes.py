"""Volumes as the dynamic inventory has them."""

import importlib.util
from pathlib import Path
from typing import Any

from microshard.backends.ec2.spec import VolumeSpec

_FILE = Path(__file__).parents[3] / "plugins" / "filter" / "ebs_volumes.py"


def ebs_volumes(mappings: list[dict[str, Any]]) -> list[dict[str, str]]:
    spec = importlib.util.spec_from_file_location("ebs_volumes", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[dict[str, str]] = module.ebs_volumes(mappings)
    return found


def test_volumes_are_named_by_the_device_they_were_attached_under() -> None:
    mappings = [{"device_name": "/dev/xvda", "ebs": {"volume_id": "vol-0"}}] + [
        {"device_name": VolumeSpec(purpose, "gp3", 1, number=n).device, "ebs": {"volume_id": f"vol-{purpose}{n}"}}
        for purpose in ("data", "journal", "log")
        for n in (1, 2, 24)
    ]
    assert [(v["purpose"], v["serial"]) for v in ebs_volumes(mappings)] == [
        (purpose, f"vol{purpose}{n}") for purpose in ("data", "journal", "log") for n in (1, 2, 24)
    ]
