"""Volumes of a host: tables as text, and what is refused on real loop devices before anything is formatted."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from microshard.hostlib import block_devices as devices
from microshard.hostlib import host_volumes, volumes
from microshard.hostlib.errors import HostError

FSTAB = "LABEL=root / ext4 noatime 0 1\n"
ENTRY = ("1234-abcd", "/srv/microshard/data", "xfs")
needs_loops = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/loop-control").exists() or shutil.which("mkfs.ext4") is None,
    reason="loop devices need root, /dev/loop-control and e2fsprogs",
)


def definition(device, **changes):
    values = {"type": "existing", "size_gib": 1, "filesystem": "ext4", "lazy_init": False, "policy": "single"}
    return {**values, "count": 1, "devices": [device], "overwrite": [], **changes}


@pytest.fixture
def loop(tmp_path):
    """A block device of one GiB."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(2**30)
    made = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True, text=True)
    yield made.stdout.strip()
    subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)


def checked(definitions, known=()):
    found = volumes.resolve(definitions, list(known), "/srv/microshard")
    volumes.check(found)
    return found


def test_our_lines_are_added_to_fstab_and_taken_out_again_without_a_trace():
    text = host_volumes.fstab(FSTAB, [ENTRY])
    assert text.splitlines()[-1] == "UUID=1234-abcd /srv/microshard/data xfs noatime,nofail 0 0"
    assert host_volumes.fstab(text, [ENTRY]) == text
    assert host_volumes.fstab(text, []) == FSTAB


def test_the_rule_of_udev_has_kib_and_the_definition_sectors():
    assert 'ENV{ID_FS_UUID}=="1234-abcd", ATTR{queue/read_ahead_kb}="16"' in host_volumes.rules([("1234-abcd", 32)])
    assert host_volumes.rules([]) == ""


def test_an_ebs_volume_is_known_with_and_without_its_dash():
    assert devices.normal("vol-0abc") == devices.normal("vol0abc") == "vol0abc"


def test_a_missing_device_is_reported_with_the_volume():
    with pytest.raises(
        HostError, match=r"volume data: device /dev/disk/by-id/none is missing; .*Nothing was formatted"
    ):
        checked({"data": definition("/dev/disk/by-id/none")})


def test_a_serial_number_nobody_has_is_reported_with_those_that_are_there():
    with pytest.raises(HostError, match="no device has the serial number vol-0none"):
        checked({"data": definition("serial:vol-0none")})


def test_what_is_not_named_is_not_used():
    with pytest.raises(HostError, match=r"1 device\(s\) are needed and 0 named"):
        checked({"data": definition("", devices=[])})


@needs_loops
def test_an_empty_device_may_be_formatted_and_ours_is_kept(loop):
    (volume,) = checked({"data": definition(loop)})
    assert volume.formats
    volumes.format_volume(volume)
    (again,) = checked({"data": definition(loop)})
    assert not again.formats
    (other,) = checked({"log": definition(loop)})  # ours as well, of another run
    assert other.formats


@needs_loops
def test_anything_that_is_not_ours_is_refused_by_what_it_is(loop):
    subprocess.run(["mkfs.ext4", "-q", "-L", "precious", loop], check=True)
    with pytest.raises(HostError, match="carries ext4 'precious', which is not microshard's"):
        checked({"data": definition(loop)})
    subprocess.run(["wipefs", "--all", "--quiet", loop], check=True)
    subprocess.run(["mkswap", "--label", "more", loop], check=True, capture_output=True)
    with pytest.raises(HostError, match="carries swap 'more'"):
        checked({"data": definition(loop)})


@needs_loops
def test_a_mounted_device_a_smaller_one_and_one_named_twice_are_refused(loop, tmp_path):
    with pytest.raises(HostError, match=r"has 1.0 GiB, planned are 2 GiB"):
        checked({"data": definition(loop, size_gib=2)})
    with pytest.raises(HostError, match=f"device {loop} is named for two volumes"):
        checked({"data": definition(loop), "log": definition(loop)})
    subprocess.run(["mkfs.ext4", "-q", "-L", "ms-log", loop], check=True)
    subprocess.run(["mount", loop, tmp_path], check=True)
    try:
        with pytest.raises(HostError, match=f"is mounted at {tmp_path}"):
            checked({"data": definition(loop)})
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@needs_loops
def test_the_inventory_comes_before_the_definition(loop):
    (volume,) = checked({"data": definition("/dev/none")}, [{"purpose": "data", "device": loop}])
    assert volume.devices[0].path == loop


@needs_loops
def test_volumes_are_made_kept_and_taken_away(loop, tmp_path, monkeypatch):
    monkeypatch.setattr(host_volumes, "FSTAB", str(tmp_path / "fstab"))
    monkeypatch.setattr(host_volumes, "RULES", str(tmp_path / "rules"))
    (tmp_path / "fstab").write_text(FSTAB)
    mount = tmp_path / "srv/data"
    parameters = {
        "volumes": {"data": definition(loop), "journal": None},
        "known": [],
        "mounts": {},
        "root": str(tmp_path / "srv"),
        "readahead_sectors": 32,
        "owner": "root",
        "group": "",
        "mode": "0750",
        "state_folder": str(tmp_path / "state"),
        "state": "present",
    }
    # mount(8) reads the real fstab; this one is a file of the test.
    monkeypatch.setattr(host_volumes, "run_command", lambda *words, **_: _mount(words, loop))
    before = volumes.readahead(devices.at(loop))
    assert host_volumes.main(parameters, check=True)["changed"]
    assert not mount.exists()
    first = host_volumes.main(parameters, check=False)
    assert first["changed"]
    assert first["record"][0]["readahead_sectors"] == 32
    assert "noatime" in first["record"][0]["options"]
    (mount / "file").write_text("kept")
    second = host_volumes.main(parameters, check=False)
    assert not second["changed"], second["msg"]
    assert (mount.stat().st_mode & 0o7777) == 0o750
    gone = host_volumes.main({**parameters, "state": "absent"}, check=False)
    assert gone["changed"]
    assert not mount.is_mount()
    assert (tmp_path / "fstab").read_text() == FSTAB
    assert volumes.readahead(devices.at(loop)) == before
    assert not (tmp_path / "state/readahead.json").exists()


def _mount(words, loop):
    if words[0] == "mount" and len(words) == 2:
        words = ("mount", "-o", "noatime", loop, words[1])
    subprocess.run(words, check=True)
