"""Module workload_phases: execute phases of a workload by an engine on a client host.

Normally the module runs the engine as a child and waits for it (`executed`). Two kinds of steps need several tasks, for
which the engine outlives the module:

- Of several client hosts each starts its engine, which connects its clients (`ready`); then all begin at one time and
  are waited for (`finished`).
- An engine that has mongods restarted on other hosts (`begun`) writes a numbered request, the play restarts them, and
  the engine reads the answer (`answered`); see workloads/restarts.py.
"""

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

from . import logs, proc
from .errors import HostError
from .files import require_below, require_run_folder, write_atomically
from .mongo_config import complete

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

_CHECK_EVERY = 2.0  # s between two checks of the hosts of the point
_POLL = 0.05  # s between two looks for a file of the engine
_VANISHED = 15.0  # s without any answer; ssh gives up on a connection after the same time (ansible.cfg)

Parameters = dict[str, Any]


def main(parameters: Parameters, *, check: bool) -> dict[str, Any]:
    """Execute the phases, or with `state` a part of it; the figure of each phase that has ended."""
    state = parameters["state"]
    if check:
        return {
            "changed": True,
            "msg": f"would run {', '.join(phase['name'] for phase in parameters['job']['phases'])}",
        }
    if state == "executed":
        return _execute(parameters)
    if state == "ready":
        return _connect_clients(parameters)
    if state == "finished":
        return _finish(parameters)
    return _begin(parameters) if state == "begun" else _answer(parameters)


def _prepare(parameters: Parameters) -> list[str]:
    """Write the job and remove an earlier result; the command line of the engine."""
    run_folder = require_run_folder(parameters["run_folder"])
    for key in ("job_path", "out", "progress", "pid_path"):
        if parameters[key]:
            os.makedirs(os.path.dirname(require_below(run_folder, parameters[key])), exist_ok=True)
    point = parameters["job"]["point"]
    point.setdefault("cores", len(os.sched_getaffinity(0)))
    point["processes"] = [complete(process, run_folder, point["id"]) for process in point["processes"]]
    write_atomically(parameters["job_path"], json.dumps(parameters["job"], indent=1) + "\n")
    _remove(parameters["out"])
    command = [parameters["python"], "-m", "microshard.workloads", "--job", parameters["job_path"]]
    command += ["--out", parameters["out"]]
    return [*command, "--progress", parameters["progress"]] if parameters["progress"] else command


def _execute(parameters: Parameters) -> dict[str, Any]:
    """Run the engine as a child and wait for it; one whose hosts vanish is ended."""
    command, output = _prepare(parameters), subprocess.PIPE
    engine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True)
    printed: list[str] = []

    def has_ended() -> bool:
        try:
            printed.append(engine.communicate(timeout=_CHECK_EVERY)[0])
        except subprocess.TimeoutExpired:
            return False
        return True

    try:
        if parameters["pid_path"]:
            write_atomically(parameters["pid_path"], f"{engine.pid}\n")
        _wait(has_ended, parameters["job"]["point"])
    except HostError:
        engine.terminate()
        try:
            engine.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            engine.kill()
            engine.communicate()
        raise
    finally:
        _remove(parameters["pid_path"])
    return _result(parameters, engine.returncode, printed[0])


def _spawn(parameters: Parameters) -> subprocess.Popen[bytes]:
    """Start an engine that outlives this module."""
    command = _prepare(parameters)
    _remove(_output(parameters))
    folder = os.path.dirname(parameters["pid_path"])
    return proc.spawn(command, folder=folder, output=_output(parameters), pid_path=parameters["pid_path"])


def _engine(parameters: Parameters) -> proc.LiveProcess | None:
    """The engine an earlier task has started."""
    return proc.from_pid_file(parameters["pid_path"], parameters["job_path"])


def _output(parameters: Parameters) -> str:
    return f"{parameters['pid_path']}.out"


def _wait_for_engine(has_ended: Callable[[], bool], engine: proc.LiveProcess, point: dict[str, Any]) -> None:
    """As `_wait`; an engine whose hosts vanish is ended."""
    try:
        _wait(has_ended, point)
    except HostError:
        proc.terminate(engine, grace=5)
        raise


def _result_of_ended(parameters: Parameters) -> dict[str, Any]:
    """The result of an engine that was no child of this process: whether it failed is in its file."""
    _remove(parameters["pid_path"])
    phases = _phases(parameters["out"])
    failed = not phases or any(phase["error"] for phase in phases)
    return _result(parameters, int(failed), "\n".join(logs.last_lines(_output(parameters))))


# --- several client hosts --------------------------------------------------------------------------------------------


def _signal_path(parameters: Parameters, name: str) -> str:
    """A file by which engine and module signal each other, in the folder of the engine's logs."""
    (phase,) = parameters["job"]["phases"]
    return os.path.join(os.path.splitext(parameters["out"])[0], phase["name"], name)


