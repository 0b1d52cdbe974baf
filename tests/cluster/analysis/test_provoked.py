"""Every bottleneck provoked for real, and named; and work that has none."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.analysis.evidence import Evidence
from microshard.embedded.binary import find_mongod
from microshard.hostlib import emulated_volumes as emulated
from microshard.hostlib import throttle
from tests.cluster.analysis.lab import Lab, fill, first_in_line, summary_of, verdict
from tests.cluster.embedded.lab import small_cluster
from tests.cluster.workloads.mongods import Mongod, start_mongod, stop_mongod

pytestmark = [pytest.mark.cluster, pytest.mark.alone]

FAR = Path(__file__).with_name("far.py")
QUARTER = {"cpu__cfs_quota_us": "25000", "cpu__cfs_period_us": "100000", "cpu__shares": "200000"}  # of a core
TICKET = ("--setParameter", "wiredTigerConcurrentReadTransactions=1")
PAGES = ("--wiredTigerEngineConfigString", "cache_size=4M")
Start = Callable[..., Mongod]


@pytest.fixture
def start(tmp_path: Path, lab: Lab) -> Iterator[Start]:
    """Start a mongod of this test."""
    running: list[Mongod] = []

    def run(name: str, *options: str) -> Mongod:
        with first_in_line():
            running.append(start_mongod(tmp_path / name, *options))
        return running[-1]

    yield run
    for mongod in running:
        if (mongod.folder / "pid").exists():  # its volume is still there
            stop_mongod(mongod)


def uri(mongod: Mongod) -> str:
    return f"mongodb://127.0.0.1:{mongod.port}/?directConnection=true"


@contextlib.contextmanager
def control_group(controller: str, **settings: str) -> Iterator[Path]:
    """A control group of version 1 with these settings; its processes go back to where they were."""
    group = Path(f"/sys/fs/cgroup/{controller}/microshard-test-{os.getpid()}")
    group.mkdir()
    try:
        for name, value in settings.items():
            (group / name.replace("__", ".")).write_text(value)
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()


def test_a_client_held_to_a_quarter_of_a_core(lab: Lab, start: Start) -> None:
    mongod = start("shard01")
    fill(mongod, 1000)
    with control_group("cpu", **QUARTER) as group:
        seen = lab.run([mongod.info], "find", uri=uri(mongod), connections=4, seconds=4, group=group)
    found = verdict(seen)
    assert found.name == "client", summary_of(seen)
    assert found.figures["cores_allowed"] == pytest.approx(0.25)
    assert found.figures["threads_held_back"] > 0.3


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "filled", "work", "name", "figure", "between"),
    [
        ((), (20_000, 50), ("scan", 1), "CPU", "in_flight", (1, 1)),
        (TICKET, (20_000, 50), ("scan", 12), "lock or ticket", "queue", (5, 12)),
        # One large document a page: what it takes to bring it into the cache is far more than to count it.
        (PAGES, (1_200, 120_000), ("count", 1), "cache", "cache_read_bytes_per_second", (10 * 2**20, 2**40)),
    ],
    ids=["one thread on a CPU", "one ticket for many readers", "a cache of a few pages"],
)
def test_reads_of_one_mongod(
    lab: Lab,
    start: Start,
    options: tuple[str, ...],
    filled: tuple[int, int],
    work: tuple[str, int],
    name: str,
    figure: str,
    between: tuple[float, float],
) -> None:
    mongod = start("shard01", *options)
    fill(mongod, *filled)
    seen = lab.run([mongod.info], work[0], uri=uri(mongod), connections=work[1])
    found = verdict(seen)
    assert found.name == name, summary_of(seen)
    assert between[0] <= found.figures[figure] <= between[1]
    assert found.figures.get("cache_bytes", 0) < 5 * 2**20


@pytest.mark.long
def test_one_hot_shard_of_two(lab: Lab, start: Start) -> None:
    hot, cold = start("shard01"), start("shard02")
    fill(hot, 20_000)
    seen = lab.run([server.info | {"role": "shard"} for server in (hot, cold)], "scan", uri=uri(hot))
    found = verdict(seen)
    assert found.name == "skew", summary_of(seen)
    assert "shard01 had" in found.sentence
    assert found.runner_up is not None
    assert found.runner_up.name == "CPU"


@contextlib.contextmanager
def volume(folder: Path, *, iops: int | None = None, throughput_mibps: int | None = None) -> Iterator[None]:
    """A loop device with the limits of a small rented volume, mounted where shard01 will keep its data."""
    volume = emulated.LoopVolume(
        name="data",
        image=folder / "volumes" / "p01" / "data.img",
        mount=folder / "shard01",
        size_gib=1,
        filesystem="ext4",
        lazy_init=True,
        iops=iops,
        throughput_mibps=throughput_mibps,
        readahead_sectors=None,
    )
    try:
        emulated.present([volume], emulated.group(folder, "p01"))
        yield
    finally:
        assert emulated.absent(folder)[1] == []


def on_volume(lab: Lab, start: Start, folder: Path, kind: str) -> Evidence:
    """Journaled writes of this kind by sixteen connections."""
    mongod = start("shard01", "--wiredTigerEngineConfigString", "cache_size=64M,log=(prealloc=false)")
    if throttle.controller().version == 2:
        group = throttle.controller().group(emulated.group(folder, "p01"))
        (group / "cgroup.procs").write_text(str(mongod.pid()))
    seen = lab.run([mongod.info], kind, uri=uri(mongod), connections=16, seconds=5)
    stop_mongod(mongod)
    return seen


@pytest.mark.long
@pytest.mark.parametrize(
    ("limits", "kind", "name", "figure", "limit"),
    [
        ({"iops": 100}, "insert", "disk IOPS", "w_ios_limit", 100),
        ({"throughput_mibps": 6}, "blob", "disk throughput", "w_bytes_limit", 6 * 2**20),
    ],
    ids=["a hundred writes a second", "few megabytes a second"],
)
def test_a_limited_volume(
    lab: Lab, start: Start, tmp_path: Path, limits: dict[str, int], kind: str, name: str, figure: str, limit: int
) -> None:
    with volume(tmp_path, **limits):
        seen = on_volume(lab, start, tmp_path, kind)
    found = verdict(seen)
    assert found.name == name, summary_of(seen)
    assert found.figures[figure] == pytest.approx(limit, rel=1e-3)  # four digits are kept


@pytest.mark.long
def test_a_router_held_to_a_quarter_of_a_core(lab: Lab, tmp_path: Path) -> None:
    with small_cluster(tmp_path, shards=1) as cluster:
        documents: list[Any] = [{"_id": n} for n in range(1000)]
        cluster.client["test"]["things"].insert_many(documents)
        pids = {"mongos1": cluster.mongos.pid}
        servers = [
            {"name": "mongos1", "role": "mongos", "endpoint": f"127.0.0.1:{cluster.mongos.port}", "db_path": None}
        ]
        for name, port in cluster.shards.items():
            pids[name] = next(p.pid for p in cluster.processes if f"'{port}'" in str(p.args))
            servers.append(
                {"name": name, "role": "shard", "endpoint": f"127.0.0.1:{port}", "db_path": str(tmp_path / name)}
            )
        for server in servers:
            pid_file = tmp_path / f"{server['name']}.pid"
            pid_file.write_text(f"{pids[str(server['name'])]}\n")
            server |= {"pid_path": str(pid_file), "host": "local"}
        with control_group("cpu", **QUARTER) as group:
            (group / "cgroup.procs").write_text(str(cluster.mongos.router_pid()))
            address = f"mongodb://127.0.0.1:{cluster.mongos.port}/"
            seen = lab.run(servers, "find", uri=address, connections=8, seconds=5)
    found = verdict(seen)
    assert found.name == "router", summary_of(seen)


@pytest.mark.long
def test_servers_that_are_five_milliseconds_away(lab: Lab, tmp_path: Path) -> None:
    """Point reads over a way that takes 5 ms in each direction."""
    carrier = subprocess.Popen([sys.executable, str(FAR), "0.005"], stdout=subprocess.PIPE, text=True)
    assert carrier.stdout is not None
    near, far = carrier.stdout.readline().split()
    folder = tmp_path / "shard01"
    (folder / "data").mkdir(parents=True)
    command = [str(find_mongod()), "--port", "27017", "--bind_ip", "10.9.0.2", "--nounixsocket"]
    command += ["--dbpath", str(folder / "data"), "--logpath", str(folder / "mongod.log")]
    mongod = subprocess.Popen(["nsenter", f"--net=/proc/{far}/ns/net", *command], stdout=subprocess.DEVNULL)
    try:
        (folder / "pid").write_text(f"{mongod.pid}\n")
        server = {"name": "shard01", "role": "standalone", "endpoint": "10.9.0.2:27017", "host": "local"}
        server |= {"db_path": str(folder / "data"), "pid_path": str(folder / "pid")}
        address = "mongodb://10.9.0.2:27017/?directConnection=true"
        seen = lab.run([server], "find", uri=address, connections=2, prefix=["nsenter", f"--net=/proc/{near}/ns/net"])
    finally:
        mongod.kill()
        mongod.wait()
        carrier.kill()
        carrier.communicate()
    found = verdict(seen)
    assert found.name == "network", summary_of(seen)
    assert found.figures["round_trip_seconds"] >= 0.0099  # a busy machine carries later, never sooner


def test_work_that_has_no_limit(lab: Lab, start: Start) -> None:
    mongod = start("shard01")
    fill(mongod, 1000)
    seen = lab.run([mongod.info], "idle", uri=uri(mongod), connections=2)
    assert verdict(seen).name == "none", summary_of(seen)


@pytest.mark.long
def test_a_mongod_with_too_little_memory(
    lab: Lab, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own code does not fit any more: pages of it are thrown out and read again."""
    # A copy, since the code of the one all tests use may be in memory on account of others.
    binary = Path(shutil.copy(find_mongod(), tmp_path / "mongod"))
    with binary.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    monkeypatch.setattr("tests.cluster.workloads.mongods.find_mongod", lambda: binary)
    with control_group("memory", memory__limit_in_bytes=str(256 * 2**20)) as group:
        home = _memory_group()
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            mongod = start("shard01", "--wiredTigerEngineConfigString", "cache_size=8M")
        finally:
            (home / "cgroup.procs").write_text(str(os.getpid()))
        fill(mongod, 1000, bytes_each=5_000)
        with short_of_memory(group):
            seen = lab.run([mongod.info], "scan", uri=uri(mongod), connections=2, seconds=5)
        stop_mongod(mongod)
    found = verdict(seen)
    assert found.name == "memory", summary_of(seen)


