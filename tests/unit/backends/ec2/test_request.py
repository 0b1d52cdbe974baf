"""The request that launches a group, and the user data of its hosts."""

import dataclasses
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from microshard.backends.ec2.account import MachineImage
from microshard.backends.ec2.request import EXPIRY_SCRIPT, LaunchAttempt, TypeDescription, run_instances, user_data
from microshard.backends.ec2.spec import VolumeSpec

from .test_spec import GROUP, SPEC

TYPE = TypeDescription("c5.4xlarge", "x86_64", 8, 2, (1, 2), False, False, True, ("cluster",))
ATTEMPT = LaunchAttempt(
    GROUP, 2, TYPE, "us-east-1a", "on-demand", MachineImage("ami-1", "n", "x86_64", "/dev/xvda", 8, "u"), "subnet-1"
)


def request(attempt: LaunchAttempt = ATTEMPT) -> dict[str, Any]:
    return run_instances(SPEC, attempt, security_group="sg-1", placement_group=None, user_data="")


def test_cloud_config_carries_the_host_key_and_the_expiry() -> None:
    config = yaml.safe_load(user_data("-----KEY\nprivate\n", "ssh-ed25519 public", 1_900_000_000))
    assert config["ssh_deletekeys"] is True
    assert config["ssh_keys"]["ed25519_private"].strip() == "-----KEY\nprivate"
    assert config["ssh_keys"]["ed25519_public"] == "ssh-ed25519 public"
    script, unit = config["write_files"]
    assert "1900000000" in script["content"]
    assert script["path"] in unit["content"]
    assert ["systemctl", "enable", "--now", "--no-block", "microshard-expiry.service"] in config["runcmd"]


@pytest.mark.parametrize(("seconds", "ends"), [(-100, True), (3600, False)])
def test_the_script_powers_off_when_the_time_has_come(tmp_path: Path, seconds: int, ends: bool) -> None:
    (tmp_path / "systemctl").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "sleep").write_text("#!/bin/sh\necho slept $1\nkill $PPID\n")
    for name in ("systemctl", "sleep"):
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", EXPIRY_SCRIPT.format(expires_at=int(time.time()) + seconds)],
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ("poweroff" in done.stdout) is ends
    assert ("slept" in done.stdout) is not ends


def test_user_data_longer_than_ec2_accepts_is_refused() -> None:
    with pytest.raises(ValueError, match="16384"):
        user_data("x" * 20000, "y", 1)


@pytest.mark.parametrize(
    "change",
    [
        {"zone": "us-east-1b"},
        {"market": "spot"},
        {"count": 1},
        {"number": 2},
        {"type": dataclasses.replace(TYPE, name="m5.large")},
    ],
)
def test_each_way_of_launching_has_another_token(change: dict[str, Any]) -> None:
    other = dataclasses.replace(ATTEMPT, **change)
    assert other.token("run-1") != ATTEMPT.token("run-1")
    assert ATTEMPT.token("run-2") != ATTEMPT.token("run-1")
    assert ATTEMPT.token("run-1") == dataclasses.replace(ATTEMPT).token("run-1")
    assert len(other.token("run-1")) == 64


def test_the_request_carries_the_requested_volumes_and_no_unrequested_options() -> None:
    root, data = request()["BlockDeviceMappings"]
    assert root["DeviceName"] == "/dev/xvda"
    assert data["Ebs"] == {
        "VolumeType": "gp3", "VolumeSize": 100, "Encrypted": True, "DeleteOnTermination": True,
        "Iops": 4000, "Throughput": 250,
    }  # fmt: skip
    assert not request().keys() & {"CpuOptions", "InstanceMarketOptions", "Placement"}


@pytest.mark.parametrize(("threads", "options"), [(2, None), (1, {"CoreCount": 8, "ThreadsPerCore": 1})])
def test_only_threads_other_than_the_types_default_are_requested(threads: int, options: Any) -> None:
    group = dataclasses.replace(GROUP, threads_per_core=threads)
    assert request(dataclasses.replace(ATTEMPT, group=group)).get("CpuOptions") == options


def test_an_old_type_is_ebs_optimized_where_a_volume_counts_on_it() -> None:
    old = dataclasses.replace(ATTEMPT, type=dataclasses.replace(TYPE, ebs_shared=True))
    alone = dataclasses.replace(old, group=dataclasses.replace(GROUP, volumes=()))
    assert [request(each).get("EbsOptimized") for each in (ATTEMPT, old, alone)] == [None, True, None]


def test_old_types_get_their_instance_store_mapped_and_nitro_ones_need_no_mapping() -> None:
    stores = (VolumeSpec("data", "instance_store", 80), VolumeSpec("log", "instance_store", 80))
    old_type = dataclasses.replace(TYPE, instance_store=True)
    old = dataclasses.replace(ATTEMPT, group=dataclasses.replace(GROUP, volumes=stores), type=old_type)
    assert [m.get("VirtualName") for m in request(old)["BlockDeviceMappings"]] == [None, "ephemeral0", "ephemeral1"]
    nitro = dataclasses.replace(old, type=dataclasses.replace(old_type, instance_store_nvme=True))
    assert len(request(nitro)["BlockDeviceMappings"]) == 1
