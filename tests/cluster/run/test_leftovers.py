"""Cleaning up by the ledger, with real mongods of ours and of somebody else."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from microshard.backends import local_processes
from microshard.embedded.binary import find_mongod
from microshard.embedded.sharded_cluster import free_port
from microshard.model.run_records import JournalEvent
from microshard.records.run_folder import RunFolder

pytestmark = pytest.mark.cluster


def _mongod(folder: Path) -> subprocess.Popen[bytes]:
    data = folder / "data"
    data.mkdir(parents=True)
    return subprocess.Popen(
        [find_mongod(None), "--dbpath", data, "--port", str(free_port()), "--bind_ip", "127.0.0.1", "--nounixsocket",
         "--logpath", folder / "mongod.log", "--wiredTigerCacheSizeGB", "0.25"],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "runs", "sample")


def test_processes_of_the_run_are_ended_and_its_data_removed_and_neighbours_live_on(run, tmp_path):
    ours = _mongod(run / "deployments" / "p01" / "shard01")
    paused = _mongod(run / "deployments" / "p02" / "shard01")
    engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", run / "results" / "x.json"])
    neighbour = _mongod(tmp_path / "elsewhere")
    run.journal.append(JournalEvent("run started"))
    reader = subprocess.Popen(
        ["tail", "-f", run / "journal.jsonl"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    started = [ours, paused, engine, neighbour, reader]
    try:
        time.sleep(0.5)
        os.kill(paused.pid, signal.SIGSTOP)
        assert {p.pid for p in local_processes.running(run)} == {ours.pid, paused.pid, engine.pid}
        # The children are ours to reap, or they stay in /proc as zombies without a command line.
        assert local_processes.clean(run) == []
        assert [p.wait(timeout=10) is not None for p in (ours, paused, engine)] == [True] * 3
        assert neighbour.poll() is None
        assert reader.poll() is None
        assert (tmp_path / "elsewhere" / "data").is_dir()
        assert not (run / "deployments").exists()
        assert (run / "run.json").exists()
        assert [r.state for r in run.ledger.records()] == ["clean"]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()


def test_what_cannot_be_removed_is_named(run, monkeypatch):
    (run / "deployments" / "p01").mkdir()
    monkeypatch.setattr("microshard.backends.local_processes.shutil.rmtree", lambda *_, **__: None)
    assert local_processes.clean(run) == [f"folder {run / 'deployments'}", f"folder {run / 'tmp'}"]
    assert [r.state for r in run.ledger.records()] == ["not clean"]
