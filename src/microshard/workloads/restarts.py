"""Restarting mongods during a phase, and emptying caches: the page cache is dropped, mongods lose theirs by a restart.

On this machine only processes of the job are touched, and only where /proc shows that a pid is what its pid file says:
the command line must contain the process's folder. Each is started again with the very command line it had.

Mongods on other hosts are restarted by the play that runs the engine: the engine writes `restarts/request-N.json` by
its result, the role `workload` has it done, and the answer is in `restarts/answer-N.json` (docs/contracts.md).
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo.errors import PyMongoError

from microshard.hostlib import kernel_settings, proc
from microshard.hostlib.host_counters import control_groups, read_pid
from microshard.model.job import ProcessInfo
from microshard.workloads.base import Context, PhaseError, collection_of
from microshard.workloads.connections import Client
from microshard.workloads.servers import direct, process_of, with_data

STOP_SECONDS = 60.0  # SIGTERM: quiesce takes up to 15 s, the final checkpoint the rest
START_SECONDS = 60.0  # recovery from the journal and the election
READY_SECONDS = 60.0  # until a router has found the restarted shards
# SIGTERM to SIGKILL 30 s, start 60 s (roles/mongo_processes/defaults), and what Ansible needs for many hosts.
REQUEST_SECONDS = 300.0
POLL_SECONDS = 0.05
REQUEST_POLL_SECONDS = 0.02
HELLO_MS = 1000


# --- on this machine


@dataclass(frozen=True, slots=True)
class Restartable:
    """A running process of the job, with everything needed to start it again."""

    info: ProcessInfo
    process: proc.LiveProcess
    folder: str
    environment: dict[str, str]
    cgroups: list[str]  # folders of those that are microshard's


def find(info: ProcessInfo) -> Restartable:
    """The running process behind a pid file. Raises PhaseError when there is none or it is another program."""
    process, other = process_of(info), proc.find(read_pid(info.pid_path) or 0)
    if process is None and other is not None:
        command = f"pid {other.pid} of {info.pid_path} runs {other.command_line[:200]!r} instead"
        raise PhaseError("NotOurs", f"{info.name} is not restarted: {command}")
    try:
        if process is None:
            raise OSError("none is recorded, or it has ended")
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        folder = str(Path(f"/proc/{process.pid}/cwd").readlink())
    except OSError as error:
        message = f"{info.name} cannot be restarted: no process behind {info.pid_path} ({error})"
        raise PhaseError("NotRunning", message) from None
    pairs = (os.fsdecode(entry).partition("=") for entry in environment.split(b"\0") if b"=" in entry)
    variables = {name: value for name, _, value in pairs}
    groups = [group for group in control_groups(process.pid).values() if Path(group).name.startswith("microshard")]
    return Restartable(info, process, folder, variables, groups)


def stop(processes: Sequence[Restartable], number: signal.Signals = signal.SIGTERM) -> None:
    """Signal all processes and wait until they have ended. Raises PhaseError naming one that does not."""
    for each in processes:
        proc.send_signal(each.process, number)
    deadline = time.monotonic() + STOP_SECONDS
    for each in processes:
        if not proc.wait_until_gone(each.process, deadline):
            raise PhaseError(
                "DoesNotStop", f"{each.info.name} (pid {each.process.pid}) did not stop in {STOP_SECONDS:.0f} s"
            )


def start(processes: Sequence[Restartable]) -> None:
    """Start processes again with their command lines and wait until each takes reads and writes as before.

    Raises PhaseError with the name of one that ends or is not ready in START_SECONDS.
    """
    children = [(each, _spawn(each)) for each in processes]
    deadline = time.monotonic() + START_SECONDS
    for each, child in children:
        # `hello` says primary, secondary or stand-alone; a replica set's first member may need an election.
        while not is_ready(each.info):
            if child.poll() not in {None, 0}:  # 0: with `--fork` the server is the child's child
                message = f"{each.info.name} ended with exit code {child.returncode} when restarted"
                raise PhaseError("DoesNotStart", message)
            _pause(each.info, deadline)
        _record_pid(each, child)


def launch(process: Restartable) -> None:
    """Start a process again with its command line and record its pid, without waiting until it is ready."""
    _record_pid(process, _spawn(process))


def _spawn(process: Restartable) -> subprocess.Popen[bytes]:
    # Its cgroups are those of its predecessor: an emulated volume's limits, and its own. A new session, for it must
    # outlive this engine and not receive the terminal's Ctrl-C.
    return subprocess.Popen(
        proc.in_cgroups(process.cgroups, list(process.process.command)),
        cwd=process.folder,
        env=process.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _record_pid(process: Restartable, child: subprocess.Popen[bytes]) -> None:
    """Write the new pid into the pid file, which teardown reads, unless mongod has written it."""
    if child.poll() is None and read_pid(process.info.pid_path) != child.pid:
        Path(process.info.pid_path).write_text(f"{child.pid}\n", encoding="ascii")


def is_ready(info: ProcessInfo) -> bool:
    """Whether a mongod is primary, secondary or stand-alone. With a new client: one that was refused pauses 0.5 s."""
    try:
        with direct(info, serverSelectionTimeoutMS=HELLO_MS, socketTimeoutMS=HELLO_MS) as client:
            # `hello` came with 4.4.2; every version answers this.
            hello = client.admin.command("isMaster")
    except PyMongoError:
        return False
    # isreplicaset: not initiated yet, a phase adds it later.
    return bool(hello["ismaster"] or any(hello.get(k) for k in ("secondary", "arbiterOnly", "isreplicaset")))


def _pause(info: ProcessInfo, deadline: float) -> None:
    """Wait a moment; after the deadline raise PhaseError."""
    if time.monotonic() > deadline:
        raise PhaseError("DoesNotStart", f"{info.name} was not ready {START_SECONDS:.0f} s after its restart")
    time.sleep(POLL_SECONDS)


# --- on other hosts


def request_restart(
    context: Context,
    processes: Sequence[ProcessInfo],
    *,
    kill: bool = False,
    drop_page_cache: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Have the play restart mongods, ended by SIGTERM or SIGKILL, with the page cache dropped in between if wanted.

    `meanwhile` is called repeatedly until the play has answered. Returns host → "dropped" or "not dropped (reason)".
    Each mongod answers by then; whether it is primary or secondary is for the caller to wait for. Raises PhaseError:
    CannotAsk without a folder, NotAnswered, or DoesNotStart with the message of the play.
    """
    if context.folder is None:
        raise PhaseError("CannotAsk", "an engine without a folder for its files cannot request restarts")
    folder, names = context.folder / "restarts", [process.name for process in processes]
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + len(list(folder.glob("request-*.json")))
    draft = folder / f".request-{number}.{os.getpid()}"
    draft.write_text(json.dumps({"restart": names, "kill": kill, "drop_page_cache": drop_page_cache}) + "\n")
    draft.replace(folder / f"request-{number}.json")
    path, deadline = folder / f"answer-{number}.json", time.monotonic() + REQUEST_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            waited = f"{', '.join(names)} were not restarted within {REQUEST_SECONDS:.0f} s"
            raise PhaseError("NotAnswered", f"{waited}: the role workload did not answer")
        meanwhile()
        time.sleep(REQUEST_POLL_SECONDS)
    answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if answer.get("error"):
        raise PhaseError("DoesNotStart", str(answer["error"]))
    return {str(host): str(text) for host, text in (answer.get("page_cache") or {}).items() if text}


