"""The router mongod: a mongod that holds no data and lends its routing code to the embedded mongos.

It is a one-member replica set started with --shardsvr. It becomes a router when a shardIdentity document tells it where
the config servers are; it is never added as a shard. Its folder is private to one mongos and removed with it.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from microshard.embedded.errors import CommandError
from microshard.embedded.mongod_connections import Credentials, MongodPool
from microshard.embedded.options import Options
from microshard.embedded.server_log import ServerLog

POLL = 0.01  # s between two checks of something that takes tenths of a second
EXIT_ADDRESS_IN_USE = 48  # mongod's exit code
START_ATTEMPTS = 5
_PR_SET_PDEATHSIG = 1

# The router mongod has no data worth statistics, sessions or expiry.
_PARAMETERS: Mapping[str, str] = {
    "diagnosticDataCollectionEnabled": "false",
    "disableLogicalSessionCacheRefresh": "true",
    "ttlMonitorEnabled": "false",
    "writePeriodicNoops": "false",
}


class RouterStartError(Exception):
    """The router mongod did not start; the message has the last errors of its log."""


def die_with_parent() -> None:
    """Between fork and exec: have the kernel kill this process when the one that started it ends (Linux)."""
    # The signal comes when the *thread* that forked ends: mongos forks from its main thread, which lives longest.
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent or parent == 1:
            os._exit(1)


def free_ports(count: int) -> list[int]:
    """So many different ports of 127.0.0.1 on which nothing listens at the moment, from 10,000 to 20,000.

    Above are the ports that deployments use and, from 32768, those that the kernel gives to clients (ip(7)): there, a
    connection of anyone could take the port before the server does.
    """
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", random.randrange(10_000, 20_000)))  # noqa: S311 - no secret
                ports.append(int(probe.getsockname()[1]))
        return ports


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def remove_leftovers(base: Path, log: ServerLog) -> None:
    """Remove the folders of killed mongos processes in `base`; each locks its owner file while it runs."""
    for folder in base.glob("mongos-*-router"):
        try:
            with (folder / "owner.json").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                owner = json.load(file)
                pid, mongod = int(owner["pid"]), int(owner["mongod"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if mongod and str(folder) in _command_line(mongod):
            with contextlib.suppress(OSError):
                os.kill(mongod, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        log.info("Removed the folder of a killed mongos", path=str(folder), pid=pid)


def _log_message(line: str) -> str:
    """The message and error of a line of a server's log, without its time and numbers."""
    try:
        entry = json.loads(line)
        error = entry.get("attr", {}).get("error", "")
        return f"{entry['msg']} {error.get('errmsg', error) if isinstance(error, dict) else error}".strip()
    except (ValueError, KeyError, TypeError, AttributeError):
        return line


