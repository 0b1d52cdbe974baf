"""What one process may use: set, read back, compared, and gone with the process."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from microshard.hostlib import host_counters as kernel
from microshard.hostlib import proc, process_limits
from microshard.hostlib.errors import HostError

needs_cpu = pytest.mark.skipif(bool(why := process_limits.why_not({"cpus": 1.0})), reason=why)
needs_memory = pytest.mark.skipif(bool(why := process_limits.why_not({"memory_mb": 64})), reason=why)
RUN = f"/runs/test{os.getpid()}"
FOLDER = f"{RUN}/deployments/p01/shard01"


def test_the_groups_lie_below_those_this_process_is_in_and_name_run_point_and_process():
    folder, name = "/runs/run-1/deployments/p01/shard02", "microshard-run-1-p01-shard02"
    limits = {"cpus": 1, "memory_mb": 64}
    assert process_limits.groups_of(folder, limits, {"cpu": "/a/cpu/here", "": "/b"}) == {
        "cpu": f"/a/cpu/here/{name}",
        "memory": f"/b/microshard-run-1/{name}",
    }
    with pytest.raises(HostError, match=r"limits\.cpus: the kernel has no controller"):
        process_limits.groups_of(folder, limits, {"memory": "/m"})


def test_a_group_that_cannot_be_written_is_refused_with_the_reason(tmp_path):
    with pytest.raises(HostError, match=r"limits.cpus: .*missing has no controller cpu "):
        process_limits.create(FOLDER, {"cpus": 0.5}, known={"": str(tmp_path / "missing")})
    with pytest.raises(HostError, match=r"limits\.write_iops: cgroup version 1 leaves out"):
        process_limits.create(FOLDER, {"write_iops": 5}, known={"blkio": str(tmp_path)})
    with pytest.raises(HostError, match="lies on no block device"):
        process_limits.device_of("/proc")


def test_version_2_has_its_groups_at_the_top_with_the_controllers_and_files(tmp_path):
    """What is written; tests/hosts/vm has the kernel that takes it."""
    disk = process_limits.device_of(str(tmp_path))
    limits = {"cpus": 1.5, "memory_mb": 64, "write_mibps": 2.5}
    own = tmp_path / "user.slice" / "session-1.scope"
    named = tmp_path / "microshard-test" / "microshard-test-p01-shard01"
    for folder in (own, named):
        folder.mkdir(parents=True)
    for folder in (tmp_path, own.parent, own, named):
        (folder / "cgroup.controllers").write_text("cpu io memory\n")
    (tmp_path / "cgroup.subtree_control").touch()
    (group,) = process_limits.create("/test/deployments/p01/shard01", limits, str(tmp_path), {"": str(own)})
    assert group == str(named)
    for folder in (tmp_path, named.parent):
        assert (folder / "cgroup.subtree_control").read_text() == "+io +memory"
    found = {path.name: path.read_text() for path in Path(group).iterdir()}
    assert found == {
        "cgroup.controllers": "cpu io memory\n",
        "cpu.max": "150000 100000",
        "memory.max": str(64 << 20),
        "io.max": f"{disk} wbps=2621440",
    }
    assert process_limits.is_unified(group)


def test_a_unit_has_them_as_properties(tmp_path):
    limits = {"cpus": 1.5, "memory_mb": 64, "read_iops": 100, "write_mibps": 2.5}
    assert process_limits.unit_properties(limits, str(tmp_path)) == {
        "CPUQuota": "150%",
        "MemoryMax": "67108864",
        "MemorySwapMax": "0",
        "IOReadIOPSMax": f"{tmp_path} 100",
        "IOWriteBandwidthMax": f"{tmp_path} 2621440",
    }


@needs_cpu
def test_a_process_in_its_group_uses_no_more_than_its_cores_and_is_seen_to_be_throttled():
    (group,) = process_limits.create(FOLDER, {"cpus": 0.2})
    try:
        child = subprocess.Popen(proc.in_cgroups([group], ["/bin/sh", "-c", "while :; do :; done"]))
        try:
            time.sleep(1.0)
            ticks = kernel.parse_stat(Path(f"/proc/{child.pid}/stat").read_text())["ticks"]
            assert process_limits.difference({"cpus": 0.2}, child.pid) == ""
            assert "planned: 0.5" in process_limits.difference({"cpus": 0.5}, child.pid)
            assert "has by its control group no limit as limits.memory_mb" in process_limits.difference(
                {"memory_mb": 77}, child.pid
            )
        finally:
            child.kill()
            child.wait()
        assert ticks / kernel.TICKS <= 0.3
        throttled, periods = kernel.parse_words(Path(group, "cpu.stat").read_text(), "nr_throttled", "nr_periods")
        assert 0 < throttled <= periods
    finally:
        assert process_limits.remove_of_run(RUN) == []
    assert not Path(group).exists()


@needs_memory
def test_a_process_that_needs_more_than_its_memory_is_killed_and_that_is_known():
    (group,) = process_limits.create(FOLDER, {"memory_mb": 48})
    try:
        assert process_limits.out_of_memory(FOLDER) == ""
        hungry = ["python3", "-c", "x = bytearray(200 << 20); print(len(x))"]
        done = subprocess.run(proc.in_cgroups([group], hungry), capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (-9, b"")
        assert "it needed more memory than its 48 MiB" in process_limits.out_of_memory(FOLDER)
    finally:
        assert process_limits.remove_of_run(RUN) == []
    assert not Path(group).exists()


def disk_reads(folder: Path, limits: dict[str, float]) -> float:
    """Seconds for 8 MiB from the disk, in requests of 1 MiB, by a process with these limits."""
    folder.joinpath("data").write_bytes(os.urandom(8 << 20))
    os.sync()
    groups = process_limits.create(FOLDER, limits, str(folder)) if limits else []
    words = ["dd", f"if={folder}/data", "of=/dev/null", "bs=1M", "iflag=direct"]
    began = time.monotonic()
    subprocess.run(proc.in_cgroups(groups, words), capture_output=True, check=True)
    return time.monotonic() - began


def test_reads_of_the_disk_take_the_time_their_limit_gives_them(tmp_path):
    if reason := process_limits.why_not({"read_mibps": 4.0}, str(tmp_path)):
        pytest.skip(reason)
    try:
        assert disk_reads(tmp_path, {}) < 1.0
        assert 1.5 < disk_reads(tmp_path, {"read_mibps": 4.0}) < 4.0
    finally:
        assert process_limits.remove_of_run(RUN) == []
