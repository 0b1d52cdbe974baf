"""One mongod or mongos: configured, started, paused, resumed and ended."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import logs, numa, ports, proc, process_checks, process_limits, systemd, wire
from .errors import HostError
from .files import read_text, require_own, write_atomically
from .wire import OPEN, Access

_POLL = 0.02  # s between two questions to a starting server; a mongod needs about 200 ms of CPU to listen

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
class ProcessChange:
    """What was done to one process."""

    name: str
    did: str  # "" when nothing had to be done
    pid: int | None = None
    diff: dict[str, str] | None = None
    record: dict[str, Any] | None = None  # of MongoProcess.record


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
    start_text: str  # the script that starts it, with @COMMAND@ for its command line
    options: dict[str, Any]  # the same as a tree
    journal_path: str | None  # where its journal lies when not in its dbPath
    volumes: dict[str, str] = field(default_factory=dict)  # data, journal, log → its folder on a volume of that
    cgroup: str = ""  # folder of the cgroup it is started in; "" leaves it in that of its parent
    limits: dict[str, float] = field(default_factory=dict)  # of topology.limits, those that are set
    binding: numa.Binding = numa.UNBOUND
    launch: LaunchOptions = LaunchOptions()

    @classmethod
    def of(cls, plan: dict[str, Any], *, run_folder: str, mongod: str, mongos: str, start: str = "") -> MongoProcess:
        """Read it from the plan. HostError when one of its paths is outside the run's folder."""
        for key in ("folder", "db_path", "log_path", "config_path", "pid_path", "journal_path"):
            if plan.get(key):
                require_own(run_folder, plan[key])
        for target in (plan.get("volumes") or {}).values():
            require_own(run_folder, target)
        known: dict[str, Any] = {key: plan.get(key) for key in cls.__dataclass_fields__}
        known["options"] = plan.get("config_tree") or {}
        known.update(binding=numa.UNBOUND, launch=LaunchOptions())
        known["binary"] = mongos if plan["role"] == "mongos" else mongod
        known["config"] = plan.get("config") or ""
        known["start_text"] = start
        known["cgroup"] = plan.get("cgroup") or ""
        known["limits"] = {key: limit for key, limit in (plan.get("limits") or {}).items() if limit is not None}
        known["volumes"] = plan.get("volumes") or {}
        return cls(**known)

    @property
    def output(self) -> str:
        """Where stdout and stderr go: what a server says before it has opened its log."""
        return os.path.join(self.folder, "stdout.log")

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.name} ({os.path.basename(self.config_path).partition('.')[0]}, {self.address}:{self.port})"

    def running(self) -> proc.LiveProcess | None:
        """The live process, verified by its command line."""
        return proc.from_pid_file(self.pid_path, self.config_path)

    def start(self, deadline: float, *, stop_timeout: float, check: bool) -> ProcessChange:
        """Start it with this configuration, or restart it where it runs with another; wait for a mongod to answer."""
        running = self.running()
        diff = self._diff()
        if running and diff is None:
            return self._keep(running, deadline, check=check)
        did = "restarted" if running else "started"
        if check:
            return ProcessChange(self.name, did, diff=diff)
        if running:
            proc.terminate(running, grace=stop_timeout)
        _create_folders(self)
        # Only now that no process runs with the old text: an interrupted change is found and finished next time.
        write_atomically(self.config_path, self.config)
        write_atomically(self.start_path, self.start_script)
        handle = self._launch()
        if self.role != "mongos":
            self._await_hello(deadline, handle)
        pid = self._await_pid(deadline, handle)
        return ProcessChange(self.name, did, pid, diff)

    @property
    def start_path(self) -> str:
        """The command line as a script, for the unit and for a person."""
        return os.path.join(self.folder, "start")

    @property
    def command(self) -> list[str]:
        """The command line, numactl in front."""
        return [*self.binding.prefix, self.binary, "--config", self.config_path]

    @property
    def start_script(self) -> str:
        """The script with the command line: the shell becomes the process."""
        return self.start_text.replace("@COMMAND@", " ".join(map(shlex.quote, self.command)))

    def _diff(self) -> dict[str, str] | None:
        """The difference between its files and those it should run with; None when there is none."""
        pairs = ((self.config_path, self.config), (self.start_path, self.start_script))
        differing = [(path, read_text(path), text) for path, text in pairs if read_text(path) != text]
        if not differing:
            return None
        path, before, after = differing[0]
        return {"before_header": path, "after_header": path, "before": before, "after": after}

    def _keep(self, running: proc.LiveProcess, deadline: float, *, check: bool) -> ProcessChange:
        if not running.paused:
            return ProcessChange(self.name, "", running.pid)
        outcome = self.resume(proc.all_processes(), check=check)
        if outcome.did and not check:
            self.await_ready(deadline)
        return outcome

    def _launch(self) -> Handle:
        if not ports.is_free(self.address, self.port):
            raise HostError(
                f"{self.label} cannot start: its port is held by {ports.holder(self.address, self.port)}. "
                "That process was not touched; end it or choose another network.base_port"
            )
        cgroups, data = [self.cgroup] if self.cgroup else [], self.db_path or ""
        if self.launch.manager == "systemd":
            return systemd.start(self.folder, process_limits.unit_properties(self.limits, data))
        if self.limits:
            if any(map(process_limits.is_unified, cgroups)):
                raise HostError(f"{self.label}: limits and emulated volumes together need cgroup version 1")
            cgroups += process_limits.create(self.folder, self.limits, data)
        try:
            return proc.spawn(
                self.command, folder=self.folder, output=self.output, pid_path=self.pid_path, cgroups=cgroups
            )
        except OSError as error:
            raise HostError(f"{self.label} cannot start: {self.binary}: {error.strerror}") from None

    def _await_pid(self, deadline: float, handle: Handle) -> int | None:
        """Its pid, with a pid file written where the server has not done it yet; None where it has ended already."""
        if isinstance(handle, systemd.Unit):
            pid = handle.main_pid(deadline)
            if pid and not self.running():
                write_atomically(self.pid_path, f"{pid}\n")
                os.chown(self.pid_path, self.launch.user_id, self.launch.group_id)
        running = self.running()
        return running.pid if running else None

    def _await_hello(self, deadline: float, child: Handle) -> None:
        while True:
            try:
                self.hello()
            except (OSError, ValueError) as error:
                reason = str(error) or type(error).__name__
            else:
                return
            code = child.poll()
            if code is not None:
                raise HostError(self.exit_reason(code))
            if time.monotonic() > deadline:
                raise HostError(f"{self.label} did not answer in time: {reason}.{self.quoted_log()}")
            time.sleep(_POLL)

    def record(self) -> dict[str, Any]:
        """What kernel and server say of it. HostError where that is not what was planned."""
        running = self._must_run()
        record: dict[str, Any] = {
            "name": self.name,
            "pid": running.pid,
            "command": list(running.command),
            "started_by": self.command,
            "unit": systemd.unit_name(self.folder) if self.launch.manager == "systemd" else None,
            "numa_policy": self.binding.policy,
            "limits": process_checks.limits_of(running.pid),
            **numa.placement(running.pid),
        }
        wrong = numa.difference(self.binding, record)
        wrong = wrong or process_checks.limits_difference(
            self.launch.limits, record["limits"], process_checks.limits_of(1)
        )
        wrong = wrong or process_limits.difference(self.limits, running.pid, self.db_path or "")
        if self.role != "mongos":  # a mongos answers only when the config servers are a set
            record["options"] = self._parsed_options()
            wrong = wrong or process_checks.options_difference(self.options, record["options"])
        if wrong:
            raise HostError(f"{self.label} {wrong} (pid {running.pid})")
        return record

    def ask(self, command: str, timeout: float = 5.0) -> dict[str, Any]:
        """The server's answer to a command of `admin`; OSError or ValueError when there is none."""
        question = {command: 1, "$db": "admin"}
        return wire.command(self.address, self.port, question, timeout=timeout, access=self.launch.access)

    def hello(self) -> dict[str, Any]:
        """The server's answer to `hello`; OSError or ValueError when there is none."""
        return wire.hello(self.address, self.port, access=self.launch.access)

    def _parsed_options(self) -> dict[str, Any]:
        try:
            answer = self.ask("getCmdLineOpts", timeout=10.0)
        except (OSError, ValueError) as error:
            raise HostError(f"{self.label} does not say with which options it runs: {error}") from None
        if answer.get("ok") != 1:
            raise HostError(f"{self.label}: getCmdLineOpts: {answer.get('errmsg')}")
        return dict(answer["parsed"])

    def exit_reason(self, code: int) -> str:
        """Why a process ended before it answered, as far as exit code, port and log tell."""
        meaning = f"signal {signal.Signals(-code).name}" if code < 0 else _EXIT_CODES.get(code, "see its log")
        text = f"{self.label} ended with exit code {code} ({meaning}) before it answered."
        if code == 48:
            text += f" Its port is held by {ports.holder(self.address, self.port)}."
        if code == -signal.SIGKILL and "memory_mb" in self.limits:
            text += f" Its memory is limited to {self.limits['memory_mb']:g} MiB: limits.memory_mb is too small for it."
        return text + self.quoted_log()

    def quoted_log(self) -> str:
        """The end of its log, as the end of a message."""
        lines = logs.last_lines(self.log_path, self.output)
        if not lines:
            return f" It left no log at {self.log_path}."
        return "\n  Last lines of its log:\n    " + "\n    ".join(lines)

    def pause(self, processes: list[proc.LiveProcess], *, check: bool) -> ProcessChange:
        """Stop it and its children by SIGSTOP; memory and connections stay."""
        running = self._must_run()
        running_members = [member for member in proc.tree(running, processes) if not member.paused]
        for member in [] if check else running_members:
            proc.send_signal(member, signal.SIGSTOP)
        return ProcessChange(self.name, "paused" if running_members else "", running.pid)

    def resume(self, processes: list[proc.LiveProcess], *, check: bool) -> ProcessChange:
        """Continue it and its children by SIGCONT, without waiting until it serves."""
        running = self._must_run()
        paused_members = [member for member in proc.tree(running, processes) if member.paused]
        for member in [] if check else paused_members:
            proc.send_signal(member, signal.SIGCONT)
        return ProcessChange(self.name, "resumed" if paused_members else "", running.pid)

    def await_ready(self, deadline: float) -> None:
        """Wait until it can serve: a mongod of a set sees a primary, a mongos routes."""
        while True:
            missing = self._missing()
            if not missing:
                return
            self._must_run()
            if time.monotonic() > deadline:
                raise HostError(f"{self.label} is not ready: {missing}.{self.quoted_log()}")
            time.sleep(_POLL)

    def _missing(self) -> str:
        """What keeps it from serving; "" when nothing does."""
        try:
            if self.role == "mongos":
                return wire.error_of(self.address, self.port, _ROUTED, access=self.launch.access)
            answer = self.hello()
        except (OSError, ValueError) as error:
            return str(error) or type(error).__name__
        if answer.get("isreplicaset"):
            return ""  # no member of any set yet: a phase adds it later
        if self.replica_set and not answer.get("isWritablePrimary") and not answer.get("primary"):
            return f"replica set {self.replica_set} has no primary"
        return ""

    def _must_run(self) -> proc.LiveProcess:
        running = self.running()
        if running is None:
            raise HostError(f"{self.label} does not run any more.{self.quoted_log()}")
        return running

    def stop(self, *, grace: float, check: bool, processes: list[proc.LiveProcess] | None = None) -> ProcessChange:
        """End it. `processes`: as for `proc.tree`."""
        running = self.running()
        if running is None:
            return ProcessChange(self.name, "")
        did = "stopped" if check else proc.terminate(running, grace=grace, processes=processes)
        return ProcessChange(self.name, did, running.pid)

    def remove(self, *, mongos_grace: float, check: bool, processes: list[proc.LiveProcess]) -> ProcessChange:
        """End it and remove its files. A mongod is killed at once: what it would still write is removed anyway."""
        grace = mongos_grace if self.role == "mongos" else 0.0
        outcome = self.stop(grace=grace, check=check, processes=processes)
        if not _existing_paths(self):
            return outcome
        if not check:
            if self.limits and self.launch.manager != "systemd":
                process_limits.remove(self.folder, self.limits)
            _remove_files(self)
        return ProcessChange(self.name, f"{outcome.did} and removed" if outcome.did else "removed", outcome.pid)