def _connect_clients(parameters: Parameters) -> dict[str, Any]:
    """Start the engine and wait until its clients are connected."""
    ready = _signal_path(parameters, "ready")
    for path in (ready, _signal_path(parameters, "start")):
        _remove(path)
    engine = _spawn(parameters)
    while not os.path.exists(ready):
        code = engine.poll()
        if code is not None:
            _remove(parameters["pid_path"])
            return _result(parameters, code or 1, "\n".join(logs.last_lines(_output(parameters))))
        time.sleep(_POLL)
    with open(ready, encoding="utf-8") as file:
        return {"changed": True, "msg": "the clients are connected", **json.load(file)}


def _finish(parameters: Parameters) -> dict[str, Any]:
    """Give the engine the time at which its clients begin, where it waits for that, and wait until it has ended."""
    engine = _engine(parameters)
    if engine is not None:
        if parameters["start_at"] is not None:
            write_atomically(_signal_path(parameters, "start"), f"{round(parameters['start_at'] * 1000)}\n")

        def has_ended(engine: proc.LiveProcess = engine) -> bool:
            return proc.wait_until_gone(engine, time.monotonic() + _CHECK_EVERY)

        try:
            _wait_for_engine(has_ended, engine, parameters["job"]["point"])
        finally:
            _remove(parameters["pid_path"])
    return _result_of_ended(parameters)


# --- requests of the engine to the play ------------------------------------------------------------------------------


def _request_path(parameters: Parameters, name: str = "") -> str:
    """As in workloads/restarts.py."""
    return os.path.join(os.path.splitext(parameters["out"])[0], "restarts", name)


def _begin(parameters: Parameters) -> dict[str, Any]:
    """Start the engine and wait for its first request or its end."""
    shutil.rmtree(_request_path(parameters), ignore_errors=True)
    engine = _spawn(parameters)
    return _next_request(parameters, 1, proc.find(engine.pid))


def _answer(parameters: Parameters) -> dict[str, Any]:
    """Answer the engine's request of this number and wait for the next one or its end."""
    number = parameters["number"]
    write_atomically(_request_path(parameters, f"answer-{number}.json"), json.dumps(parameters["answer"]) + "\n")
    return _next_request(parameters, number + 1, _engine(parameters))


def _next_request(parameters: Parameters, number: int, engine: proc.LiveProcess | None) -> dict[str, Any]:
    """The engine's request, as `request`; or its phases when it has ended."""
    path = _request_path(parameters, f"request-{number}.json")

    def is_over() -> bool:
        until = time.monotonic() + _CHECK_EVERY
        while time.monotonic() < until:
            if os.path.exists(path) or engine is None or proc.wait_until_gone(engine, 0):
                return True
            time.sleep(_POLL)
        return False

    if engine is not None:
        _wait_for_engine(is_over, engine, parameters["job"]["point"])
    try:
        with open(path, encoding="utf-8") as file:
            request = json.load(file)
    except FileNotFoundError:
        return _result_of_ended(parameters)
    return {"changed": True, "msg": f"the engine requests {json.dumps(request)}", "request": request}


# --- common ----------------------------------------------------------------------------------------------------------


def _remove(path: str | None) -> None:
    if path and os.path.exists(path):
        os.unlink(path)


def _wait(is_over: Callable[[], bool], point: dict[str, Any]) -> None:
    """Wait until `is_over`, which itself waits a while, and check the hosts of the point meanwhile.

    HostError with the name of a host that vanishes: one that is cut off answers nothing, so a query would wait for
    ever. A process that died is different: its host refuses the connection.
    """
    servers: dict[str, tuple[str, int]] = {}
    for process in point["processes"]:
        if not str(process["address"]).startswith(("127.", "::1")):
            servers.setdefault(str(process.get("host", "")), (process["address"], process["port"]))
    answered = dict.fromkeys(servers, time.monotonic())
    # Other client hosts may have no process to connect to; one that has answered once is missed when it does not.
    for host in point.get("hosts", []) if len(point.get("client_hosts", [])) > 1 else []:
        servers.setdefault(host["name"], (host["address"], point["processes"][0]["port"]))
    while not is_over():
        with ThreadPoolExecutor(len(servers) or 1) as pool:
            answers = dict(zip(servers, pool.map(_answers, servers.values())))
        now = time.monotonic()
        answered.update({host: now for host, answer in answers.items() if answer})
        for host, last in answered.items():
            if now - last > _VANISHED:
                raise HostError(f"{host} ({servers[host][0]}) has vanished: no answer for {now - last:.0f} s")


def _answers(server: tuple[str, int]) -> bool:
    """Whether a host answers at all; a refused connection is an answer."""
    try:
        socket.create_connection(server, timeout=2).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def _result(parameters: Parameters, code: int, output: str) -> dict[str, Any]:
    """The result of the module when the engine has ended; HostError when it or a phase failed."""
    phases = _phases(parameters["out"])
    if code == 0:
        return {"changed": True, "msg": "; ".join(_figure(phase) for phase in phases), "phases": phases}
    message = f"the engine ended with exit code {code}: {output.strip()[-2000:] or '(no output)'}"
    for phase in reversed(phases):
        if phase["error"]:
            message = f"phase {phase['name']}: {phase['error'].get('type')}: {phase['error'].get('message')}"
    raise HostError(message, rc=code, phases=phases)


def _phases(path: str) -> list[dict[str, Any]]:
    """The part of the result that fits a message; the result itself may have megabytes of answers."""
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
