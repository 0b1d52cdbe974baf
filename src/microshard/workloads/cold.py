"""Cold caches: the operating system's page cache is dropped and the mongods lose their own by a restart.

On this machine only processes of the job are touched, and only where /proc shows that a pid is what its pid file says:
the command line must contain the process's folder. Each is started again with the very command line it had. On other
hosts the play does it (asking.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pymongo.errors import PyMongoError

from microshard.model.job import ProcessInfo
from microshard.workloads import restart_request as asking
from microshard.workloads.base import Client, Context, PhaseError
from microshard.workloads.storage import direct

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
UNIFIED = "/sys/fs/cgroup"  # where systemd mounts cgroup version 2; emulated volumes use it nowhere else
STOP_SECONDS = 60.0  # SIGTERM: quiesce takes up to 15 s, the final checkpoint the rest
START_SECONDS = 60.0  # recovery from the journal and the election
ANSWER_SECONDS = 60.0  # until a router has found the restarted shards
POLL_SECONDS = 0.05
HELLO_MS = 1000


@dataclass(frozen=True, slots=True)
class Running:
    """A process of the job as it was found."""

    info: ProcessInfo
    pid: int
    started: str  # start time in clock ticks: tells a process from a later one with the same pid
    command: list[str]
    folder: str
    environment: dict[str, str]
    cgroup: str = ""  # of version 2; "" where this machine has none


def _start_ticks(pid: int) -> str:
    """Field 22 of /proc/PID/stat; "" when the process is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]


def find(info: ProcessInfo) -> Running:
    """The running process behind a pid file. Raises PhaseError when there is none or it is not ours."""
    path = Path(info.pid_path)
    try:
        pid = int(path.read_text(encoding="ascii"))
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        folder = str(Path(f"/proc/{pid}/cwd").readlink())
        cgroups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise PhaseError("NotRunning", f"{info.name} cannot be restarted: no process behind {path} ({error})") from None
    command = [os.fsdecode(part) for part in raw.rstrip(b"\0").split(b"\0")]
    if not any(_is_below(part, path.parent) for part in command):
        raise PhaseError(
            "NotOurs", f"{info.name} is not restarted: pid {pid} of {path} runs {' '.join(command)[:200]!r} instead"
        )
    pairs = (os.fsdecode(entry).partition("=") for entry in environment.split(b"\0") if b"=" in entry)
    environ = {name: value for name, _, value in pairs}
    return Running(info, pid, _start_ticks(pid), command, folder, environ, _unified(cgroups))


def _unified(cgroups: str) -> str:
    """The cgroup of version 2 in /proc/PID/cgroup."""
    return next((line[3:] for line in cgroups.splitlines() if line.startswith("0::")), "")


