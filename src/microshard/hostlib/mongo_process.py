"""One mongod or mongos: configured, started, held, continued and ended."""

from __future__ import annotations

import os
import shlex
import signal
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import daemon, layout, logs, numa, observed, ports, proc, systemd, wire
from .access import OPEN, Access
from .refused import Refused
from .run_folder import require_own, write_atomically

_POLL = 0.02  # s between two looks at a starting server; a mongod needs about 200 ms of CPU to listen

# What mongod means by its exit codes: src/mongo/util/exit_code.h, names as in the manual's "Exit Codes and Statuses".
_EXIT_CODES = {
    1: "bad configuration file",
    2: "bad option",
    14: "unrecoverable error",
    48: "address in use",
    62: "data files of another version",
    100: "uncaught exception: often the dbPath or the disk",
}

# What a mongos can answer only when the config servers answer it.
_ROUTED = {"aggregate": "shards", "pipeline": [], "cursor": {}, "$db": "config"}


class ProcessProblem(Refused):
    """What is wrong with a process, in words for people."""


class Handle(Protocol):
    """What was started: a child process or a unit."""

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""


@dataclass(frozen=True)
class LaunchOptions:
    """How the processes of a host are run, apart from what the plan says of each."""

    manager: str = "direct"  # direct, or systemd
    user: str = ""  # systemd: the user they run as
    group_id: int = -1
    user_id: int = -1
    access: Access = OPEN
    limits: dict[str, Any] = field(default_factory=dict)  # systemd: those of the unit, verified after a start


@dataclass
class Outcome:
    """What was done to one process."""

    name: str
    did: str  # "" when nothing had to be done
    pid: int | None = None
    diff: dict[str, str] | None = None
    record: dict[str, Any] | None = None  # what it is, as kernel and server say it


