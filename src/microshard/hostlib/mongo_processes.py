"""Module mongo_processes: bring all processes of a point on one host to a state together."""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any, Callable, TypeVar

from . import kernel_settings, logs, numa, proc, systemd
from .errors import HostError
from .files import make_run_folder, require_run_folder
from .mongo_process import LaunchOptions, MongoProcess, ProcessChange
from .wire import OPEN, access_of_run

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "processes": {"type": "list", "elements": "dict", "required": True},
    "state": {"choices": ["started", "paused", "resumed", "restarted", "stopped", "absent"], "default": "started"},
    "names": {"type": "list", "elements": "str", "default": []},
    "drop_page_cache": {"type": "bool", "default": False},
    "mongod": {"type": "path", "required": True},
    "mongos": {"type": "path", "default": ""},
    "concurrency": {"type": "int", "default": 0},
    "start_timeout": {"type": "float", "default": 60},
    "stop_timeout": {"type": "float", "default": 30},
    "mongos_grace": {"type": "float", "default": 2},
    "process_manager": {"choices": ["direct", "systemd"], "default": "direct"},
    "user": {"type": "str", "default": ""},
    "limits": {"type": "dict", "default": {}},
    "files": {"type": "dict", "default": {}},
    "numa": {"type": "dict", "default": {}},
    "security": {"type": "dict", "default": {}},
    # Of the action plugin, which renders the configuration files and writes the records.
    "config_db": {"type": "str"},
    "deployment": {"type": "str", "default": "by-hand"},
    "embedded": {"type": "bool", "default": False},
    "host": {"type": "str"},
    "records": {"type": "path"},
    "templates": {"type": "path"},
    "version": {"type": "str"},
}

# A mongod waits for its disk now and then, so two per core keep the cores busy. More do not help: 17 mongods on 2 cores
# listen after 1.7 to 2.1 s with 2, 4, 6 and 18 at a time, but with files not in the page cache all at once took 2.6 s.
_PER_CORE = 2
_START_ORDER = {"config": 0, "mongos": 1}

_POLL = 0.02  # s
_STEADY = 0.2  # s; election timers that ran out during a pause fire within some 20 ms after SIGCONT
_STEP_UP_EVERY = 0.1  # s
_STEP_UP_FOR = 3.0  # s; a first member that cannot be elected (priority 0) is not waited for longer

