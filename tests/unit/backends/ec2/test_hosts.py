"""What a host is told at its first boot, the keys of a run, and the request that launches a group."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from microshard.backends.ec2 import keys, ledger, request
from microshard.backends.ec2.images import Image
from microshard.backends.ec2.ledger import Memory
from microshard.backends.ec2.request import Attempt, TypeFacts
from microshard.backends.ec2.spec import FleetSpec, GroupSpec, SpecError, VolumeSpec, from_mapping, to_mapping
from microshard.backends.ec2.userdata import SCRIPT, user_data

FACTS = TypeFacts("c5.4xlarge", "x86_64", 8, 2, (1, 2), False, False, ("cluster",))
GROUP = GroupSpec("shard_hosts", 2, ("c5.4xlarge",), (VolumeSpec("data", "gp3", 100, 4000, 250),))
SPEC = FleetSpec("run-1", "me", "x", 1_900_000_000, (GROUP,), ("192.0.2.1/32",))
ATTEMPT = Attempt(
    GROUP, 2, FACTS, "us-east-1a", "on-demand", Image("ami-1", "n", "x86_64", "/dev/xvda", "u"), "subnet-1"
)


def wish(attempt: Attempt = ATTEMPT) -> dict[str, Any]:
    return request.run_instances(SPEC, attempt, security_group="sg-1", placement=None, user_data="")


def test_cloud_config_carries_the_host_key_and_the_end(tmp_path: Path) -> None:
    made = keys.ensure_keys(tmp_path)
    config = yaml.safe_load(user_data(made.host_private, made.host_public, 1_900_000_000))
    assert config["ssh_deletekeys"] is True
    assert config["ssh_keys"]["ed25519_private"].strip() == made.host_private.strip()
    assert config["ssh_keys"]["ed25519_public"] == made.host_public
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
        ["sh", "-c", SCRIPT.format(expires_at=int(time.time()) + seconds)],
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ("poweroff" in done.stdout) is ends
    assert ("slept" in done.stdout) is not ends


def test_user_data_longer_than_ec2_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="16384"):
        user_data("x" * 20000, "y", 1)


def test_keys_are_made_once_and_nobody_else_reads_them(tmp_path: Path) -> None:
    first = keys.ensure_keys(tmp_path / "ssh")
    assert keys.ensure_keys(tmp_path / "ssh") == first
    assert stat.S_IMODE((tmp_path / "ssh").stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "ssh").iterdir()} == {0o600}
    derived = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(first.private_file)], capture_output=True, text=True, check=True
    ).stdout
    assert derived.split()[:2] == first.public.split()[:2]
    assert first.public.split()[0] == "ssh-ed25519"


def test_ssh_finds_the_host_key_of_an_address(tmp_path: Path) -> None:
    made = keys.ensure_keys(tmp_path)
    keys.write_known_hosts(made, ["203.0.113.5", "203.0.113.6"])
    found = subprocess.run(
        ["ssh-keygen", "-F", "203.0.113.6", "-f", str(made.known_hosts)], capture_output=True, text=True, check=True
    )
    assert made.host_public.split()[1] in found.stdout


@pytest.mark.parametrize(
    "change",
    [
        {"zone": "us-east-1b"},
        {"market": "spot"},
        {"count": 1},
        {"number": 2},
        {"type": dataclasses.replace(FACTS, name="m5.large")},
    ],
)
def test_each_way_of_launching_has_its_own_token(change: dict[str, Any]) -> None:
    other = dataclasses.replace(ATTEMPT, **change)
    assert other.token("run-1") != ATTEMPT.token("run-1")
    assert ATTEMPT.token("run-2") != ATTEMPT.token("run-1")
    assert ATTEMPT.token("run-1") == dataclasses.replace(ATTEMPT).token("run-1")
    assert len(other.token("run-1")) == 64


def test_the_request_carries_volumes_as_asked_and_nothing_unasked() -> None:
    root, data = wish()["BlockDeviceMappings"]
    assert root["DeviceName"] == "/dev/xvda"
    assert data["Ebs"] == {
        "VolumeType": "gp3", "VolumeSize": 100, "Encrypted": True, "DeleteOnTermination": True,
        "Iops": 4000, "Throughput": 250,
    }  # fmt: skip
    assert "CpuOptions" not in wish()
    assert "InstanceMarketOptions" not in wish()
    assert "Placement" not in wish()


def test_threads_that_the_type_has_anyway_are_not_asked_for() -> None:
    two = dataclasses.replace(ATTEMPT, group=dataclasses.replace(GROUP, threads_per_core=2))
    one = dataclasses.replace(ATTEMPT, group=dataclasses.replace(GROUP, threads_per_core=1))
    assert "CpuOptions" not in wish(two)
    assert wish(one)["CpuOptions"] == {"CoreCount": 8, "ThreadsPerCore": 1}


def test_old_types_get_their_instance_store_mapped_and_nitro_ones_need_no_mapping() -> None:
    group = dataclasses.replace(
        GROUP, volumes=(VolumeSpec("data", "instance_store", 80), VolumeSpec("log", "instance_store", 80))
    )
    old = dataclasses.replace(ATTEMPT, group=group, type=dataclasses.replace(FACTS, instance_store=True))
    assert [m.get("VirtualName") for m in wish(old)["BlockDeviceMappings"]] == [None, "ephemeral0", "ephemeral1"]
    nitro = dataclasses.replace(old, type=dataclasses.replace(FACTS, instance_store=True, instance_store_nvme=True))
    assert len(wish(nitro)["BlockDeviceMappings"]) == 1


@given(
    run=st.text("abcdef0123456789-", min_size=1, max_size=40),
    count=st.integers(1, 50),
    iops=st.one_of(st.none(), st.integers(3000, 16000)),
)
def test_a_spec_survives_being_written_and_read(run: str, count: int, iops: int | None) -> None:
    group = dataclasses.replace(GROUP, count=count, volumes=(VolumeSpec("data", "gp3", 500, iops),))
    spec = dataclasses.replace(SPEC, run=run, groups=(group,))
    assert from_mapping(to_mapping(spec)) == spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": []}, "there is none"),
        ({"controller_cidrs": []}, "nobody could reach"),
        ({"controller_cidrs": ["::/0"]}, "whole Internet"),
        ({"controller_cidrs": ["2001:db8::1/128"]}, "IPv4"),
        ({"controller_cidrs": ["192.0.2.7/24"]}, "has host bits set"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_spec_is_told(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        from_mapping({**to_mapping(SPEC), **change})


def test_a_spec_without_a_needed_key_is_told() -> None:
    with pytest.raises(SpecError, match="groups: is missing"):
        from_mapping({k: v for k, v in to_mapping(SPEC).items() if k != "groups"})


def test_the_ledger_knows_what_was_never_answered() -> None:
    book = Memory()
    assert ledger.unanswered_since(book) is None
    ledger.creating(book, "vpc", "a")
    since = ledger.unanswered_since(book)
    assert since is not None
    ledger.creating(book, "instance", "b")
    ledger.made(book, "instance", "b", ["i-1", "i-2"])
    assert ledger.unanswered_since(book) == since
    ledger.made(book, "vpc", "a", ["vpc-1"])
    assert ledger.unanswered_since(book) is None
    assert ledger.known_ids(book, "instance") == {"i-1", "i-2"}
