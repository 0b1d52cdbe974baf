"""Cold caches: mongods are really restarted, and only those that are ours."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from microshard.model.job import ProcessInfo
from microshard.workloads import restarts
from microshard.workloads.base import PhaseError
from tests.cluster.engines.mongods import Mongod, RunJob, load, query

pytestmark = pytest.mark.cluster


def info(folder: Path, endpoint: str = "127.0.0.1:1") -> ProcessInfo:
    return ProcessInfo("mongod1", "standalone", endpoint, str(folder / "data"), str(folder / "pid"), "local")


def test_each_measured_query_finds_a_restarted_mongod(mongod: Mongod, run_job: RunJob) -> None:
    before = mongod.pid()
    code, result, errors = run_job(
        [mongod], load(documents=5000), query(cache="cold", warm_up_iterations=0, iterations=1)
    ).finish()
    assert (code, errors) == (0, "")
    measure = result["phases"][1]
    assert measure["notes"]["cache"].startswith("cold: mongods restarted, page cache ")
    assert ("not dropped" in measure["notes"]["cache"]) == (os.geteuid() != 0)
    assert len(measure["samples"]) == 1
    assert mongod.pid() != before
    assert (mongod.folder / "mongod.log").read_text().count('"MongoDB starting"') == 2, "one start, one restart"
    with mongod.client() as client:
        assert client.vosa.mot_results.count_documents({}) == 5000


def test_a_pid_file_that_names_another_process_stops_the_restart(tmp_path: Path) -> None:
    other = subprocess.Popen(["/bin/sleep", "60"])
    try:
        while not Path(f"/proc/{other.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        (tmp_path / "pid").write_text(str(other.pid))
        with pytest.raises(PhaseError, match="is not restarted") as caught:
            restarts.empty_local_caches([info(tmp_path)])
        assert caught.value.kind == "NotOurs"
        assert other.poll() is None, "it was left alone"
    finally:
        other.kill()
        other.wait()


def test_a_folder_whose_name_merely_begins_alike_is_not_ours(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "shard1", tmp_path / "shard10"
    for folder in (ours, theirs):
        folder.mkdir()
    script = theirs / "run.sh"
    script.write_text("sleep 60 & wait\n")
    other = subprocess.Popen(["/bin/sh", str(script)])
    try:
        while not Path(f"/proc/{other.pid}/cmdline").read_bytes():
            time.sleep(0.01)  # Popen returns a moment before the kernel shows the new command line
        (ours / "pid").write_text(str(other.pid))
        with pytest.raises(PhaseError, match="is not restarted"):
            restarts.find(info(ours))
        (theirs / "pid").write_text(str(other.pid))
        assert restarts.find(info(theirs)).process.pid == other.pid
    finally:
        for child in Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().split():
            os.kill(int(child), 9)
        other.kill()
        other.wait()


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