@contextlib.contextmanager
def short_of_memory(group: Path) -> Iterator[None]:
    """Ten times a second there is room for the heap alone: code and other clean pages go, and are read again.

    A limit that stays is enough, or brings all to a standstill; between the two is less than a MiB.
    """
    over = threading.Event()

    def squeeze() -> None:
        while not over.wait(0.1):
            heap = int(dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["total_rss"])
            for limit in (heap + 2**20, 2**30):
                with contextlib.suppress(OSError):  # as much has gone as could
                    (group / "memory.limit_in_bytes").write_text(str(limit))

    thread = threading.Thread(target=squeeze)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _memory_group() -> Path:
    """The control group this process is in."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    (path,) = [line.split(":", 2)[2] for line in lines if "memory" in line.split(":")[1].split(",")]
    return Path(f"/sys/fs/cgroup/memory{path}")


@pytest.mark.long
def test_other_programs_are_reported_from_the_run(lab: Lab, start: Start) -> None:
    """A program beside the run keeps a core busy; the run's own processes have next to nothing to do."""
    mongod = start("shard01")
    fill(mongod, 100)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as beside:
        try:
            seen = lab.run([mongod.info], "idle", uri=uri(mongod), seconds=3)
        finally:
            beside.kill()
    (machine,) = seen.hosts
    ours = sum(used for role, used in machine.roles.items() if role != "others")
    assert ours < 0.3
    assert machine.roles["others"] > 0.5
    assert machine.roles["others"] == pytest.approx(machine.busy * machine.cores - ours)
