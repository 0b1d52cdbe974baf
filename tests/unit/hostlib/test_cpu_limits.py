"""A quota of cores for one process: set, read back, compared, and gone with the process."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from microshard.hostlib import cpu_limits, proc
from microshard.hostlib import host_counters as kernel
from microshard.hostlib.errors import HostError

needs_cgroups = pytest.mark.skipif(bool(cpu_limits.why_not()), reason=cpu_limits.why_not())


def test_the_group_lies_below_the_one_this_process_is_in_and_names_run_point_and_process():
    folder = "/runs/run-1/deployments/p01/shard02"
    assert cpu_limits.group_of(folder, {"cpu": "/a/cpu/here", "": "/b"}) == "/a/cpu/here/microshard-run-1-p01-shard02"
    assert cpu_limits.group_of(folder, {"memory": "/m", "": "/b"}) == "/b/microshard-run-1-p01-shard02"
    with pytest.raises(HostError, match="no CPU controller"):
        cpu_limits.group_of(folder, {"memory": "/m"})


def test_a_group_that_cannot_be_written_is_refused_with_the_reason(tmp_path):
    with pytest.raises(HostError, match=r"limits.cpus: .*missing.* cannot be written: No such file"):
        cpu_limits.create(str(tmp_path / "missing" / "group"), 0.5)


def test_version_2_needs_the_controller_and_gets_quota_and_period(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpu")
    cpu_limits.create(str(tmp_path / "group"), 1.5)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "group/cpu.max").read_text() == "150000 100000"
    assert cpu_limits.is_unified(str(tmp_path))


@needs_cgroups
def test_a_process_in_its_group_uses_no_more_than_its_cores_and_is_seen_to_be_throttled():
    group = cpu_limits.group_of(f"/runs/test{os.getpid()}/deployments/p01/shard01")
    cpu_limits.create(group, 0.2)
    try:
        child = subprocess.Popen(proc.in_cgroups([group], ["/bin/sh", "-c", "while :; do :; done"]))
        try:
            time.sleep(1.0)
            ticks = kernel.parse_stat(Path(f"/proc/{child.pid}/stat").read_text())["ticks"]
            assert cpu_limits.difference(0.2, child.pid) == ""
            assert "planned: 0.5" in cpu_limits.difference(0.5, child.pid)
        finally:
            child.kill()
            child.wait()
        assert ticks / kernel.TICKS <= 0.3
        throttled, periods = kernel.parse_words(Path(group, "cpu.stat").read_text(), "nr_throttled", "nr_periods")
        assert 0 < throttled <= periods
    finally:
        assert cpu_limits.remove_of_run(f"/runs/test{os.getpid()}") == []
    assert not Path(group).exists()