@dataclass(frozen=True)
class MongoProcess:
    """A process of the plan, as far as its host needs to know it."""

    name: str
    role: str
    address: str
    port: int
    folder: str
    db_path: str | None
    log_path: str
    config_path: str
    pid_path: str
    replica_set: str | None
    binary: str
    config: str  # the text of the configuration file; "" where the state needs none
    options: dict[str, Any]  # the same as a tree
    journal_path: str | None  # where its journal lies when not in its dbPath
    volumes: dict[str, str] = field(default_factory=dict)  # data, journal, log → its folder on a volume of that
    cgroup: str = ""  # folder of the cgroup it is started in; "" leaves it in that of its parent
    binding: numa.Binding = numa.UNBOUND
    manner: LaunchOptions = LaunchOptions()

    @classmethod
    def of(cls, plan: dict[str, Any], *, run_folder: str, mongod: str, mongos: str) -> MongoProcess:
        """From the plan's form. NotOurs when one of its paths is outside the run's folder."""
        for key in ("folder", "db_path", "log_path", "config_path", "pid_path", "journal_path"):
            if plan.get(key):
                require_own(run_folder, plan[key])
        for target in (plan.get("volumes") or {}).values():
            require_own(run_folder, target)
        known: dict[str, Any] = {key: plan.get(key) for key in cls.__dataclass_fields__}
        known["options"] = plan.get("config_tree") or {}
        known.update(binding=numa.UNBOUND, manner=LaunchOptions())
        known["binary"] = mongos if plan["role"] == "mongos" else mongod
        known["config"] = plan.get("config") or ""
        known["cgroup"] = plan.get("cgroup") or ""
        known["volumes"] = plan.get("volumes") or {}
        return cls(**known)

    @property
    def output(self) -> str:
        """Where stdout and stderr go: what a server says before it has opened its log."""
        return os.path.join(self.folder, "stdout.log")

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"{self.name} ({os.path.basename(self.config_path).partition('.')[0]}, {self.address}:{self.port})"

    def running(self) -> proc.Seen | None:
        """The live process, verified by its command line."""
        return proc.recorded(self.pid_path, self.config_path)

    def start(self, deadline: float, *, stop_timeout: float, check: bool) -> Outcome:
        """Running with exactly this configuration, and answering unless it is a mongos."""
        running = self.running()
        diff = self._diff()
        if running and diff is None:
            return self._keep(running, deadline, check=check)
        did = "restarted" if running else "started"
        if check:
            return Outcome(self.name, did, diff=diff)
        if running:
            daemon.end(running, grace=stop_timeout)
        layout.lay_out(self)
        # Only now that no process runs with the old text: an interrupted change is found and finished next time.
        write_atomically(self.config_path, self.config)
        write_atomically(self.start_path, self.start_text)
        handle = self._launch()
        if self.role != "mongos":
            self._await_hello(deadline, handle)
        pid = self._await_pid(deadline, handle)
        return Outcome(self.name, did, pid, diff)

    @property
    def start_path(self) -> str:
        """The command line as a script: what the unit executes, and what a person can."""
        return os.path.join(self.folder, "start")

    @property
    def command(self) -> list[str]:
        """The command line, numactl in front."""
        return [*self.binding.prefix, self.binary, "--config", self.config_path]

    @property
    def start_text(self) -> str:
        """The script: the shell becomes the process."""
        return f"#!/bin/sh\nexec {' '.join(map(shlex.quote, self.command))}\n"

    def _diff(self) -> dict[str, str] | None:
        """In what its files differ from those it should run with."""
        pairs = ((self.config_path, self.config), (self.start_path, self.start_text))
        differing = [(path, _read(path) or "", text) for path, text in pairs if _read(path) != text]
        if not differing:
            return None
        path, before, after = differing[0]
        return {"before_header": path, "after_header": path, "before": before, "after": after}

    def _keep(self, running: proc.Seen, deadline: float, *, check: bool) -> Outcome:
        outcome = self.wake(proc.everyone(), check=check) if running.stopped else Outcome(self.name, "", running.pid)
        if outcome.did and not check:
            self.await_ready(deadline)
        return outcome

    def _launch(self) -> Handle:
        if not ports.is_free(self.address, self.port):
            raise ProcessProblem(
                f"{self.label} cannot start: its port is held by {ports.holder(self.address, self.port)}. "
                "That process was not touched; end it or choose another network.base_port"
            )
        if self.manner.manager == "systemd":
            return systemd.start(self.folder)
        try:
            return daemon.spawn(
                self.command,
                folder=self.folder,
                output=self.output,
                pid_path=self.pid_path,
                cgroup=self.cgroup,
            )
        except OSError as error:
            raise ProcessProblem(f"{self.label} cannot start: {self.binary}: {error.strerror}") from None

    def _await_pid(self, deadline: float, handle: Handle) -> int | None:
        """Its pid, and the pid file by which it is known from now on; None where it has ended already."""
        if isinstance(handle, systemd.Unit):
            pid = handle.main_pid(deadline)
            # A server writes it too, but not at once.
            if pid and not self.running():
                write_atomically(self.pid_path, f"{pid}\n")
                os.chown(self.pid_path, self.manner.user_id, self.manner.group_id)
        running = self.running()
        return running.pid if running else None

    def _await_hello(self, deadline: float, child: Handle) -> None:
        while not wire.answers(self.address, self.port, self.manner.access):
            code = child.poll()
            if code is not None:
                raise ProcessProblem(self.obituary(code))
            if time.monotonic() > deadline:
                raise ProcessProblem(f"{self.label} did not answer in time.{self.quoted_log()}")
            time.sleep(_POLL)

    def observe(self) -> dict[str, Any]:
        """What it is now, for the record. ProcessProblem where that is not what was planned."""
        running = self._must_run()
        record: dict[str, Any] = {
            "name": self.name,
            "pid": running.pid,
            "command": list(running.command),
            "started_by": self.command,
            "unit": systemd.unit_name(self.folder) if self.manner.manager == "systemd" else None,
            "numa_policy": self.binding.policy,
            "limits": observed.limits(running.pid),
            **numa.seen(running.pid),
        }
        found = numa.difference(self.binding, record)
        found = found or observed.limits_difference(self.manner.limits, record["limits"], observed.limits(1))
        if self.role != "mongos":  # a mongos answers only when the config servers are a set
            record["options"] = self._parsed_options()
            found = found or observed.options_difference(self.options, record["options"])
        if found:
            raise ProcessProblem(f"{self.label} {found} (pid {running.pid})")
        return record

    def _parsed_options(self) -> dict[str, Any]:
        try:
            question = {"getCmdLineOpts": 1, "$db": "admin"}
            answer = wire.command(self.address, self.port, question, timeout=10.0, access=self.manner.access)
        except (OSError, ValueError) as error:
            raise ProcessProblem(f"{self.label} does not say with which options it runs: {error}") from None
        if answer.get("ok") != 1:
            raise ProcessProblem(f"{self.label}: getCmdLineOpts: {answer.get('errmsg')}")
        return dict(answer["parsed"])

    def obituary(self, code: int) -> str:
        """Why a process that ended before it answered did so, as far as can be known from here."""
        meaning = f"signal {signal.Signals(-code).name}" if code < 0 else _EXIT_CODES.get(code, "see its log")
        text = f"{self.label} ended with exit code {code} ({meaning}) before it answered."
        if code == 48:
            text += f" Its port is held by {ports.holder(self.address, self.port)}."
        return text + self.quoted_log()

    def quoted_log(self) -> str:
        """The end of its log, as the end of a message."""
        words = logs.last_words(self.log_path, self.output)
        if not words:
            return f" It left no log at {self.log_path}."
        return "\n  Last lines of its log:\n    " + "\n    ".join(words)

    def park(self, population: list[proc.Seen], *, check: bool) -> Outcome:
        """Held by SIGSTOP with all its children; memory and connections stay."""
        running = self._must_run()
        awake = [member for member in proc.family(running, population) if not member.stopped]
        for member in [] if check else awake:
            proc.send(member, signal.SIGSTOP)
        return Outcome(self.name, "parked" if awake else "", running.pid)

    def wake(self, population: list[proc.Seen], *, check: bool) -> Outcome:
        """Continued by SIGCONT; whether it is ready is not looked at."""
        running = self._must_run()
        asleep = [member for member in proc.family(running, population) if member.stopped]
        for member in [] if check else asleep:
            proc.send(member, signal.SIGCONT)
        return Outcome(self.name, "resumed" if asleep else "", running.pid)

    def await_ready(self, deadline: float) -> None:
        """Wait until it can serve: a mongod of a set sees a primary, a mongos routes."""
        while True:
            missing = self._missing()
            if not missing:
                return
            self._must_run()
            if time.monotonic() > deadline:
                raise ProcessProblem(f"{self.label} is not ready: {missing}.{self.quoted_log()}")
            time.sleep(_POLL)

    def _missing(self) -> str:
        """What keeps it from serving; "" when nothing does."""
        try:
            if self.role == "mongos":
                return wire.refusal(self.address, self.port, _ROUTED, access=self.manner.access)
            answer = wire.hello(self.address, self.port, access=self.manner.access)
        except (OSError, ValueError) as error:
            return str(error) or type(error).__name__
        if answer.get("isreplicaset"):
            return ""  # no member of any set yet: a phase adds it later
        if self.replica_set and not answer.get("isWritablePrimary") and not answer.get("primary"):
            return f"replica set {self.replica_set} has no primary"
        return ""

    def _must_run(self) -> proc.Seen:
        running = self.running()
        if running is None:
            raise ProcessProblem(f"{self.label} does not run any more.{self.quoted_log()}")
        return running

    def stop(self, *, grace: float, check: bool, population: list[proc.Seen] | None = None) -> Outcome:
        """Not running. `population`: as `daemon.end` takes it."""
        running = self.running()
        if running is None:
            return Outcome(self.name, "")
        did = "stopped" if check else daemon.end(running, grace=grace, population=population)
        return Outcome(self.name, did, running.pid)

    def remove(self, *, mongos_grace: float, check: bool, population: list[proc.Seen]) -> Outcome:
        """Not running, and nothing of it on disk. Its data is thrown away, so a mongod is not asked to flush it."""
        grace = mongos_grace if self.role == "mongos" else 0.0
        outcome = self.stop(grace=grace, check=check, population=population)
        if not layout.places(self):
            return outcome
        if not check:
            layout.remove(self)
        return Outcome(self.name, f"{outcome.did} and removed" if outcome.did else "removed", outcome.pid)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None
