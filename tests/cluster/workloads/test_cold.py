"""Cold caches: mongods are really restarted, and only those that are ours."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from microshard.model.job import ProcessInfo
from microshard.workloads import restarts
from microshard.workloads.base import PhaseError
from tests.cluster.workloads.mongods import Mongod, RunJob, load, query

pytestmark = pytest.mark.cluster


def info(folder: Path, endpoint: str = "127.0.0.1:1") -> ProcessInfo:
    return ProcessInfo("mongod1", "standalone", endpoint, str(folder / "data"), str(folder / "pid"), "local")


def test_each_measured_query_finds_a_restarted_mongod(mongod: Mongod, run_job: RunJob) -> None:
    before = mongod.pid()
    cold = query(cache="cold", warm_up_iterations=0, iterations=1)
    code, result, errors = run_job([mongod], load(documents=5000), cold).finish()
    assert (code, errors) == (0, "")
    measure = result["phases"][1]
    assert measure["notes"]["cache"].startswith("cold: mongods restarted, page cache ")
    assert ("not dropped" in measure["notes"]["cache"]) == (os.geteuid() != 0)
    assert len(measure["samples"]) == 1
    assert mongod.pid() != before
    assert (mongod.folder / "mongod.log").read_text().count('"MongoDB starting"') == 2, "one start, one restart"
    with mongod.client() as client:
        assert client.vosa.mot_results.count_documents({}) == 5000


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours; its command line names `shard10`."""
    (tmp_path / "shard10").mkdir()
    (tmp_path / "shard10" / "run.sh").write_text("sleep 60\n")
    process = subprocess.Popen(["/bin/sh", str(tmp_path / "shard10" / "run.sh")], stderr=subprocess.DEVNULL)
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
        time.sleep(0.01)  # Popen returns a moment before the kernel shows the new command line
    yield process
    process.kill()
    process.wait()


def test_a_pid_file_that_names_another_process_stops_the_restart(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    """Also where the name of its folder merely begins like ours."""
    ours, theirs = tmp_path / "shard1", tmp_path / "shard10"
    ours.mkdir()
    (ours / "pid").write_text(str(other.pid))
    with pytest.raises(PhaseError, match="is not restarted") as caught:
        restarts.empty_local_caches([info(ours)])
    assert caught.value.kind == "NotOurs"
    assert other.poll() is None, "it was left alone"
    (theirs / "pid").write_text(str(other.pid))
    assert restarts.find(info(theirs)).process.pid == other.pid


def test_a_stale_pid_file_is_said(tmp_path: Path) -> None:
    child = subprocess.Popen(["/bin/true"])
    child.wait()
    (tmp_path / "pid").write_text(str(child.pid))
    with pytest.raises(PhaseError, match="no process behind") as caught:
        restarts.empty_local_caches([info(tmp_path)])
    assert caught.value.kind == "NotRunning"


def test_a_mongod_that_does_not_come_back_is_named(mongod: Mongod) -> None:
    running = restarts.find(info(mongod.folder, f"127.0.0.1:{mongod.port}"))
    restarts.stop([running])
    (mongod.folder / "data" / "WiredTiger.wt").write_bytes(b"broken")
    with pytest.raises(PhaseError, match=r"mongod1 ended with exit code \d+ when restarted"):
        restarts.start([running])
    assert mongod.process.wait() == 0
