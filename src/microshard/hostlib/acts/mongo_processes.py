"""All processes of a point on one host in one state."""

from __future__ import annotations

import os
import pwd
from collections import Counter
from dataclasses import replace
from typing import Any, Callable

from .. import numa, page_cache, rotation, systemd
from ..access import OPEN, of_run
from ..fleet import Fleet
from ..mongo_process import LaunchOptions, MongoProcess, Outcome
from ..refused import Refused
from ..run_folder import require_run_folder

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "processes": {"type": "list", "elements": "dict", "required": True},
    "state": {"choices": ["started", "parked", "resumed", "restarted", "stopped", "absent"], "default": "started"},
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
    "unit": {"type": "str", "default": ""},
    "numa": {"type": "dict", "default": {}},
    "security": {"type": "dict", "default": {}},
}


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The processes are in the state asked for."""
    run_folder = require_run_folder(wanted["run_folder"])
    by_units = wanted["process_manager"] == "systemd"
    unit_diff, rotated = None, False
    if by_units and wanted["state"] == "started" and wanted["processes"]:
        unit_diff = systemd.install(wanted["unit"], check=check)
    fleet = _fleet(wanted, run_folder, check=check)
    dropped: list[str] = []
    outcomes = _bring(fleet, wanted, dropped)
    if by_units and wanted["state"] == "started" and wanted["processes"]:
        # The folders on volumes, which it names, are there only now.
        rotated = rotation.install(run_folder, wanted["user"], check=check)
    if by_units and not check and wanted["state"] in {"stopped", "absent"}:
        systemd.forget([plan["folder"] for plan in wanted["processes"]])
    unit_gone = by_units and wanted["state"] == "absent" and systemd.remove_if_unused(check=check)
    if by_units and wanted["state"] == "absent" and not os.path.isdir(os.path.join(run_folder, "deployments")):
        rotated = rotation.remove(run_folder, check=check)
    done = Counter(outcome.did for outcome in outcomes if outcome.did)
    if unit_diff:
        done["unit written"] += 1
    if rotated:
        done["logrotate's file written or removed"] += 1
    if unit_gone:
        done["unit removed"] += 1
    diffs = [unit_diff, *(o.diff for o in outcomes)]
    return {
        "changed": bool(done),
        "msg": ", ".join(f"{count} {did}" for did, count in done.items()) or f"{len(outcomes)} as they should be",
        "processes": [{"name": o.name, "did": o.did, "pid": o.pid} for o in outcomes],
        "records": [o.record for o in outcomes if o.record],
        "page_cache": next(iter(dropped), None),
        "diff": [diff for diff in diffs if diff],
    }


def _fleet(wanted: dict[str, Any], run_folder: str, *, check: bool) -> Fleet:
    """The processes that are meant. Which cores each is bound to is decided by all of the host."""
    manner, bound = _manner(wanted), _bindings(wanted)
    names = wanted["names"] or [plan["name"] for plan in wanted["processes"]]
    processes = [
        replace(
            MongoProcess.of(plan, run_folder=run_folder, mongod=wanted["mongod"], mongos=wanted["mongos"]),
            manner=manner,
            binding=bound[plan["name"]],
        )
        for plan in wanted["processes"]
        if plan["name"] in names
    ]
    return Fleet(processes, check=check, concurrency=wanted["concurrency"])


def _bring(fleet: Fleet, wanted: dict[str, Any], dropped: list[str]) -> list[Outcome]:
    """What was done to each. `dropped` gets what became of the page cache, where it was to be dropped."""

    def between() -> None:
        if wanted["process_manager"] == "systemd":
            systemd.forget([process.folder for process in fleet.processes])
        if wanted["drop_page_cache"]:
            dropped.append(page_cache.drop())

    bring: dict[str, Callable[[], list[Outcome]]] = {
        "started": lambda: fleet.start(timeout=wanted["start_timeout"], stop_timeout=wanted["stop_timeout"]),
        "parked": fleet.park,
        "resumed": lambda: fleet.resume(timeout=wanted["start_timeout"]),
        "restarted": lambda: fleet.restart(
            timeout=wanted["start_timeout"], stop_timeout=wanted["stop_timeout"], between=between
        ),
        "stopped": lambda: fleet.stop(timeout=wanted["stop_timeout"]),
        "absent": lambda: fleet.remove(mongos_grace=wanted["mongos_grace"]),
    }
    return bring[wanted["state"]]()


def _manner(wanted: dict[str, Any]) -> LaunchOptions:
    access = OPEN if wanted["state"] in {"stopped", "absent"} else of_run(wanted["run_folder"], wanted["security"])
    if wanted["process_manager"] == "direct":
        return LaunchOptions(access=access)
    if os.geteuid() != 0:
        raise Refused("process_manager: systemd needs root on the host (become)")
    try:
        entry = pwd.getpwnam(wanted["user"])
    except KeyError:
        raise Refused(f"there is no user {wanted['user']} on this host; playbooks/prepare.yml makes it") from None
    return LaunchOptions("systemd", wanted["user"], entry.pw_gid, entry.pw_uid, access, dict(wanted["limits"] or {}))


def _bindings(wanted: dict[str, Any]) -> dict[str, numa.Binding]:
    """Only what is started is bound; for the other states the host need not be able to."""
    names = [plan["name"] for plan in wanted["processes"]]
    if wanted["state"] not in {"started", "restarted"} or not wanted["numa"]:
        return dict.fromkeys(names, numa.UNBOUND)
    data_bearing = {plan["name"] for plan in wanted["processes"] if plan["role"] not in {"config", "mongos"}}
    return numa.bindings(wanted["numa"], names, data_bearing, numa.host_cores())
