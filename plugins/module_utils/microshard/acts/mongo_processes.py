"""All processes of a point on one host in one state."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ansible.module_utils.microshard.fleet import Fleet
from ansible.module_utils.microshard.mongo_process import MongoProcess, Outcome
from ansible.module_utils.microshard.run_folder import require_run_folder

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "processes": {"type": "list", "elements": "dict", "required": True},
    "state": {"choices": ["started", "parked", "resumed", "stopped", "absent"], "default": "started"},
    "mongod": {"type": "path", "required": True},
    "mongos": {"type": "path", "default": ""},
    "concurrency": {"type": "int", "default": 0},
    "start_timeout": {"type": "float", "default": 60},
    "stop_timeout": {"type": "float", "default": 30},
    "mongos_grace": {"type": "float", "default": 2},
}


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The processes are in the state asked for."""
    outcomes = _bring(wanted, check=check)
    done = Counter(outcome.did for outcome in outcomes if outcome.did)
    return {
        "changed": bool(done),
        "msg": ", ".join(f"{count} {did}" for did, count in done.items()) or f"{len(outcomes)} as they should be",
        "processes": [{"name": o.name, "did": o.did, "pid": o.pid} for o in outcomes],
        "diff": [o.diff for o in outcomes if o.diff],
    }


def _bring(wanted: dict[str, Any], *, check: bool) -> list[Outcome]:
    run_folder = require_run_folder(wanted["run_folder"])
    processes = [
        MongoProcess.of(plan, run_folder=run_folder, mongod=wanted["mongod"], mongos=wanted["mongos"])
        for plan in wanted["processes"]
    ]
    fleet = Fleet(processes, check=check, concurrency=wanted["concurrency"])
    return {
        "started": lambda: fleet.start(timeout=wanted["start_timeout"], stop_timeout=wanted["stop_timeout"]),
        "parked": fleet.park,
        "resumed": lambda: fleet.resume(timeout=wanted["start_timeout"]),
        "stopped": lambda: fleet.stop(timeout=wanted["stop_timeout"]),
        "absent": lambda: fleet.remove(mongos_grace=wanted["mongos_grace"]),
    }[wanted["state"]]()
