"""Emulated volumes on real loop devices: root and a block I/O controller are needed."""

import os
import shutil
from pathlib import Path

import pytest

from microshard.backends import local_processes
from microshard.hostlib import emulated_volumes as emulated
from microshard.hostlib import throttle
from microshard.hostlib.errors import HostError
from microshard.hostlib.files import run_command
from microshard.records.run_folder import RunFolder

needs_volumes = pytest.mark.skipif(emulated.why_not(["ext4"]) is not None, reason=str(emulated.why_not(["ext4"])))


@pytest.fixture
def folder(tmp_path):
    made = RunFolder.create(tmp_path, "tiny")
    yield made
    assert emulated.absent(made.path)[1] == []


def volume(folder, name="data", **changes):
    mount = folder / ("deployments/p01" if name == "data" else f"volumes/p01/{name}")
    values = {
        "name": name,
        "image": folder / f"volumes/p01/{name}.img",
        "mount": mount,
        "size_gib": 1,
        "filesystem": "ext4",
        "lazy_init": False,
        "iops": 150,
        "throughput_mibps": 60,
        "readahead_sectors": 32,
    }
    return emulated.LoopVolume(**(values | changes))


@needs_volumes
def test_a_volume_is_mounted_limited_and_says_what_the_kernel_has(folder):
    group = emulated.group(folder.path, "p01")
    changed, (facts,) = emulated.present([volume(folder)], group)
    assert changed
    assert facts["limits"] == {"rbps": 60 * 2**20, "wbps": 60 * 2**20, "riops": 150, "wiops": 150}
    assert (facts["readahead_sectors"], facts["readahead_kib"]) == (32, 16)
    assert run_command("blkid", "-o", "value", "-s", "LABEL", facts["device"]).strip() == "ms-data"
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    (line,) = [line for line in mounts if str(folder / "deployments/p01") in line]
    assert "noatime" in line
    assert emulated.present([volume(folder)], group) == (False, [facts])  # again: nothing to do
    changed, (facts,) = emulated.present([volume(folder, iops=300)], group)
    assert changed
    assert facts["limits"]["riops"] == 300


@needs_volumes
def test_nothing_of_a_volume_is_left_and_its_device_has_no_limits_for_the_next(folder):
    group = emulated.group(folder.path, "p01")
    emulated.present([volume(folder)], group)
    (loop,) = emulated.loop_devices(folder.path)
    assert emulated.absent(folder.path) == (True, [])
    assert emulated.loop_devices(folder.path) == []
    assert not emulated.mounts_below(folder.path)
    assert not (folder / "volumes").exists()
    control = throttle.controller()
    if control.version == 1:
        assert control.limits(loop.number, group) == dict.fromkeys(("rbps", "wbps", "riops", "wiops"))
    else:
        assert not control.group(group).exists()
    assert emulated.absent(folder.path) == (False, [])


@needs_volumes
def test_leftovers_end_a_volume_of_a_run_that_was_killed(folder):
    emulated.present([volume(folder)], emulated.group(folder.path, "p01"))
    assert local_processes.clean(folder) == []
    assert emulated.loop_devices(folder.path) == []
    assert not (folder / "deployments").exists()


@needs_volumes
def test_a_volume_somebody_still_uses_is_reported_and_its_limits_stay(folder, monkeypatch):
    monkeypatch.setattr(emulated, "BUSY_SECONDS", 0.2)
    emulated.present([volume(folder)], emulated.group(folder.path, "p01"))
    with (folder / "deployments/p01/open").open("w"):
        changed, left = emulated.absent(folder.path)
    assert changed
    assert any("busy" in sentence and "deployments/p01" in sentence for sentence in left)


@needs_volumes
def test_journals_and_logs_lie_on_their_own_volumes(folder):
    volumes = [volume(folder), volume(folder, "journal"), volume(folder, "log")]
    emulated.present(volumes, emulated.group(folder.path, "p01"))
    home = folder / "deployments/p01/shard01"
    process = {"name": "shard01", "db_path": str(home / "data"), "log_path": str(home / "mongod.log")}
    assert emulated.link_processes(volumes, [process])
    assert not emulated.link_processes(volumes, [process])
    devices = {path.stat().st_dev for path in (home / "data", home / "data/journal", folder / "volumes/p01/log")}
    assert len(devices) == 3
    assert (home / "mongod.log").readlink() == folder / "volumes/p01/log/shard01.log"


@needs_volumes
def test_a_journal_that_is_there_already_is_not_moved(folder):
    journal = folder / "deployments/p01/shard01/data/journal"
    journal.mkdir(parents=True)
    process = {"name": "shard01", "db_path": str(journal.parent), "log_path": ""}
    with pytest.raises(HostError, match="exists already"):
        emulated.link_processes([volume(folder, "journal")], [process])


def test_without_root_the_reason_is_reported(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "need root" in (emulated.why_not() or "")


@needs_volumes
def test_a_missing_tool_is_reported_with_its_package_and_the_other_filesystem(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_args, **_more: None)
    assert emulated.why_not(["xfs"]) == "mkfs.xfs is not installed; install xfsprogs, or set filesystem: ext4"