_Result = TypeVar("_Result")


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Bring the processes to `state` and return what was done to each."""
    state, plans = parameters["state"], parameters["processes"]
    if state == "started" and plans and not check:
        make_run_folder(parameters["run_folder"])
    run_folder = require_run_folder(parameters["run_folder"])
    units = parameters["process_manager"] == "systemd"
    unit_diff, other_changes, page_cache = None, [], None
    if units and state == "started" and plans:
        unit_diff = systemd.install(parameters["files"]["unit"], check=check)
    group = process_group(parameters, run_folder, check=check)
    if state == "started":
        outcomes = group.start(timeout=parameters["start_timeout"], stop_timeout=parameters["stop_timeout"])
    elif state == "paused":
        outcomes = group.pause()
    elif state == "resumed":
        outcomes = group.resume(timeout=parameters["start_timeout"])
    elif state == "restarted":
        outcomes, page_cache = _restart(group, parameters)
    elif state == "stopped":
        outcomes = group.stop(timeout=parameters["stop_timeout"], mongos_grace=parameters["mongos_grace"])
    else:
        outcomes = group.remove(mongos_grace=parameters["mongos_grace"])
    if units:
        other_changes = _host_files(parameters, run_folder, check=check)
    changes = Counter(outcome.did for outcome in outcomes if outcome.did)
    changes.update([*(["unit written"] if unit_diff else []), *other_changes])
    diffs = [unit_diff, *(o.diff for o in outcomes)]
    return {
        "changed": bool(changes),
        "msg": ", ".join(f"{count} {did}" for did, count in changes.items()) or f"{len(outcomes)} already {state}",
        "processes": [{"name": o.name, "did": o.did, "pid": o.pid} for o in outcomes],
        "records": [o.record for o in outcomes if o.record],
        "page_cache": page_cache,
        "diff": [diff for diff in diffs if diff],
    }


def _host_files(parameters: dict[str, Any], run_folder: str, *, check: bool) -> list[str]:
    """Write or remove what the processes have on a host of systemd beside their folders; what was done."""
    state, plans, changes = parameters["state"], parameters["processes"], []
    rotation = parameters["files"].get("rotation", "")
    if state == "started" and plans and logs.install_rotation(rotation, run_folder, check=check):
        changes.append("logrotate's file written")
    if state in {"stopped", "absent"} and not check:
        systemd.forget([plan["folder"] for plan in plans])
    if state == "absent" and not os.path.isdir(os.path.join(run_folder, "deployments")):
        changes += ["logrotate's file removed"] if logs.remove_rotation(run_folder, check=check) else []
    if state == "absent" and systemd.remove_if_unused(check=check):
        changes.append("unit removed")
    return changes


def process_group(parameters: dict[str, Any], run_folder: str, *, check: bool) -> ProcessGroup:
    """The processes that `names` selects. Which cores each is bound to is decided by all of the host."""
    launch, bindings = _launch_options(parameters), _bindings(parameters)
    names = parameters["names"] or list(bindings)
    programs = {key: parameters[key] for key in ("mongod", "mongos")}
    programs["start"] = parameters["files"].get("start", "")
    processes = [
        replace(MongoProcess.of(plan, run_folder=run_folder, **programs), launch=launch, binding=bindings[plan["name"]])
        for plan in parameters["processes"]
        if plan["name"] in names
    ]
    return ProcessGroup(processes, check=check, concurrency=parameters["concurrency"])


def _launch_options(parameters: dict[str, Any]) -> LaunchOptions:
    ends = parameters["state"] in {"stopped", "absent"}
    access = OPEN if ends else access_of_run(parameters["run_folder"], parameters["security"])
    if parameters["process_manager"] == "direct":
        return LaunchOptions(access=access)
    if os.geteuid() != 0:
        raise HostError("process_manager: systemd needs root on the host (become)")
    user = parameters["user"]
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise HostError(f"there is no user {user} on this host; playbooks/prepare.yml creates it") from None
    return LaunchOptions("systemd", user, entry.pw_gid, entry.pw_uid, access, dict(parameters["limits"] or {}))


def _bindings(parameters: dict[str, Any]) -> dict[str, numa.Binding]:
    """The binding of each process of the host, where processes are started; other states need none."""
    plans = parameters["processes"]
    names = [plan["name"] for plan in plans]
    if parameters["state"] not in {"started", "restarted"} or not parameters["numa"]:
        return dict.fromkeys(names, numa.UNBOUND)
    data_bearing = {plan["name"] for plan in plans if plan["role"] not in {"config", "mongos"}}
    return numa.bindings(parameters["numa"], names, data_bearing, numa.host_cores())


def _restart(group: ProcessGroup, parameters: dict[str, Any]) -> tuple[list[ProcessChange], str | None]:
    """End the processes and start them again; and what became of the page cache, where it is to be dropped."""
    if not group.processes:
        return [], None
    page_cache = None
    limits = {"timeout": parameters["stop_timeout"], "mongos_grace": parameters["mongos_grace"]}
    stopped = {outcome.name: outcome.did for outcome in group.stop(**limits)}
    if not group.check:
        if parameters["process_manager"] == "systemd":
            systemd.forget([process.folder for process in group.processes])
        if parameters["drop_page_cache"]:
            page_cache = kernel_settings.drop_page_cache()
    outcomes = group.start(timeout=parameters["start_timeout"], stop_timeout=parameters["stop_timeout"])
    return [
        replace(o, did=f"{stopped[o.name]} and started" if stopped[o.name] else o.did) for o in outcomes
    ], page_cache


class ProcessGroup:
    """Processes of this host that are started, paused, resumed, stopped or removed at the same time."""

    def __init__(self, processes: Iterable[MongoProcess], *, check: bool = False, concurrency: int = 0) -> None:
        self.processes = list(processes)
        self.check = check
        self.concurrency = concurrency or self._usual_concurrency()

    def _usual_concurrency(self) -> int:
        """How many are started at a time.

        A shard that knows its cluster sleeps for 2 s in most starts, until its list of shards has been read
        (waitForShardRegistryReload in MongoDB's sharding_initialization.cpp). All at once sleep at the same time.
        """
        if any(p.role == "shard" and p.db_path and os.path.exists(f"{p.db_path}/WiredTiger") for p in self.processes):
            return len(self.processes)
        return _PER_CORE * (os.cpu_count() or 1)

    def start(self, *, timeout: float, stop_timeout: float) -> list[ProcessChange]:
        """Start every process with its configuration, config servers and mongos first; wait until every mongod answers.

        A mongos serves nobody before the config servers are initiated, so it is not waited for.
        """
        deadline = time.monotonic() + timeout
        ordered = sorted(self.processes, key=lambda p: _START_ORDER.get(p.role, 2))
        outcomes = _concurrently(
            self.concurrency, [partial(p.start, deadline, stop_timeout=stop_timeout, check=self.check) for p in ordered]
        )
        if not self.check:
            for process in self.processes:
                if process.running() is None:
                    raise HostError(f"{process.label} ended right after its start.{process.quoted_log()}")
            records = _concurrently(self.concurrency, [p.record for p in ordered])
            outcomes = [replace(outcome, record=record) for outcome, record in zip(outcomes, records)]
        return outcomes

    def pause(self) -> list[ProcessChange]:
        """Pause every process by SIGSTOP; routers first, so that none of them waits for a shard that is paused."""
        ordered = sorted(self.processes, key=lambda p: p.role != "mongos")
        processes = proc.all_processes()
        # One at a time keeps the order; if one has died the others are paused all the same.
        return _concurrently(1, [partial(p.pause, processes, check=self.check) for p in ordered], finish=True)

    def resume(self, *, timeout: float) -> list[ProcessChange]:
        """Continue every process; wait until every replica set has a primary and every mongos routes."""
        deadline = time.monotonic() + timeout
        processes = proc.all_processes()
        outcomes = [process.resume(processes, check=self.check) for process in self.processes]
        if not self.check:
            resumed = {outcome.name for outcome in outcomes if outcome.did}
            sets = [members for members in self._replica_sets() if resumed & {member.name for member in members}]
            _concurrently(len(sets) or 1, [partial(_await_primary, members, deadline) for members in sets])
            _concurrently(len(self.processes) or 1, [partial(p.await_ready, deadline) for p in self.processes])
        return outcomes

    def _replica_sets(self) -> list[list[MongoProcess]]:
        """The sets of several members; a single member stays primary, however long it was paused."""
        sets: dict[str, list[MongoProcess]] = {}
        for process in self.processes:
            if process.replica_set:
                sets.setdefault(process.replica_set, []).append(process)
        return [members for members in sets.values() if len(members) > 1]

    def stop(self, *, timeout: float, mongos_grace: float) -> list[ProcessChange]:
        """End every process: SIGTERM, and SIGKILL after `timeout` seconds.

        A mongos has nothing to write, and with the config servers ending it may not end for half a minute.
        """
        grace = {"mongos": min(timeout, mongos_grace)}
        return _concurrently(
            len(self.processes) or 1,
            [partial(p.stop, grace=grace.get(p.role, timeout), check=self.check) for p in self.processes],
        )

    def remove(self, *, mongos_grace: float) -> list[ProcessChange]:
        """End every process and remove its files, and the deployment's folder if it is empty then."""
        remove = partial(
            MongoProcess.remove, mongos_grace=mongos_grace, check=self.check, processes=proc.all_processes()
        )
        outcomes = _concurrently(len(self.processes) or 1, [partial(remove, p) for p in self.processes])
        if not self.check:
            for parent in {os.path.dirname(p.folder) for p in self.processes}:
                with contextlib.suppress(OSError):
                    os.rmdir(parent)
        return outcomes


def _concurrently(concurrency: int, actions: list[Callable[[], _Result]], *, finish: bool = False) -> list[_Result]:
    """The results of all actions, in their order.

    After a failure no further action is begun (unless `finish`), those that run are waited for, and all failures are
    raised as one HostError.
    """
    with ThreadPoolExecutor(concurrency) as pool:
        futures = [pool.submit(action) for action in actions]
        wait(futures, return_when=ALL_COMPLETED if finish else FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
    failed = [future for future in futures if not future.cancelled() and future.exception()]
    problems = [future.exception() for future in failed]
    for future, problem in zip(failed, problems):
        if not isinstance(problem, (HostError, OSError)):
            future.result()  # a mistake of this code: raised as it is, with its traceback
    if problems:
        raise HostError("\n".join(str(problem) for problem in problems))
    return [future.result() for future in futures]


def _await_primary(members: Sequence[MongoProcess], deadline: float) -> None:
    """Wait until one member stays primary; the first one, as after the deployment.

    A member that was paused for longer than the election timeout believes that the primary is lost, and some member
    calls an election at once. Which one wins is chance; but the cache of one that was not primary before is different.
    """
    if not any(_is_initiated(member) for member in members):
        return  # deployed and not initiated yet: there is nothing to elect
    first, began = members[0], time.monotonic()
    requested, since, primary = 0.0, began, ""
    while True:
        primaries = [member.name for member in members if _is_primary(member)]
        now = time.monotonic()
        if primaries != [primary]:
            primary, since = (primaries[0] if len(primaries) == 1 else ""), now
        settled = primary == first.name or (primary and now - began > _STEP_UP_FOR)
        if settled and now - since > _STEADY:
            return
        if not settled and now - began < _STEP_UP_FOR and now - requested > _STEP_UP_EVERY:
            with contextlib.suppress(OSError, ValueError):  # it is requested again
                first.ask("replSetStepUp")
            requested = now
        if now > deadline:
            raise HostError(f"replica set {first.replica_set} has no lasting primary after it was resumed")
        time.sleep(_POLL)


def _is_primary(member: MongoProcess) -> bool:
    try:
        return bool(member.hello().get("isWritablePrimary"))
    except (OSError, ValueError):
        return False


def _is_initiated(member: MongoProcess) -> bool:
    """Whether it may be a member of an initiated set: only an answer of the server itself says that it is not."""
    try:
        return not member.hello().get("isreplicaset")
    except (OSError, ValueError):
        return True
