"""Volumes of a host: what is refused on real loop devices before anything is formatted, and how they are read back."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from microshard.hostlib import block_devices as devices
from microshard.hostlib import host_volumes
from microshard.hostlib.errors import HostError

needs_loops = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/loop-control").exists() or shutil.which("mkfs.ext4") is None,
    reason="loop devices need root, /dev/loop-control and e2fsprogs",
)


def definition(device, **changes):
    values = {"type": "existing", "size_gib": 1, "filesystem": "ext4", "lazy_init": False, "policy": "single"}
    return {**values, "count": 1, "devices": [device], "overwrite": [], **changes}


@pytest.fixture
def loops(tmp_path):
    """Two block devices of one GiB."""
    made = []
    for name in ("image", "other"):
        image = tmp_path / name
        with image.open("wb") as file:
            file.truncate(2**30)
        done = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True, text=True)
        made.append(done.stdout.strip())
    yield made
    subprocess.run(["losetup", "--detach", *made], check=True)


@pytest.fixture
def loop(loops):
    """A block device of one GiB."""
    return loops[0]


def module(definitions, known=(), state="checked", **parameters):
    given = {"volumes": definitions, "known": list(known), "mounts": {}, "root": "/srv/microshard", "state": state}
    return host_volumes.main(
        {**given, "owner": "root", "group": "", "mode": "0755", "readahead_sectors": None, **parameters}, check=False
    )


def checked(definitions, known=()):
    return module(definitions, known)["volumes"]


def make(kind, label, device):
    subprocess.run([f"mkfs.{kind}", "-q", "-L", label, device], check=True)


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
    with pytest.raises(HostError, match="devices needed: 1, named: 0"):
        checked({"data": definition("", devices=[])})


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"data": 1}, {"data": ["/dev/nvme3n1"]}),
        ({"data": 1, "log": 1}, {"data": ["/dev/nvme3n1"], "log": ["/dev/nvme1n1"]}),
        ({"data": 2}, {"data": ["/dev/nvme3n1", "/dev/nvme1n1"]}),
        ({"data": 2, "log": 1}, None),
    ],
)
def test_disks_of_an_instance_store_are_found_by_model_in_the_order_of_their_serials(monkeypatch, wanted, found):
    """Models as the EC2 user guide has them, "Identify the EBS device" and "SSD instance store volumes"."""
    ebs, store = "Amazon Elastic Block Store", "Amazon EC2 NVMe Instance Storage"
    there = [
        ("nvme0n1", "vol0root", ebs),
        ("nvme1n1", "AWS2", store),
        ("nvme2n1", "vol0a", ebs),
        ("nvme3n1", "AWS1", store),
    ]
    made = [devices.Device(f"/dev/{name}", name, serial, model, 279 << 30) for name, serial, model in there]
    monkeypatch.setattr(devices, "disks", lambda: made)
    given = {
        name: definition("", type="instance_store", size_gib=279, devices=[], count=count)
        for name, count in wanted.items()
    }
    if found is None:
        with pytest.raises(HostError, match="volume log: devices needed: 1, named: 0"):
            host_volumes.resolve(given, [], "/srv/microshard")
        return
    volumes = host_volumes.resolve(given, [], "/srv/microshard")
    assert {v.name: [device.path for device in v.devices] for v in volumes} == found


@needs_loops
def test_an_empty_device_may_be_formatted_and_ours_is_kept(loop):
    (volume,) = checked({"data": definition(loop)})
    assert (volume["formats"], volume["wipes"], volume["device"]) == (True, [], loop)
    make("ext4", volume["label"], loop)
    (again,) = checked({"data": definition(loop)})
    assert (again["formats"], again["wipes"]) == (False, [])
    assert again["uuid"] not in {"", volume["uuid"]}
    (other,) = checked({"log": definition(loop)})  # ours as well, of another run
    assert (other["formats"], other["wipes"]) == (True, [loop])


@needs_loops
def test_anything_that_is_not_ours_is_refused_by_what_it_is(loop):
    make("ext4", "precious", loop)
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
    make("ext4", "ms-log", loop)
    subprocess.run(["mount", loop, tmp_path], check=True)
    try:
        with pytest.raises(HostError, match=f"is mounted at {tmp_path}"):
            checked({"data": definition(loop)})
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@needs_loops
def test_the_inventory_comes_before_the_definition(loop):
    (volume,) = checked({"data": definition("/dev/none")}, [{"purpose": "data", "device": loop}])
    assert volume["members"] == [loop]


@needs_loops
def test_a_mounted_volume_is_read_back_and_its_place_is_its_own(loops, tmp_path):
    loop = loops[0]
    mount = tmp_path / "data"
    mount.mkdir()
    (mount / "file").touch()
    own = {"mounts": {"data": str(mount)}}
    with pytest.raises(HostError, match="has files and nothing is mounted there"):
        module({"data": definition(loop)}, **own)
    (mount / "file").unlink()
    make("ext4", "ms-data", loop)
    with pytest.raises(HostError, match="data is not mounted"):
        module({"data": definition(loop)}, state="mounted", **own)
    subprocess.run(["mount", loop, mount], check=True)
    try:
        (volume,) = module({"data": definition(loop)}, **own)["volumes"]
        assert (volume["mounted"], volume["remounts"], volume["in_fstab"]) == (True, True, False)
        sectors = int(subprocess.run(["blockdev", "--getra", loop], check=True, capture_output=True).stdout)
        (record,) = module({"data": definition(loop)}, state="mounted", readahead_sectors=sectors, **own)["record"]
        assert (record["readahead_sectors"], record["readahead_kib"], record["label"]) == (
            sectors,
            sectors / 2,
            "ms-data",
        )
        assert Path(volume["readahead"]["path"]).read_text().strip() == str(sectors // 2)
        with pytest.raises(HostError, match=f"was set to {sectors + 8} sectors and is {sectors}"):
            module({"data": definition(loop)}, state="mounted", readahead_sectors=sectors + 8, **own)
        with pytest.raises(HostError, match="another device mounted"):
            module({"log": definition(loops[1])}, mounts={"log": str(mount)})
    finally:
        subprocess.run(["umount", mount], check=True)