def _same_group(process: Running) -> list[str]:
    """The start of a command line that puts a process into the cgroup its predecessor was in.

    The limits of an emulated volume hold for a group; a child of this engine would be outside of it.
    """
    own = _unified(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
    if process.cgroup in {"", own}:
        return []
    return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{UNIFIED}{process.cgroup}/cgroup.procs"]


def _is_below(part: str, folder: Path) -> bool:
    """Whether an argument (PATH or --option=PATH) names the folder or something in it."""
    path = part.partition("=")[2] if part.startswith("-") else part
    return path == str(folder) or path.startswith(f"{folder}/")


def stop(processes: Sequence[Running], number: signal.Signals = signal.SIGTERM) -> None:
    """Signal all (SIGTERM), then wait until all are gone. Raises PhaseError naming one that stays."""
    for process in processes:
        if _start_ticks(process.pid) == process.started:
            os.kill(process.pid, number)
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        while _start_ticks(process.pid) == process.started:
            if time.monotonic() > deadline:
                raise PhaseError(
                    "DoesNotStop", f"{process.info.name} (pid {process.pid}) did not stop in {STOP_SECONDS:.0f} s"
                )
            time.sleep(POLL_SECONDS)


def start(processes: Sequence[Running]) -> None:
    """Start all again with their own command lines and wait until each takes reads and writes as before.

    Raises PhaseError with the name of one that ends or is not ready in START_SECONDS.
    """
    children = [(process, _spawn(process)) for process in processes]
    deadline = time.monotonic() + START_SECONDS
    for process, child in children:
        _wait_ready(process, child, deadline)
        record_pid(process, child)


def launch(process: Running) -> None:
    """Start it again with its own command line, recorded in its pid file; whether it is ready is not waited for."""
    record_pid(process, _spawn(process))


def _spawn(process: Running) -> subprocess.Popen[bytes]:
    # A session of its own: it must outlive this engine and not hear the terminal's Ctrl-C.
    return subprocess.Popen(
        [*_same_group(process), *process.command],
        cwd=process.folder,
        env=process.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait_ready(process: Running, child: subprocess.Popen[bytes], deadline: float) -> None:
    """Until `hello` says primary, secondary or stand-alone; a replica set's first member may need an election."""
    while True:
        code = child.poll()
        if code not in {None, 0}:  # 0: `--fork`, the server is the child's child
            raise PhaseError("DoesNotStart", f"{process.info.name} ended with exit code {code} when restarted")
        if _takes_part(process.info):
            return
        _say_when_late(process.info, deadline)


def _say_when_late(info: ProcessInfo, deadline: float) -> None:
    """Wait a moment, or raise PhaseError when it has waited long enough."""
    if time.monotonic() > deadline:
        raise PhaseError("DoesNotStart", f"{info.name} was not ready {START_SECONDS:.0f} s after its restart")
    time.sleep(POLL_SECONDS)


def _takes_part(info: ProcessInfo) -> bool:
    """Whether it is what its set needs, or stand-alone. A new client each time: one that was refused pauses 0.5 s."""
    try:
        with direct(info, serverSelectionTimeoutMS=HELLO_MS, socketTimeoutMS=HELLO_MS) as client:
            hello = client.admin.command("hello")
    except PyMongoError:
        return False
    # isreplicaset: of no set yet, a phase adds it later.
    return bool(hello["isWritablePrimary"] or any(hello.get(k) for k in ("secondary", "arbiterOnly", "isreplicaset")))


def record_pid(process: Running, child: subprocess.Popen[bytes]) -> None:
    """The pid file must name the new process: whoever stops the point reads it. mongod may have written it itself."""
    path = Path(process.info.pid_path)
    try:
        recorded = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        recorded = 0
    if child.poll() is None and recorded != child.pid:
        path.write_text(f"{child.pid}\n", encoding="ascii")


def drop_page_cache() -> bool:
    """Write dirty pages and drop the page cache; whether this user may (root)."""
    os.sync()
    try:
        DROP_CACHES.write_text("3\n", encoding="ascii")
    except OSError:
        return False
    return True


def make_cold(context: Context) -> str:
    """Empty the caches of all data-bearing mongods, here or by asking for it; what was done, in words. PhaseError."""
    return empty_caches_elsewhere(context) if context.job.asks else empty_caches(context.job.point.processes)


def empty_caches_elsewhere(context: Context) -> str:
    """The same on the hosts of the mongods, done by the play. Raises PhaseError naming what did not come back."""
    bearing = [process for process in context.job.point.processes if process.bears_data]
    by_host = asking.restarted(context, bearing, drop_page_cache=True)
    deadline = time.monotonic() + START_SECONDS
    for info in bearing:
        while not _takes_part(info):
            _say_when_late(info, deadline)
    return f"mongods restarted, {_page_caches(by_host, {info.host for info in bearing})}"


def _page_caches(by_host: Mapping[str, str], hosts: set[str]) -> str:
    """Whether the page cache was dropped on all hosts, and where not and why."""
    told = {host: by_host.get(host, "not dropped (nothing was told)") for host in sorted(hosts)}
    if len(set(told.values())) == 1:
        return f"page cache {next(iter(told.values()))}"
    return ", ".join(f"page cache {said} on {host}" for host, said in told.items())


def empty_caches(processes: Sequence[ProcessInfo]) -> str:
    """Stop the data-bearing mongods, drop the page cache, start them; what was done, in words.

    Without pid files (services that somebody else manages) only the page cache is dropped. Raises PhaseError when
    neither can be done: a query on warm caches must not be called cold.
    """
    bearing = [process for process in processes if process.bears_data]
    restart = bool(bearing) and all(Path(process.pid_path).is_file() for process in bearing)
    if not restart:
        if drop_page_cache():
            return "page cache dropped; mongods not restarted (no pid files here), their own caches stay"
        raise PhaseError("CannotBeCold", "the page cache cannot be dropped (not root) and no mongod is ours to restart")
    running = [find(process) for process in bearing]
    stop(running)
    dropped = drop_page_cache()
    start(running)
    return f"mongods restarted, {'page cache dropped' if dropped else 'page cache not dropped (not root)'}"


def wait_until_answering(client: Client, database: str, collection: str) -> None:
    """Until the point answers for every shard again, without touching the data. Raises PhaseError."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            list(client[database][collection].aggregate([{"$collStats": {"count": {}}}]))
        except PyMongoError as error:
            if time.monotonic() > deadline:
                raise PhaseError("NotAnswering", f"after the restart of the mongods: {error}") from error
            time.sleep(POLL_SECONDS)
        else:
            return
