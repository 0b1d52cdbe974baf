"""Phases of a workload, executed by the engines."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .. import daemon, logs, proc
from ..refused import Refused
from ..run_folder import require_below, require_run_folder, write_atomically

_LOOK_EVERY = 2.0  # s between two looks at the hosts of the point
_LOOK_SOON = 0.05  # s between two looks at an engine whose clients connect
_VANISHED = 15.0  # s without any answer; ssh gives up on a connection after the same time (ansible.cfg)

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "python": {"type": "path", "required": True},
    "job": {"type": "dict", "required": True},
    "job_path": {"type": "path", "required": True},
    "out": {"type": "path", "required": True},
    "progress": {"type": "path"},
    "pid_path": {"type": "path"},
    "state": {"choices": ["executed", "ready", "begun", "answered", "finished"], "default": "executed"},
    "number": {"type": "int"},
    "answer": {"type": "dict"},
    "start_at": {"type": "float"},
}


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The phases were executed and their result is on disk; or, with `state`, a part of the way there."""
    if check:
        return {"changed": True, "msg": f"would run {', '.join(phase['name'] for phase in wanted['job']['phases'])}"}
    if wanted["state"] == "ready":
        return _make_ready(wanted)
    if wanted["state"] == "begun":
        return _begin(wanted)
    if wanted["state"] == "answered":
        return _answer(wanted)
    if wanted["state"] == "finished":
        code, words = _finish(wanted)
    else:
        _prepare(wanted)
        code, words = _run(wanted)
    return _outcome(wanted, code, words)


def _outcome(wanted: dict[str, Any], code: int, words: str) -> dict[str, Any]:
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
    command = [wanted["python"], "-m", "microshard.workloads", "--job", wanted["job_path"], "--out", wanted["out"]]
    return [*command, "--progress", wanted["progress"]] if wanted["progress"] else command