def _create_folders(process: MongoProcess) -> None:
    """Create its folders, owned by the user it runs as, and links to volumes before anything is written. HostError."""
    os.makedirs(process.folder, exist_ok=True)
    os.makedirs(os.path.dirname(process.log_path), exist_ok=True)
    folders = [process.folder, os.path.dirname(process.log_path)]
    for target in process.volumes.values():
        _require_mounted(process, target)
        os.makedirs(target, mode=0o700, exist_ok=True)
        folders.append(target)
    for link, target in _links(process):
        if link == os.path.join(process.db_path or "", "journal"):
            os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
            os.makedirs(target, mode=0o700, exist_ok=True)
            folders.append(target)
        _link(process, link, target)
    if process.db_path:
        os.makedirs(process.db_path, mode=0o700, exist_ok=True)
        folders.append(process.db_path)
    if process.launch.user_id >= 0:
        for folder in dict.fromkeys(folders):
            os.chown(folder, process.launch.user_id, process.launch.group_id)


def _links(process: MongoProcess) -> Iterator[tuple[str, str]]:
    """Pairs of link and target, the dbPath first, for the journal is inside it."""
    volumes = process.volumes
    if process.db_path and "data" in volumes:
        yield process.db_path, volumes["data"]
    if process.db_path and (process.journal_path or "journal" in volumes):
        yield os.path.join(process.db_path, "journal"), process.journal_path or volumes["journal"]
    if "log" in volumes:
        yield process.log_path, os.path.join(volumes["log"], os.path.basename(process.log_path))


