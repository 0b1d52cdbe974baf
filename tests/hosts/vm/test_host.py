"""Volumes and kernel of a real machine, before and after a reboot. The tests build on one another, in this order."""

import dataclasses
import json
import time
from pathlib import Path

import pytest

from microshard.embedded.binary import find_mongod
from tests.cluster.ansible import points
from tests.cluster.ansible.lab import RUN_VARIABLES
from tests.hosts.needs import need
from tests.hosts.vm.machine import Disk, lacking, machine

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

DISKS = [
    # As a Nitro type shows them, by the kernel's NVMe driver: EBS by the volume's id, the instance's own by its model.
    Disk("data1", "vol0data1", iops=2000, bus="nvme"),
    Disk("data2", "vol0data2", iops=2000, bus="nvme"),
    Disk("journal", "AWS0journal", bus="nvme"),
    Disk("log", "vol0log", gib=1),
    Disk("slow", "vol0slow", gib=1, iops=100),
]
RUN = "/var/lib/microshard/run-1"  # on the data volume
NVME = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_"
VOLUME = {"type": "existing", "size_gib": 2, "filesystem": "xfs", "lazy_init": False, "policy": "single", "count": 1}
MOUNTS = {"journal": "/srv/microshard/journal", "log": "/srv/microshard/log", "data": "/var/lib/microshard"}
LOG = {**VOLUME, "size_gib": 1, "filesystem": "ext4"}


@pytest.fixture(scope="module")
def vm(tmp_path_factory):
    need(lacking())
    with machine(tmp_path_factory.mktemp("vm"), DISKS, {"mongod": find_mongod(None)}) as made:
        shown_as_instance_store(made)
        yield made


def shown_as_instance_store(vm):
    """The journal's disk says AWS's model, which QEMU's NVMe disks cannot be given: a file lies over it in /sys."""
    vm.ssh(
        f"echo 'Amazon EC2 NVMe Instance Storage' > /run/model && disk=$(basename $(realpath {NVME}AWS0journal)) && "
        "mount --bind /run/model $(realpath /sys/class/block/$disk/device/model)"
    )


def variables(vm, **log):
    """Data on RAID 0 over two devices, journal and log on their own; the kernel as the production notes say."""
    volumes = {
        "data": {**VOLUME, "policy": "raid0", "count": 2},
        "journal": {**VOLUME, "type": "instance_store"},
        "log": LOG | log,
    }
    kernel = {"production_notes": True, "readahead_sectors": 32, "swappiness": 10, "dirty_ratio": 30, "somaxconn": 3210}
    version = {"version": "6.0.5", "mongod": "/mongod", "mongos": "", "embedded": True}
    run = {"id": "run-1", "folder": RUN, "controller_folder": str(vm.folder / "run"), "bin": version}
    layout = points.Layout("replica_set", members=2, first_port=27100, cache_mib=256)
    point = json.loads(json.dumps(dataclasses.asdict(points.point(layout, Path(RUN)))))
    point["machines"] = {"shard_hosts": {"volumes": volumes, "kernel": kernel}}
    for process in point["processes"]:
        process["host"] = "vm"
    return {
        "microshard_run": {**run, "process_manager": "systemd"},
        "microshard_point": point,
        # EBS volumes are known by their ids, with a dash; NVMe devices carry them without.
        "microshard_volumes": [
            {"purpose": "data", "serial": "vol-0data1"},
            {"purpose": "data", "serial": "vol-0data2"},
            {"purpose": "log", "device": "/dev/disk/by-id/virtio-vol0log"},
        ],
    }


def settings(vm):
    """What the kernel has, by name."""
    names = [name for name in WANTED if "." in name]
    found = dict(line.split(" = ") for line in vm.ssh(f"sysctl {' '.join(names)}").splitlines())
    for name in ("enabled", "defrag"):
        text = vm.ssh(f"cat /sys/kernel/mm/transparent_hugepage/{name}")
        found[f"huge pages {name}"] = text[text.index("[") + 1 : text.index("]")]
    return found


def readahead(vm):
    """Sectors by mount point."""
    return {name: int(vm.ssh(f"blockdev --getra $(findmnt -no SOURCE {mount})")) for name, mount in MOUNTS.items()}


