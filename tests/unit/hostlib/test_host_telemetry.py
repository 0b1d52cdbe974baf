"""The host sampler: its parsers on recorded files, and the script itself on this machine."""

from __future__ import annotations

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

from microshard.hostlib import host_telemetry as host

SCRIPT = Path(host.__file__)

STAT = """\
cpu  10 2 30 400 5 6 7 8 0 0
cpu0 5 1 15 200 2 3 3 4 0 0
cpu1 5 1 15 200 3 3 4 4 0 0
intr 12345 0 1
ctxt 999
btime 1795230000
"""
DISKSTATS = """\
   1       0 ram0 0 0 0 0 0 0 0 0 0 0 0
   7       0 loop0 11 0 90 3 0 0 0 0 0 4 3 0 0 0 0 0 0
   7       1 loop1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 259       0 nvme0n1 4000 10 80000 900 2000 30 64000 800 0 1500 1700 0 0 0 0 12 3
 259       1 nvme0n1p1 10 0 20 1 0 0 0 0 0 1 1 0 0 0 0 0 0
"""
NET = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 5000 10 0 0 0 0 0 0 5000 10 0 0 0 0 0 0
  eth0:123456 100 0 0 0 0 0 0 654 9 0 0 0 0 0 0
"""
PROCESS = (
    "4242 (mongod (x) y) S 17 4242 4242 0 -1 4194560 9 0 3 0 150 50 7 8 20 0 61 0 98765 2147483648 25000 "
    "18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)


def test_cpu_time_is_split_into_five_kinds() -> None:
    times, cores = host.parse_cpu(STAT)
    assert times == {"user": 12, "sys": 43, "iowait": 5, "idle": 400, "steal": 8}
    assert cores == 2


def test_memory_is_in_bytes() -> None:
    text = "MemTotal:       24683000 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\nHugePages_Total:       0\n"
    assert host.parse_memory(text) == {"total": 24683000 * 1024, "available": 20000000 * 1024}


def test_disks_that_did_something_are_listed_in_bytes() -> None:
    assert host.parse_disks(DISKSTATS) == {
        "loop0": [11, 90 * 512, 0, 0, 4, 3],
        "nvme0n1": [4000, 80000 * 512, 2000, 64000 * 512, 1500, 1700],
        "nvme0n1p1": [10, 20 * 512, 0, 0, 1, 1],
    }


def test_interfaces_are_read_with_and_without_a_space_after_their_name() -> None:
    assert host.parse_network(NET) == {"lo": [5000, 5000], "eth0": [123456, 654]}


def test_a_process_name_may_hold_parentheses_and_spaces() -> None:
    assert host.parse_process(PROCESS) == {
        "parent": 17,
        "ticks": 200,
        "started": 98765,
        "rss": 25000 * host.PAGE,
        "faults": 3,
    }


def test_io_is_what_went_to_storage() -> None:
    text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n"
    assert host.parse_io(text) == [4096, 8192]


def test_a_counter_that_was_reset_did_not_grow() -> None:
    assert host.grown([5, 1], [3, 9]) == [2, 0]


def test_allocated_bytes_are_blocks_not_lengths(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "full").write_bytes(os.urandom(1 << 20))
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 30)
    assert 1 << 20 <= host.allocated_bytes(str(tmp_path)) < 1 << 22


class Listing:
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
    listing, out = Listing(tmp_path), tmp_path / "host.jsonl"
    script = start(
        *(sys.executable, "-I", str(SCRIPT), "--out", str(out), "--interval", "0.2", "--host", "local"),
        *("--processes", str(listing.path), "--client-pid-file", str(tmp_path / "client.pid")),
    )
    records(out, lambda found: len(found) >= 1 and found[-1]["proc"] == {})
    router = start(sys.executable, "-c", BUSY, BURN)
    listing.write("mongos1", "shard01")
    listing.pid("mongos1", router.pid)
    listing.pid("client", router.pid)
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
    listing = Listing(tmp_path)
    worker = start(sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass\ntime.sleep(60)")
    deadline = time.monotonic() + 60
    while host.parse_process(Path(f"/proc/{worker.pid}/stat").read_text())["ticks"] < 20:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    listing.write("late")
    sampler = host.Sampler("local", host.Listing(str(listing.path)), None)
    listing.pid("late", worker.pid)
    assert sampler.record()["proc"]["late"]["cpu"] == 0


def test_the_size_of_a_db_path_is_in_every_fifth_record(tmp_path: Path) -> None:
    listing = Listing(tmp_path)
    listing.write("shard01", db_path=str(tmp_path))
    sampler = host.Sampler("local", host.Listing(str(listing.path)), None)
    found = [sampler.record() for _ in range(10)]
    with_size = [number for number, record in enumerate(found) if "db_path_bytes" in record]
    assert len(with_size) == 2
    assert with_size[1] - with_size[0] == 5
    assert found[with_size[0]]["db_path_bytes"]["shard01"] >= 4096


def test_a_half_written_list_leaves_the_processes_of_before(tmp_path: Path) -> None:
    listing = Listing(tmp_path)
    listing.write("a", "b")
    read = host.Listing(str(listing.path))
    assert [entry["name"] for entry in read.entries()] == ["a", "b"]
    listing.path.write_text('[{"name": "a", "pi')
    assert [entry["name"] for entry in read.entries()] == ["a", "b"]
    listing.write("c")
    assert [entry["name"] for entry in read.entries()] == ["c"]


def test_sigterm_leaves_only_whole_lines(tmp_path: Path, start: Any) -> None:
    out = tmp_path / "host.jsonl"
    script = start(sys.executable, "-I", str(SCRIPT), "--out", str(out), "--interval", "0.01")
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
    sampler = host.Sampler("local", host.Listing(None), None)
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
        [sys.executable, "-I", str(SCRIPT), "--out", str(tmp_path / "none" / "x")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "No such file" in done.stderr
