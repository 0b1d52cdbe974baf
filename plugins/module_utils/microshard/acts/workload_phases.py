"""Phases of a workload, executed by the engines."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from ansible.module_utils.microshard.refused import Refused
from ansible.module_utils.microshard.run_folder import require_below, require_run_folder, write_atomically

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "python": {"type": "path", "required": True},
    "job": {"type": "dict", "required": True},
    "job_path": {"type": "path", "required": True},
    "out": {"type": "path", "required": True},
    "progress": {"type": "path"},
    "pid_path": {"type": "path"},
}


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The phases were executed and their result is on disk."""
    if check:
        return {"changed": True, "msg": f"would run {', '.join(phase['name'] for phase in wanted['job']['phases'])}"}
    _prepare(wanted)
    code, words = _run(wanted)
    phases = _phases(wanted["out"])
    if code != 0:
        raise Refused(_failure(code, words, phases), rc=code, phases=phases)
    return {"changed": True, "msg": "; ".join(_figure(phase) for phase in phases), "phases": phases}


def _prepare(wanted: dict[str, Any]) -> None:
    run_folder = require_run_folder(wanted["run_folder"])
    for key in ("job_path", "out", "progress", "pid_path"):
        if wanted[key]:
            os.makedirs(os.path.dirname(require_below(run_folder, wanted[key])), exist_ok=True)
    point = wanted["job"]["point"]
    point.setdefault("cores", len(os.sched_getaffinity(0)))
    for process in point["processes"]:
        process.setdefault("endpoint", f"{process['address']}:{process['port']}")
    write_atomically(wanted["job_path"], json.dumps(wanted["job"], indent=1) + "\n")
    # A result that is there afterwards must be of this execution.
    if os.path.exists(wanted["out"]):
        os.unlink(wanted["out"])


def _command(wanted: dict[str, Any]) -> list[str]:
    command = [wanted["python"], "-m", "microshard.engines", "--job", wanted["job_path"], "--out", wanted["out"]]
    return [*command, "--progress", wanted["progress"]] if wanted["progress"] else command


def _run(wanted: dict[str, Any]) -> tuple[int, str]:
    """Exit code of the engine, and what it said."""
    engine = subprocess.Popen(
        _command(wanted), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        if wanted["pid_path"]:
            write_atomically(wanted["pid_path"], f"{engine.pid}\n")
        words, _ = engine.communicate()
    finally:
        if wanted["pid_path"] and os.path.exists(wanted["pid_path"]):
            os.unlink(wanted["pid_path"])
    return engine.returncode, words


def _phases(path: str) -> list[dict[str, Any]]:
    """What of the result fits a message; the result itself may hold megabytes of answers."""
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    except (OSError, ValueError):
        return []
    return [{key: phase.get(key) for key in ("name", "metric", "error")} for phase in result.get("phases", [])]


def _figure(phase: dict[str, Any]) -> str:
    metric = phase["metric"] or {}
    value = metric.get("value")
    return (
        f"{phase['name']} {value:,.6g} {metric.get('unit', '')}" if isinstance(value, (int, float)) else phase["name"]
    )


def _failure(code: int, words: str, phases: list[dict[str, Any]]) -> str:
    for phase in phases:
        if phase["error"]:
            return f"phase {phase['name']}: {phase['error'].get('type')}: {phase['error'].get('message')}"
    return f"the engine ended with exit code {code}: {words.strip()[-2000:] or 'it said nothing'}"