# --- cold caches


def empty_caches(context: Context) -> str:
    """Empty the caches of all data-bearing mongods; returns a note of what was done. Raises PhaseError."""
    processes = with_data(context.job.point.processes)
    if not context.job.step.restarts:
        return empty_local_caches(processes)
    by_host = request_restart(context, processes, drop_page_cache=True)
    deadline = time.monotonic() + START_SECONDS
    for info in processes:
        while not is_ready(info):
            _pause(info, deadline)
    return f"mongods restarted, {_page_caches(by_host, {info.host for info in processes})}"


def _page_caches(by_host: Mapping[str, str], hosts: set[str]) -> str:
    """Whether the page cache was dropped on all hosts, and where not and why."""
    outcomes = {host: by_host.get(host, "not dropped (no answer)") for host in sorted(hosts)}
    if len(set(outcomes.values())) == 1:
        return f"page cache {next(iter(outcomes.values()))}"
    return ", ".join(f"page cache {outcome} on {host}" for host, outcome in outcomes.items())


def empty_local_caches(processes: Sequence[ProcessInfo]) -> str:
    """Stop the mongods, drop the page cache, start them; returns a note of what was done.

    Without pid files (services that somebody else manages) only the page cache is dropped. Raises PhaseError when
    neither can be done: a query on warm caches must not be called cold.
    """
    if not processes or not all(Path(process.pid_path).is_file() for process in processes):
        if kernel_settings.drop_page_cache() == "dropped":
            return "page cache dropped; mongods not restarted (no pid files here), their caches stay"
        raise PhaseError("CannotBeCold", "the page cache cannot be dropped (not root) and no mongod can be restarted")
    running = [find(process) for process in processes]
    stop(running)
    outcome = kernel_settings.drop_page_cache()
    start(running)
    return f"mongods restarted, page cache {outcome}"


def wait_until_answering(client: Client, namespace: str) -> None:
    """Wait until the point answers for every shard again, without touching the data. Raises PhaseError."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            list(collection_of(client, namespace).aggregate([{"$collStats": {"count": {}}}]))
        except PyMongoError as error:
            if time.monotonic() > deadline:
                raise PhaseError("NotAnswering", f"after the restart of the mongods: {error}") from error
            time.sleep(POLL_SECONDS)
        else:
            return