WANTED = {
    "vm.swappiness": "10",
    "vm.dirty_ratio": "30",
    "vm.max_map_count": "128000",
    "vm.zone_reclaim_mode": "0",
    "net.core.somaxconn": "3210",
    "net.ipv4.tcp_keepalive_time": "120",
    "huge pages enabled": "never",
    "huge pages defrag": "never",
}
USER = "host_kernel_user=mongod"
before: dict[str, str] = {}


def is_as_wanted(vm):
    """Volumes, readahead and kernel, as the machine itself shows them."""
    assert settings(vm) == WANTED
    assert readahead(vm) == {"data": 32, "journal": 32, "log": 32}
    mounts = vm.ssh("findmnt -rno TARGET,FSTYPE,OPTIONS,LABEL --real | grep microshard | sort").splitlines()
    found = [line.split() for line in mounts]
    assert [(m[0], m[1], m[3]) for m in found] == [
        ("/srv/microshard/journal", "xfs", "ms-journal"),
        ("/srv/microshard/log", "ext4", "ms-log"),
        ("/var/lib/microshard", "xfs", "ms-data"),
    ]
    assert all("noatime" in m[2].split(",") for m in found)
    assert "raid0" in vm.ssh("cat /proc/mdstat")
    limits = vm.ssh("su --login mongod --shell /bin/bash --command 'ulimit -n; ulimit -u'").split()
    assert limits == ["64000", "64000"]
    assert vm.ssh("systemctl is-active chrony") == "active"


def test_it_has_two_numa_nodes_and_its_disks_their_serial_numbers(vm):
    assert "available: 2 nodes (0-1)" in vm.ssh("numactl --hardware")
    assert vm.ssh("lsblk --nodeps --noheadings --output SERIAL | sort").split() == [
        "AWS0journal",
        "root",
        "vol0data1",
        "vol0data2",
        "vol0log",
        "vol0slow",
    ]


def test_a_foreign_filesystem_is_reported_and_nothing_is_formatted(vm):
    vm.ssh("mkfs.ext4 -q -L precious /dev/disk/by-id/virtio-vol0log && systemctl stop chrony")
    before.update(settings(vm))
    played = vm.play("prepare", variables(vm), "--tags", "storage")
    assert played.code != 0
    assert "vol0log" in played.output
    assert "carries ext4 'precious', which is not microshard's" in played.output
    assert "name its serial number in overwrite (vol0log)" in played.output
    assert vm.ssh(f"wipefs --no-act --noheadings {NVME}vol0data1") == ""
    assert vm.ssh("wipefs --no-act --noheadings --output LABEL /dev/disk/by-id/virtio-vol0log") == "precious"


def test_volumes_and_kernel_are_as_planned(vm):
    played = vm.play("prepare", variables(vm, overwrite=["vol0log"]), "--tags", "storage,kernel", "-e", USER)
    assert played.code == 0, played.output
    assert played.changed > 2  # settings and volumes
    is_as_wanted(vm)
    vm.ssh("echo kept > /var/lib/microshard/file")
    volumes = json.loads((vm.folder / "run/hosts/vm/storage.json").read_text())
    assert [(v["name"], v["readahead_sectors"], v["readahead_kib"]) for v in volumes] == [
        ("data", 32, 16),
        ("journal", 32, 16),
        ("log", 32, 16),
    ]
    assert [d["serial"] for d in volumes[1]["devices"]] == ["AWS0journal"], "found by its model alone"
    assert volumes[0]["raid"] == {"level": 0, "chunk_kib": 256}
    kernel = json.loads((vm.folder / "run/hosts/vm/kernel.json").read_text())
    assert kernel["numa"]
    assert kernel["is"]["transparent_huge_pages"] == "never"
    assert kernel["planned"]["swappiness"] == {"value": "10", "source": "the experiment"}
    assert kernel["planned"]["zone_reclaim_mode"]["source"].startswith("Production Notes")
    assert kernel["before"]["swappiness"] == before["vm.swappiness"]


