"""The program that samples a host, on this machine."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.hostlib import host_counters
from microshard.hostlib import host_telemetry as host
from microshard.hostlib.host_counters import parse_stat

SCRIPT = Path(host.__file__)


class Processes:
    """The file of processes and their pid files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "processes.json"

    def write(self, *names: str, db_path: str | None = None) -> None:
        entries = [{"name": n, "pid_path": str(self.folder / f"{n}.pid"), "db_path": db_path} for n in names]
        self.path.write_text(json.dumps(entries))

    def pid(self, name: str, pid: int) -> None:
        (self.folder / f"{name}.pid").write_text(f"{pid}\n")


BUSY = "import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', sys.argv[1]])\nchild.wait()"
BURN = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    running: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen(command, start_new_session=True))
        return running[-1]

    yield run
    for process in running:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()


def records(path: Path, wanted: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The records once they are as wanted."""
    deadline = time.monotonic() + 60
    while True:
        text = path.read_text() if path.exists() else ""
        found = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        if wanted(found):
            return found
        assert time.monotonic() < deadline, text[-500:]
        time.sleep(0.05)


def parent_cpu(record: dict[str, Any]) -> float:
    return float(record["proc"].get("mongos1", {}).get("cpu", 0))


def router_cpu(record: dict[str, Any]) -> float:
    return float(record["proc"].get("mongos1/router", {}).get("cpu", 0))


def test_processes_that_come_later_and_children_of_a_router_are_seen(tmp_path: Path, start: Any) -> None:
    processes, out = Processes(tmp_path), tmp_path / "host.jsonl"
    script = start(
        *(sys.executable, "-E", str(SCRIPT), "--out", str(out), "--interval", "0.2", "--host", "local"),
        *("--processes", str(processes.path), "--client-pid-file", str(tmp_path / "client.pid")),
    )
    records(out, lambda found: len(found) >= 1 and found[-1]["proc"] == {})
    router = start(sys.executable, "-c", BUSY, BURN)
    processes.write("mongos1", "shard01")
    processes.pid("mongos1", router.pid)
    processes.pid("client", router.pid)
    # Not the first: its interpreter has just started, which takes CPU too.
    busy = records(out, lambda found: router_cpu(found[-1]) > max(0.05, parent_cpu(found[-1])))[-1]
    assert set(busy["proc"]) == {"mongos1", "mongos1/router", "client"}, "shard01 has no pid file yet"
    assert busy["proc"]["mongos1"]["pid"] == router.pid
    assert busy["proc"]["client"]["rss"] == busy["proc"]["mongos1"]["rss"] + busy["proc"]["mongos1/router"]["rss"]
    assert sum(busy["cpu"].values()) == pytest.approx(1, abs=0.001)
    assert busy["host"] == "local"
    assert busy["cores"] == os.cpu_count()
    os.killpg(router.pid, signal.SIGKILL)
    router.wait()
    records(out, lambda found: found[-1]["proc"] == {})
    script.terminate()
    assert script.wait(5) == 0


def test_a_process_is_not_charged_for_what_it_did_before_it_was_watched(tmp_path: Path, start: Any) -> None:
    processes = Processes(tmp_path)
    worker = start(sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass\ntime.sleep(60)")
    deadline = time.monotonic() + 60
    while parse_stat(Path(f"/proc/{worker.pid}/stat").read_text())["ticks"] < 20:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    processes.write("late")
    sampler = host.Sampler("local", host.ProcessList(str(processes.path)), None)
    processes.pid("late", worker.pid)
    assert sampler.record()["proc"]["late"]["cpu"] == 0


def test_the_size_of_a_db_path_is_in_every_fifth_record(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.write("shard01", db_path=str(tmp_path))
    sampler = host.Sampler("local", host.ProcessList(str(processes.path)), None)
    found = [sampler.record() for _ in range(10)]
    with_size = [number for number, record in enumerate(found) if "db_path_bytes" in record]
    assert len(with_size) == 2
    assert with_size[1] - with_size[0] == 5
    assert found[with_size[0]]["db_path_bytes"]["shard01"] >= 4096


def test_the_environment_is_described_again_once_the_data_folders_are_there(tmp_path: Path) -> None:
    """What was read before they were there knows no device, and later measurements would be of another environment."""
    processes, data = Processes(tmp_path), tmp_path / "data"
    processes.write("shard01", db_path=str(data))
    sampler = host.Sampler("h1", host.ProcessList(str(processes.path)), None)
    early, without = sampler.record(), sampler.record()
    data.mkdir()
    late, after = sampler.record(), sampler.record()
    assert [("environment" in record) for record in (early, without, late, after)] == [True, False, True, False]
    assert early["environment"]["readahead_kib"] == {}
    assert late["environment"] == host_counters.environment([str(data)])


def test_a_half_written_list_leaves_the_processes_of_before(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.write("a", "b")
    read = host.ProcessList(str(processes.path))
    assert [entry["name"] for entry in read.entries()] == ["a", "b"]
    processes.path.write_text('[{"name": "a", "pi')
    assert [entry["name"] for entry in read.entries()] == ["a", "b"]
    processes.write("c")
    assert [entry["name"] for entry in read.entries()] == ["c"]


def test_sigterm_leaves_only_whole_lines(tmp_path: Path, start: Any) -> None:
    out = tmp_path / "host.jsonl"
    script = start(sys.executable, "-E", str(SCRIPT), "--out", str(out), "--interval", "0.01")
    records(out, lambda found: len(found) > 20)
    script.terminate()
    assert script.wait(5) == 0
    text = out.read_text()
    assert text.endswith("}\n")
    assert all("cpu" in json.loads(line) for line in text.splitlines())


@pytest.mark.parametrize(("least", "lines"), [(host.LEAST, 1), (600, 0)])
def test_what_is_left_of_an_interval_is_a_record_too_unless_it_is_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, least: float, lines: int
) -> None:
    monkeypatch.setattr(host, "LEAST", least)
    sampler = host.Sampler("local", host.ProcessList(None), None)
    time.sleep(0.2)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        with (tmp_path / "host.jsonl").open("wb") as out:
            host.run(sampler, out.fileno(), 60, {signal.SIGUSR1})
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    found = [json.loads(line) for line in (tmp_path / "host.jsonl").read_text().splitlines()]
    assert [record["seconds"] >= 0.2 and "devices" in record for record in found] == [True] * lines


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-E", str(SCRIPT), "--out", str(tmp_path / "none" / "x")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "No such file" in done.stderr
