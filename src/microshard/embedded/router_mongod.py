"""The router mongod: a mongod that holds no data and lends its router code to the embedded mongos.

It is a one-member replica set started with --shardsvr. It becomes a router when a shardIdentity document tells it where
the config servers are; it is never added as a shard. Its folder is private to one mongos and goes when that ends.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.embedded.access import OPEN, Access
from microshard.embedded.errors import CommandError
from microshard.embedded.log import ServerLog
from microshard.embedded.nodes import Pool

POLL = 0.01  # s between two looks at something that takes tenths of a second
ADDRESS_IN_USE = 48  # mongod's exit code
START_ATTEMPTS = 5
_PR_SET_PDEATHSIG = 1

# The router mongod has no data worth statistics, sessions, expiry or a large cache.
_PARAMETERS: Mapping[str, str] = {
    "diagnosticDataCollectionEnabled": "false",
    "disableLogicalSessionCacheRefresh": "true",
    "ttlMonitorEnabled": "false",
    "writePeriodicNoops": "false",
}


class RouterStartError(Exception):
    """The router mongod did not start; the message has its last words."""


@dataclass(frozen=True)
class RouterOptions:
    """How to start a router mongod: the binary, the folder its private folder is made in, what it is given along."""

    mongod: Path
    base: Path
    front_port: int
    set_parameters: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    compressors: str | None = None
    verbosity: int = 0
    access: Access = OPEN


def die_with_parent() -> None:
    """Between fork and exec: have the kernel kill this process when the one that started it ends (Linux)."""
    # The signal comes when the *thread* that forked ends: the front forks from its main thread, which lives longest.
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent or parent == 1:
            os._exit(1)


def _start_ticks(pid: int) -> int | None:
    """Clock ticks after boot at which a process started, to tell it from a later one with its number."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _alive(pid: int, ticks: int | None) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return ticks is None or _start_ticks(pid) == ticks


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def clean_up(base: Path, log: ServerLog) -> None:
    """Remove what routers that were killed left in `base`; folders without a dead owner's mark are not touched."""
    for folder in base.glob("mongos-*-router"):
        try:
            owner = json.loads((folder / "owner.json").read_text(encoding="utf-8"))
            pid, ticks, child = int(owner["pid"]), owner["ticks"], int(owner["mongod"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if _alive(pid, ticks):
            continue
        if child and str(folder) in _command_line(child):
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        log.note("CONTROL", "Removed what a killed mongos left", path=str(folder), pid=pid)


def _said(line: str) -> str:
    """What a line of a server's log says, without its time and numbers."""
    try:
        entry = json.loads(line)
        error = entry.get("attr", {}).get("error", "")
        return f"{entry['msg']} {error.get('errmsg', error) if isinstance(error, dict) else error}".strip()
    except (ValueError, KeyError, TypeError, AttributeError):
        return line


class RouterMongod:
    """One router mongod, from its start to the removal of its folder; restarted when it dies."""

    def __init__(self, options: RouterOptions, log: ServerLog) -> None:
        self._options = options
        self._log = log
        self._made_base = not options.base.exists()
        self.folder = options.base / f"mongos-{options.front_port}-router"
        self._process: subprocess.Popen[bytes] | None = None
        self.pool: Pool | None = None  # set while it serves
        self.restarts = 0
        self._port = 0
        self._stopping = False

    @property
    def port(self) -> int:
        """The port it listens on, loopback."""
        return self._port

    @property
    def pid(self) -> int:
        """Process id of the mongod; 0 when there is none."""
        return self._process.pid if self._process else 0

    def spawn(self) -> None:
        """Start the process on a free loopback port; returns before it listens. OSError when it cannot be executed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, mode=0o700)
        (self.folder / "data").mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._mark(0)
        with (self.folder / "output").open("wb") as output:  # what it says before it opens its log
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C at the terminal is the front's to handle
                preexec_fn=die_with_parent,  # noqa: PLW1509 - the front has one thread
            )
        self._mark(self._process.pid)

    def _mark(self, mongod: int) -> None:
        owner = {"pid": os.getpid(), "ticks": _start_ticks(os.getpid()), "mongod": mongod}
        (self.folder / "owner.json").write_text(json.dumps(owner), encoding="utf-8")

    @property
    def _set_name(self) -> str:
        return f"mongos-{self._options.front_port}-router"

    def _command(self) -> Sequence[str | Path]:
        command: list[str | Path] = [
            self._options.mongod, "--shardsvr", "--replSet", self._set_name, "--port", str(self._port),
            "--bind_ip", "127.0.0.1", "--nounixsocket", "--dbpath", self.folder / "data",
            "--logpath", self.folder / "mongod.log", "--pidfilepath", self.folder / "mongod.pid",
            # The least the options take; the cache fills with next to nothing.
            "--oplogSize", "1", "--wiredTigerCacheSizeGB", "0.25", "--journalCommitInterval", "500",
        ]  # fmt: skip
        command.append(f"-{'v' * self._options.verbosity}" if self._options.verbosity else "--quiet")
        command += self._options.arguments
        if self._options.compressors is not None:
            command += ["--networkMessageCompressors", self._options.compressors]
        for name, value in {**_PARAMETERS, **self._options.set_parameters}.items():
            command += ["--setParameter", f"{name}={value}"]
        return command

    async def become_primary(self) -> Pool:
        """Wait until the process listens, make it a replica set of one and wait for its election (0.1 s idle).

        RouterStartError when it ends instead.
        """
        for attempt in range(START_ATTEMPTS):
            pool = Pool(("127.0.0.1", self._port), self._options.access)
            if await self._wait_for_listener(pool):
                break
            if self.exit_code != ADDRESS_IN_USE or attempt == START_ATTEMPTS - 1:
                raise RouterStartError(self._last_words())
            self.spawn()
        member = {"_id": 0, "host": f"127.0.0.1:{self._port}"}
        await pool.call("admin", {"replSetInitiate": {"_id": self._set_name, "members": [member]}})
        while not (await pool.call("admin", {"hello": 1}))["isWritablePrimary"]:
            await asyncio.sleep(POLL)
        return pool

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it runs."""
        return self._process.poll() if self._process else None

    async def _wait_for_listener(self, pool: Pool) -> bool:
        while self.exit_code is None:
            try:
                pool.release(await pool.acquire())
                return True
            except OSError:
                await asyncio.sleep(POLL)
        return False

    def _last_words(self) -> str:
        """Why it ended: fatal lines and errors of its log and output, else the last few lines."""
        lines: list[str] = []
        for name in ("mongod.log", "output"):
            with contextlib.suppress(OSError):
                lines += (self.folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
        grave = [line for line in lines if '"s":"F"' in line or '"s":"E"' in line]
        said = "; ".join(_said(line) for line in (grave or lines)[-4:])
        return f"the router mongod ended with exit code {self.exit_code}: {said or 'no output'}"

    async def identify(self, pool: Pool, cluster_id: Any, config_servers: str) -> None:
        """Tell it where the config servers are: from then on it routes. Publishes the pool."""
        identity = {"shardName": self._set_name, "clusterId": cluster_id, "configsvrConnectionString": config_servers}
        update = {"q": {"_id": "shardIdentity"}, "u": {"$set": identity}, "upsert": True}
        await pool.call("admin", {"update": "system.version", "updates": [update], "writeConcern": {"w": "majority"}})
        self.pool = pool

    def withdraw_if_ended(self) -> None:
        """Stop offering a pool whose process has ended, before the watch on it notices."""
        if self.exit_code is not None:
            self.pool = None

    async def run(self, cluster_id: Any, config_servers: str) -> None:
        """Watch the process, and put a new one in its place whenever it ends. Runs until cancelled."""
        while True:
            await self._ended()
            if self.pool:
                self.pool.close()
                self.pool = None
            words = self._last_words() if self.exit_code is not None else "lost its connection"
            self._log.fail("CONTROL", "The router mongod ended; starting another", reason=words)
            self.kill()
            self.restarts += 1
            try:
                self.spawn()
                await self.identify(await self.become_primary(), cluster_id, config_servers)
            except (RouterStartError, CommandError, OSError) as error:
                self._log.fail("CONTROL", "The router mongod does not start", error=str(error))
                await asyncio.sleep(1)
                continue
            self._log.note("CONTROL", "The router mongod serves again", pid=self.pid, restarts=self.restarts)

    async def _ended(self) -> None:
        """Return when the process has ended: its side of an idle connection closes at that moment."""
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            await reader.read(1)
            writer.close()
        for _ in range(100):
            if self.exit_code is not None:
                return
            await asyncio.sleep(POLL)

    def kill(self) -> None:
        """End the process at once: nothing in its data is worth an orderly shutdown."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        """End the process and remove its folder, and the folder around it if this router made that."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._made_base:
            with contextlib.suppress(OSError):
                self._options.base.rmdir()