class RouterMongod:
    """One router mongod, from its start to the removal of its folder; restarted when it dies."""

    def __init__(self, mongod: Path, base: Path, options: Options, credentials: Credentials, log: ServerLog) -> None:
        self._mongod = mongod
        self._base = base
        self._created_base = not base.exists()
        self._options = options
        self._credentials = credentials
        self._log = log
        self._owner = -1  # descriptor of the locked owner file
        self._process: subprocess.Popen[bytes] | None = None
        self._set_name = f"mongos-{options.port}-router"
        self.folder = base / self._set_name
        self.port = 0  # on loopback
        self.pool: MongodPool | None = None  # set while it serves
        self.restarts = 0
        self._compatibility = ""  # the cluster's feature compatibility version

    @property
    def pid(self) -> int:
        """Process id of the mongod; 0 when it is not running."""
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it runs."""
        return self._process.poll() if self._process else None

    def spawn(self) -> None:
        """Start the process on a free loopback port; returns before it listens. OSError when it cannot be executed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, mode=0o700)
        (self.folder / "data").mkdir()
        (self.port,) = free_ports(1)
        if self._owner >= 0:
            os.close(self._owner)
        self._owner = os.open(self.folder / "owner.json", os.O_CREAT | os.O_WRONLY, 0o600)
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        self._record_owner(mongod=0)
        with (self.folder / "output").open("wb") as output:  # what it prints before it opens its log
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # mongos handles a Ctrl-C at the terminal
                preexec_fn=die_with_parent,  # noqa: PLW1509 - mongos has one thread
            )
        self._record_owner(mongod=self._process.pid)

    def _record_owner(self, mongod: int) -> None:
        os.pwrite(self._owner, json.dumps({"pid": os.getpid(), "mongod": mongod}).encode(), 0)

    def _command(self) -> Sequence[str | Path]:
        options = self._options
        command: list[str | Path] = [
            self._mongod, "--shardsvr", "--replSet", self._set_name, "--port", str(self.port),
            "--bind_ip", "127.0.0.1", "--nounixsocket", "--dbpath", self.folder / "data",
            "--logpath", self.folder / "mongod.log", "--pidfilepath", self.folder / "mongod.pid",
            # The least these options take; the cache fills with next to nothing.
            "--oplogSize", "1", "--wiredTigerCacheSizeGB", "0.25", "--journalCommitInterval", "500",
        ]  # fmt: skip
        command.append(f"-{'v' * options.verbosity}" if options.verbosity else "--quiet")
        command += options.router_arguments
        if options.compressors is not None:
            command += ["--networkMessageCompressors", options.compressors]
        for name, value in {**_PARAMETERS, **options.set_parameters}.items():
            command += ["--setParameter", f"{name}={value}"]
        return command

    async def become_primary(self) -> MongodPool:
        """Wait until the process listens, make it a replica set of one and wait for its election (0.1 s idle).

        RouterStartError when it ends instead.
        """
        for attempt in range(START_ATTEMPTS):
            pool = MongodPool(("127.0.0.1", self.port), self._credentials)
            if await self._wait_for_listener(pool):
                break
            if self.exit_code != EXIT_ADDRESS_IN_USE or attempt == START_ATTEMPTS - 1:
                raise RouterStartError(self._exit_reason())
            self.spawn()
        member = {"_id": 0, "host": f"127.0.0.1:{self.port}"}
        await pool.call("admin", {"replSetInitiate": {"_id": self._set_name, "members": [member]}})
        while not (await pool.call("admin", {"hello": 1}))["isWritablePrimary"]:
            await asyncio.sleep(POLL)
        return pool

    async def _wait_for_listener(self, pool: MongodPool) -> bool:
        while self.exit_code is None:
            with contextlib.suppress(CommandError, LookupError):
                options = await pool.call("admin", {"getCmdLineOpts": 1})
                # Another mongod may have taken the port in the meantime; this one is then about to end.
                if Path(options["parsed"]["storage"]["dbPath"]) == self.folder / "data":
                    return True
            await asyncio.sleep(POLL)
        return False

    def _exit_reason(self) -> str:
        """Why it ended: fatal lines and errors of its log and output, else the last few lines."""
        lines: list[str] = []
        for name in ("mongod.log", "output"):
            with contextlib.suppress(OSError):
                lines += (self.folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line for line in lines if '"s":"F"' in line or '"s":"E"' in line]
        reason = "; ".join(_log_message(line) for line in (errors or lines)[-4:])
        return f"the router mongod ended with exit code {self.exit_code}: {reason or 'no output'}"

    async def start_routing(self, pool: MongodPool, cluster_id: Any, config_servers: str) -> None:
        """Give it the address of the config servers, from which it routes, and publish the pool."""
        identity = {"shardName": self._set_name, "clusterId": cluster_id, "configsvrConnectionString": config_servers}
        if self._compatibility:
            await pool.call("admin", {"setFeatureCompatibilityVersion": self._compatibility})
        update = {"q": {"_id": "shardIdentity"}, "u": {"$set": identity}, "upsert": True}
        await pool.call("admin", {"update": "system.version", "updates": [update], "writeConcern": {"w": "majority"}})
        self.pool = pool

    async def set_compatibility(self, version: str) -> None:
        """Follow the cluster's feature compatibility version; a mongod starts with that of the release before.

        With 5.0 its routing code refuses $lookup from sharded collections. CommandError.
        """
        if version != self._compatibility:
            self._compatibility = version
            if self.pool is not None:
                await self.pool.call("admin", {"setFeatureCompatibilityVersion": version})

    def withdraw_if_ended(self) -> None:
        """Stop offering the pool of a process that has ended, before `keep_running` notices."""
        if self.exit_code is not None:
            self.pool = None

    async def keep_running(self, cluster_id: Any, config_servers: str) -> None:
        """Replace the process by a new one whenever it ends. Runs until cancelled."""
        while True:
            await self._ended()
            if self.pool:
                self.pool.close()
                self.pool = None
            reason = self._exit_reason() if self.exit_code is not None else "lost its connection"
            self._log.error("The router mongod ended; starting another", reason=reason)
            self.kill()
            self.restarts += 1
            try:
                self.spawn()
                await self.start_routing(await self.become_primary(), cluster_id, config_servers)
            except (RouterStartError, CommandError, OSError) as error:
                self._log.error("The router mongod does not start", error=str(error))
                await asyncio.sleep(1)
                continue
            self._log.info("The router mongod serves again", pid=self.pid, restarts=self.restarts)

    async def _ended(self) -> None:
        """Return when the process has ended: its side of an idle connection closes at that moment."""
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            await reader.read(1)
            writer.close()
        for _ in range(100):
            if self.exit_code is not None:
                return
            await asyncio.sleep(POLL)

    def kill(self) -> None:
        """End the process at once: none of its data needs an orderly shutdown."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        """End the process and remove its folder, and the folder around it if this object created that."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._created_base:
            with contextlib.suppress(OSError):
                self._base.rmdir()
