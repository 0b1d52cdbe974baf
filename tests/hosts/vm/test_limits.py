"""Limits of single mongods on a kernel whose control groups are version 2: in units of systemd and in our groups."""

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from microshard.embedded.binary import find_mongod
from tests.cluster.ansible import points
from tests.cluster.ansible.lab import RUN_VARIABLES
from tests.hosts.needs import need
from tests.hosts.vm.machine import lacking, machine

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

RUN = "/var/lib/microshard/run-1"
GROUPS = "/sys/fs/cgroup"
LIMITS = {"cpus": 0.5, "memory_mb": 512, "read_iops": 400, "write_iops": 300, "read_mibps": 8, "write_mibps": 4.5}
FILES = {
    "cpu.max": "50000 100000",
    "memory.max": str(512 << 20),
    "memory.swap.max": "0",
    "io.max": f"rbps={8 << 20} wbps={9 << 19} riops=400 wiops=300",
}
HOSTLIB = Path(__file__).resolve().parents[3] / "src" / "microshard" / "hostlib"
# What a process with these limits sees of itself, when it was started with them; removed, nothing is left.
PROBE = """
import os, subprocess, sys
sys.path.insert(0, "/opt")
from hostlib import proc, process_limits
limits, folder = {"cpus": 0.3, "memory_mb": 64}, "/runs/run-2/deployments/p01/shard01"
print("why not:", process_limits.why_not(limits))
child = subprocess.Popen(proc.in_cgroups(process_limits.create(folder, limits), ["sleep", "60"]))
try:
    while not open(f"/proc/{child.pid}/cmdline", "rb").read().startswith(b"sleep"):
        pass
    print("difference:", process_limits.difference(limits, child.pid))
    print("kept:", process_limits.remove_of_run("/runs/run-2"))
finally:
    child.kill()
    child.wait()
print("left:", process_limits.remove_of_run("/runs/run-2"))
"""


@pytest.fixture(scope="module")
def vm(tmp_path_factory):
    need(lacking())
    with machine(tmp_path_factory.mktemp("vm"), [], {"mongod": find_mongod(None)}) as made:
        marker = json.dumps({"microshard": "host", "run_id": "run-1"})
        made.ssh(f"mkdir -p {RUN} && echo '{marker}' > {RUN}/run.json && chown -R mongod: {RUN}")
        yield made


def processes(vm, manager, state="started", limits=LIMITS):
    """Play the role: a mongod with these limits in a state. How the play ended, and the mongod's record."""
    point = json.loads(json.dumps(dataclasses.asdict(points.point(points.Layout(first_port=27100), Path(RUN)))))
    for process in point["processes"]:
        process |= {"host": "vm", "limits": limits}
    wanted = {"state": state, "start_timeout": 600, "user": "mongod" if manager == "systemd" else ""}
    role = {"role": "microshard.lab.mongo_processes", "vars": {f"mongo_processes_{k}": v for k, v in wanted.items()}}
    play = {"name": "mongod", "hosts": "shard_hosts", "become": True, "vars_files": [str(RUN_VARIABLES)]}
    (vm.folder / "mongod.yml").write_text(json.dumps([play | {"roles": [role]}]))
    version = {"version": "6.0.5", "mongod": "/mongod", "mongos": "", "embedded": True}
    run = {"id": "run-1", "folder": RUN, "controller_folder": str(vm.folder / "run"), "bin": version}
    played = vm.play(
        str(vm.folder / "mongod"), {"microshard_run": {**run, "process_manager": manager}, "microshard_point": point}
    )
    records = sorted((vm.folder / "run/points/p01/processes").glob("*.json"))
    return played, json.loads(records[-1].read_text()) if records else None


def of_kernel(vm, group, names=FILES):
    """What files of a control group say; of the limits of I/O without the device."""
    found = {name: vm.ssh(f"cat '{group}/{name}'") for name in names if name != "memory.swap.max"}
    found["memory.swap.max"] = vm.ssh(f"cat '{group}/memory.swap.max' 2>/dev/null || echo 0")
    device, _, limits = found["io.max"].partition(" ")
    assert device == vm.ssh(f"lsblk --nodeps --noheadings --output MAJ:MIN $(findmnt -no SOURCE -T {RUN})").strip()
    return found | {"io.max": limits}


def group_of(vm, pid):
    return GROUPS + vm.ssh(f"cat /proc/{pid}/cgroup").removeprefix("0::")