def _run(wanted: dict[str, Any]) -> tuple[int, str]:
    """Exit code of the engine, and what it said."""
    engine = subprocess.Popen(
        _command(wanted), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        if wanted["pid_path"]:
            write_atomically(wanted["pid_path"], f"{engine.pid}\n")
        words = _await_own(engine, wanted["job"]["point"])
    finally:
        _forget(wanted)
    return engine.returncode, words


def _await_own(engine: subprocess.Popen[str], point: dict[str, Any]) -> str:
    """What an engine said that is a child of this process; Refused by host when one vanishes meanwhile."""

    def is_over() -> bool:
        try:
            said.append(engine.communicate(timeout=_LOOK_EVERY)[0])
        except subprocess.TimeoutExpired:
            return False
        return True

    said: list[str] = []
    try:
        _watch(is_over, point)
    except Refused:
        engine.terminate()
        try:
            engine.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            engine.kill()
            engine.communicate()
        raise
    return said[0]


# Several client hosts: on each the engine is started and connects its clients, then all are told when to begin.


def _signal(wanted: dict[str, Any], name: str) -> str:
    """A file through which the engine and this module speak; it lies where the engine keeps its logs."""
    (phase,) = wanted["job"]["phases"]
    return os.path.join(os.path.splitext(wanted["out"])[0], phase["name"], name)


def _words(wanted: dict[str, Any]) -> str:
    return f"{wanted['pid_path']}.out"


def _make_ready(wanted: dict[str, Any]) -> dict[str, Any]:
    """The engine runs and its clients are connected. It outlives the module, as a server does."""
    _prepare(wanted)
    for path in (_signal(wanted, "ready"), _signal(wanted, "start"), _words(wanted)):
        if os.path.exists(path):
            os.unlink(path)
    folder = os.path.dirname(wanted["pid_path"])
    engine = daemon.spawn(_command(wanted), folder=folder, output=_words(wanted), pid_path=wanted["pid_path"])
    while not os.path.exists(_signal(wanted, "ready")):
        code = engine.poll()
        if code is not None:
            _forget(wanted)
            phases = _phases(wanted["out"])
            raise Refused(_failure(code, "\n".join(logs.last_words(_words(wanted))), phases), rc=code, phases=phases)
        time.sleep(_LOOK_SOON)
    return {"changed": True, "msg": "its clients are connected"}


def _finish(wanted: dict[str, Any]) -> tuple[int, str]:
    """The engine is told when its clients begin, where it waits for that, and has ended; if well is in its result."""
    engine = proc.recorded(wanted["pid_path"], wanted["job_path"])
    try:
        if engine is not None:
            seen = engine
            if wanted["start_at"] is not None:
                write_atomically(_signal(wanted, "start"), f"{round(wanted['start_at'] * 1000)}\n")
            _until(lambda: proc.wait_gone(seen, time.monotonic() + _LOOK_EVERY), seen, wanted["job"]["point"])
    finally:
        _forget(wanted)
    return _left_behind(wanted)


def _left_behind(wanted: dict[str, Any]) -> tuple[int, str]:
    """Whether an engine that was no child of this process has failed (1) or not (0), and what it said."""
    phases = _phases(wanted["out"])
    failed = not phases or any(phase["error"] for phase in phases)
    return int(failed), "\n".join(logs.last_words(_words(wanted)))


def _until(is_over: Callable[[], bool], engine: proc.Seen, point: dict[str, Any]) -> None:
    """As `_watch`; an engine whose hosts vanish is ended."""
    try:
        _watch(is_over, point)
    except Refused:
        daemon.end(engine, grace=5)
        raise


# What an engine cannot do from the client host it asks for, by a numbered file, and waits for the file with the answer.


def _asking(wanted: dict[str, Any], name: str = "") -> str:
    """As in engines/asking.py."""
    return os.path.join(os.path.splitext(wanted["out"])[0], "asks", name)


def _begin(wanted: dict[str, Any]) -> dict[str, Any]:
    """The engine runs, and either asks for something or has ended well. It outlives the module."""
    _prepare(wanted)
    shutil.rmtree(_asking(wanted), ignore_errors=True)
    if os.path.exists(_words(wanted)):
        os.unlink(_words(wanted))
    folder = os.path.dirname(wanted["pid_path"])
    child = daemon.spawn(_command(wanted), folder=folder, output=_words(wanted), pid_path=wanted["pid_path"])
    return _next_ask(wanted, 1, proc.look(child.pid))


def _answer(wanted: dict[str, Any]) -> dict[str, Any]:
    """The engine has the answer to its ask of this number, and either asks for something else or has ended well."""
    write_atomically(_asking(wanted, f"answer-{wanted['number']}.json"), json.dumps(wanted["answer"]) + "\n")
    return _next_ask(wanted, wanted["number"] + 1, proc.recorded(wanted["pid_path"], wanted["job_path"]))


def _next_ask(wanted: dict[str, Any], number: int, engine: proc.Seen | None) -> dict[str, Any]:
    """What the engine asks for, as `ask`; its phases when it has ended, Refused when one of them failed."""
    path = _asking(wanted, f"ask-{number}.json")

    def is_over() -> bool:
        until = time.monotonic() + _LOOK_EVERY
        while time.monotonic() < until:
            if os.path.exists(path) or engine is None or proc.wait_gone(engine, 0):
                return True
            time.sleep(_LOOK_SOON)
        return False

    if engine is not None:
        _until(is_over, engine, wanted["job"]["point"])
    try:
        with open(path, encoding="utf-8") as file:
            ask = json.load(file)
    except FileNotFoundError:
        _forget(wanted)
        return _outcome(wanted, *_left_behind(wanted))
    return {"changed": True, "msg": f"the engine asks for {json.dumps(ask)}", "ask": ask}


def _forget(wanted: dict[str, Any]) -> None:
    if wanted["pid_path"] and os.path.exists(wanted["pid_path"]):
        os.unlink(wanted["pid_path"])


def _watch(is_over: Callable[[], bool], point: dict[str, Any]) -> None:
    """Until `is_over`, which waits a while itself, look at the hosts of the point; Refused by host when one vanishes.

    A host that is cut off answers nothing, not even that a connection is gone: a query would wait for ever.
    A process that died is another matter: its host refuses the connection.
    """
    doors: dict[str, tuple[str, int]] = {}
    for process in point["processes"]:
        if not str(process["address"]).startswith(("127.", "::1")):
            doors.setdefault(str(process.get("host", "")), (process["address"], process["port"]))
    answered = dict.fromkeys(doors, time.monotonic())
    # Other client hosts may have no process to connect to; one that has answered once can be missed afterwards.
    port = point["processes"][0]["port"]
    for host in point.get("hosts", []) if len(point.get("client_hosts", [])) > 1 else []:
        doors.setdefault(host["name"], (host["address"], port))
    while not is_over():
        with ThreadPoolExecutor(len(doors) or 1) as pool:
            there = dict(zip(doors, pool.map(_is_there, doors.values())))
        now = time.monotonic()
        answered.update({host: now for host, is_there in there.items() if is_there})
        for host, last in answered.items():
            if now - last > _VANISHED:
                raise Refused(f"{host} ({doors[host][0]}) has vanished: it answers nothing for {now - last:.0f} s")


def _is_there(door: tuple[str, int]) -> bool:
    """Whether a host answers at all; a refused connection is an answer."""
    try:
        socket.create_connection(door, timeout=2).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


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