def mongods(vm, policy, state="started"):
    """The two mongods of the point as services in a state, bound by a policy of numactl; their records."""
    wanted = {"state": state, "numa": policy, "start_timeout": 600, "user": "mongod"}
    role = {
        "role": "microshard.lab.mongo_processes",
        "vars": {f"mongo_processes_{key}": value for key, value in wanted.items()},
    }
    play = {
        "name": "mongods",
        "hosts": "shard_hosts",
        "become": True,
        "vars_files": [str(RUN_VARIABLES)],
        "roles": [role],
    }
    (vm.folder / "mongods.yml").write_text(json.dumps([play]))
    played = vm.play(str(vm.folder / "mongods"), variables(vm))
    assert played.code == 0, played.output
    records = vm.folder / "run/points/p01/processes"
    return [json.loads(path.read_text()) for path in sorted(records.glob("*.json"))]


def are_interleaved(vm, records):
    """Both mongods take memory from both nodes in turn, and have the limits of the unit, by the kernel's own word."""
    assert [r["started_by"][:2] for r in records] == [["numactl", "--interleave=0-1"]] * 2
    for record in records:
        maps = vm.ssh(f"cat /proc/{record['pid']}/numa_maps")
        assert "interleave:0-1" in maps
        limits = vm.ssh(f"grep -E 'open files|processes' /proc/{record['pid']}/limits")
        assert [line.split()[-3:-1] for line in limits.splitlines()] == [["64000", "64000"]] * 2
        assert vm.ssh(f"ps -o user= -p {record['pid']}") == "mongod"


def test_mongods_are_bound_to_the_nodes_as_planned(vm):
    vm.ssh(f"mkdir -p {RUN} && echo '{json.dumps({'microshard': 'host', 'run_id': 'run-1'})}' > {RUN}/run.json")
    records = mongods(vm, {"policy": "node_round_robin", "nodes": None})
    for node, record in enumerate(records):
        assert record["started_by"][:3] == ["numactl", f"--cpunodebind={node}", f"--membind={node}"]
        assert f"bind:{node}" in vm.ssh(f"cat /proc/{record['pid']}/numa_maps")
        assert f"Cpus_allowed_list:\t{node}" in vm.ssh(f"cat /proc/{record['pid']}/status")
    are_interleaved(vm, mongods(vm, {"policy": "interleave", "nodes": None}))


def test_a_disk_gives_no_more_than_its_limit(vm):
    began = time.monotonic()
    vm.ssh("dd if=/dev/disk/by-id/virtio-vol0slow of=/dev/null bs=4k count=400 iflag=direct")
    # 400 reads at 100 a second; a busy machine only makes it longer. What an idle limit has saved up counts too.
    assert time.monotonic() - began > 3


def test_all_of_it_holds_after_a_reboot_and_a_second_run_changes_nothing(vm):
    vm.reboot()
    shown_as_instance_store(vm)
    is_as_wanted(vm)
    assert vm.ssh("cat /var/lib/microshard/file") == "kept"
    played = vm.play("prepare", variables(vm), "--tags", "storage,kernel", "-e", USER, "--diff")
    assert played.code == 0, played.output
    assert played.changed == 0, played.output
    # Units of a run do not start by themselves: the same command brings them back, with what they had.
    are_interleaved(vm, mongods(vm, {"policy": "interleave", "nodes": None}))
    mongods(vm, {}, "absent")
    assert vm.ssh("ps -C mongod -o pid= || true") == ""
    assert vm.ssh(f"ls {RUN}/deployments; ls /etc/systemd/system | grep microshard@ || true") == ""


def test_at_the_end_the_machine_is_as_it_was_and_the_data_is_still_there(vm):
    played = vm.play("restore", variables(vm), "-e", USER)
    assert played.code == 0, played.output
    assert settings(vm) == before
    assert vm.ssh("findmnt -rno TARGET | grep -c microshard || true") == "0"
    files = "/etc/sysctl.d/90-microshard.conf /etc/security/limits.d/90-microshard.conf"
    files += " /etc/systemd/system/microshard-kernel.service /etc/udev/rules.d/99-microshard-readahead.rules"
    assert vm.ssh(f"ls {files} 2>/dev/null | wc -l; grep -c microshard /etc/fstab || true").split() == ["0", "0"]
    assert "linux_raid_member" in vm.ssh(f"wipefs --no-act --noheadings {NVME}vol0data1")