def test_this_kernel_has_control_groups_of_version_2(vm):
    assert vm.ssh(f"stat --file-system --format %T {GROUPS}") == "cgroup2fs"


def test_a_unit_has_its_limits_as_properties_and_the_kernel_has_them(vm):
    played, record = processes(vm, "systemd")
    assert played.code == 0, played.output
    properties = dict(line.split("=", 1) for line in vm.ssh(f"systemctl show '{record['unit']}'").splitlines())
    assert (properties["CPUQuotaPerSecUSec"], properties["MemoryMax"]) == ("500ms", str(512 << 20))
    assert properties["MemorySwapMax"] == "0"
    io = {k: int(v.split()[-1]) for k, v in properties.items() if k.startswith("IO") and k.endswith("Max") and v}
    assert io == {
        "IOReadIOPSMax": 400,
        "IOWriteIOPSMax": 300,
        "IOReadBandwidthMax": 8 << 20,
        "IOWriteBandwidthMax": 9 << 19,
    }
    group = group_of(vm, record["pid"])
    assert "microshard@" in group
    assert of_kernel(vm, group) == FILES
    played, _ = processes(vm, "systemd", "absent")
    assert played.code == 0, played.output
    assert vm.ssh(f"ls -d '{group}' 2>/dev/null || true") == ""


def test_a_mongod_started_directly_has_a_group_at_the_top_and_nothing_of_it_is_left(vm):
    before = set(vm.ssh(f"cat {GROUPS}/cgroup.subtree_control").split())
    played, record = processes(vm, "direct")
    assert played.code == 0, played.output
    group = group_of(vm, record["pid"])
    assert group == f"{GROUPS}/microshard-run-1/microshard-run-1-p01-mongod1"
    assert of_kernel(vm, group) == FILES
    vm.ssh("systemctl daemon-reload && systemctl set-property --runtime ssh.service CPUWeight=150")
    assert of_kernel(vm, group) == FILES  # systemd, whose the groups beside it are, leaves it alone
    assert int(vm.ssh(f"grep ^nr_throttled {group}/cpu.stat").split()[1]) > 0
    played, _ = processes(vm, "direct", "absent")
    assert played.code == 0, played.output
    assert vm.ssh(f"ls -d {GROUPS}/microshard* 2>/dev/null || true") == ""
    vm.ssh("systemctl revert ssh.service && systemctl daemon-reload")
    assert set(vm.ssh(f"cat {GROUPS}/cgroup.subtree_control").split()) - {"cpu"} == before - {"cpu"}


@pytest.mark.parametrize("manager", ["systemd", "direct"])
def test_a_mongod_that_its_memory_cannot_hold_is_named_with_that_reason(vm, manager):
    played, _ = processes(vm, manager, limits={"memory_mb": 36})
    assert played.code != 0
    assert "limits.memory_mb" in played.output
    played, _ = processes(vm, manager, "absent", {"memory_mb": 36})
    assert played.code == 0, played.output
    assert vm.ssh(f"ls -d {GROUPS}/microshard* 2>/dev/null || true") == ""


@pytest.mark.parametrize(
    ("start", "refusal"),
    [
        ("", ""),
        ("systemd-run --quiet --wait --pipe --uid=mongod -p Delegate=yes ", ""),
        ("systemd-run --quiet --wait --pipe --uid=mongod ", "run it as root, or as systemd-run --user --scope"),
    ],
    ids=["root", "a user whose group is delegated", "another user"],
)
def test_groups_are_made_by_root_and_by_a_user_in_a_delegated_scope(vm, start, refusal):
    """From a session of SSH or a unit, whose own group has processes: below it the kernel would allow none."""
    (vm.folder / "probe.py").write_text(PROBE)
    sources = [str(HOSTLIB), str(vm.folder / "probe.py")]
    copy = ["scp", "-q", "-O", "-r", *vm.options, "-P", str(vm.port), *sources, "root@127.0.0.1:/opt/"]
    subprocess.run(copy, check=True)
    lines = vm.ssh(f"{start}python3 /opt/probe.py 2>&1 || true").splitlines()
    if not refusal:
        assert [line.rstrip() for line in lines[:2]] == ["why not:", "difference:"], lines
        assert "Device or resource busy" in lines[2]  # its process still runs
        assert lines[3:] == ["left: []"]
    else:
        assert refusal in lines[0]
    assert vm.ssh(f"find {GROUPS} -name 'microshard*'") == ""