def _require_mounted(process: MongoProcess, target: str) -> None:
    """HostError unless MOUNT of MOUNT/RUN/POINT/NAME is mounted: files would fill the root volume instead."""
    mount = target
    for _ in range(3):
        mount = os.path.dirname(mount)
    if not os.path.ismount(mount):
        raise HostError(f"{process.label}: no volume is mounted at {mount}; playbooks/prepare.yml does it")


def _link(process: MongoProcess, link: str, target: str) -> None:
    if os.path.islink(link) and os.readlink(link) == target:
        return
    if os.path.lexists(link):
        what = os.path.basename(link)
        raise HostError(
            f"{process.label}: its {what} belongs at {target}, but {link} exists already: a {what} can be moved "
            "only before the first start. Tear the point down before it is deployed differently"
        )
    os.symlink(target, link)


def _existing_paths(process: MongoProcess) -> list[str]:
    """Its folders and files that exist."""
    folders = [process.folder, *process.volumes.values(), process.journal_path, process.db_path]
    return [p for p in folders if p and os.path.isdir(p)] + [p for p in (process.log_path,) if os.path.isfile(p)]


def _remove_files(process: MongoProcess) -> None:
    """Remove its files. Targets of links go first, so that an interrupted removal still finds them the next time."""
    for target in process.volumes.values():
        if os.path.isdir(target):
            shutil.rmtree(target)
        with contextlib.suppress(OSError):
            os.removedirs(
                os.path.dirname(target)
            )  # empty folders of the point and the run; a mount point is not removed
    for path in (process.journal_path, process.folder, process.db_path):
        if path and os.path.isdir(path):
            shutil.rmtree(path)
    if os.path.lexists(process.log_path):
        os.unlink(process.log_path)
