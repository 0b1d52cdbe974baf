"""The commands that lead to a host or a process of a running cluster: ssh, tail, mongosh."""

import json
import os
import shlex
import shutil
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from microshard.errors import EXIT_DEFINITION, MicroshardError, PlaceError
from microshard.model.plan import Process
from microshard.model.variables import PointVariables
from microshard.records.run_folder import RunFolder, find_runs
from microshard.run.backend import Backend, BackendOf
from microshard.run.catalog import named
from microshard.run.cluster import deployed_points
from microshard.workloads.connections import with_login

MONGOSH = "MICROSHARD_MONGOSH"
_ROOT = ("sudo", "-n")
_TUNNEL_SECONDS = 10  # within which mongosh has to connect


class NoSuchNameError(MicroshardError):
    """Neither a host nor a process of the run has this name."""

    exit_code = EXIT_DEFINITION


@dataclass(frozen=True, slots=True)
class RunningPoint:
    """A deployed point of a run, and the place it runs at."""

    folder: RunFolder
    point: PointVariables  # paths are absolute, on the hosts
    backend: Backend

    def process(self, name: str) -> Process:
        """The process of this name. Raises NoSuchNameError."""
        for process in self.point.processes:
            if process.name == name:
                return process
        raise NoSuchNameError(f"{name}: {self.folder.run_id} has no such process; it has {', '.join(self.names())}")

    def names(self) -> list[str]:
        """Names of all processes."""
        return [process.name for process in self.point.processes]

    def host_of(self, name: str) -> str:
        """The host of this name, or of the process of this name. Raises NoSuchNameError."""
        hosts = list(dict.fromkeys(process.host for process in self.point.processes))
        if name in hosts:
            return name
        if name in self.names():
            return self.process(name).host
        raise NoSuchNameError(
            f"{name}: neither a host ({', '.join(hosts)}) nor a process ({', '.join(self.names())}) of "
            f"{self.folder.run_id}"
        )


def exec_command(running: RunningPoint, line: list[str]) -> NoReturn:
    """Replace this process by a command; connections are closed before, for nothing could do it afterwards."""
    running.backend.disconnect()
    # Python ignores SIGPIPE and a new program inherits that: `logs shard01 | head -1` would end with tail's complaint.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execvp(line[0], line)  # noqa: S606 - a list, no shell


def find_running(runs: Path, backend_of: BackendOf, run: str | None, point: str | None) -> RunningPoint:
    """The (named) deployed point of the named run, or of the newest one that is up. Raises PlaceError."""
    for folder in named(runs, (run,)) if run else reversed(find_runs(runs)):
        backend = backend_of(folder)
        for known in deployed_points(folder, backend.running(folder)):
            if point in {None, known.id, known.label}:
                return RunningPoint(folder, known, backend)
    which = f"{run} is not up" if run else f"no run in {runs} is up"
    raise PlaceError(f"{which}{f' with point {point}' if point else ''}; start one with: microshard up FILE")


def shell(running: RunningPoint, name: str, words: Sequence[str] = ()) -> tuple[list[str], str | None]:
    """The command of `ssh NAME [COMMAND]...`, and the folder a shell on this machine starts in."""
    host = running.host_of(name)
    folder = None
    if not running.backend.remote:
        folder = running.process(name).folder if name in running.names() else str(running.folder.path)
    # One line for a shell, as ssh takes it: `ssh shard01 'exit 7'`.
    line = ["sh", "-c", " ".join(words)] if words else []
    return running.backend.command(host, line, terminal=not words), folder


def log(running: RunningPoint, name: str, *, follow: bool, lines: int) -> list[str]:
    """The command of `logs NAME`."""
    process = running.process(name)
    # Logs of systemd units belong to their user.
    root = _ROOT if running.backend.process_manager == "systemd" else []
    tail = [*root, "tail", *(["-F"] if follow else []), "-n", str(lines), process.log_path]
    return running.backend.command(process.host, tail)


def mongosh(running: RunningPoint, name: str | None, words: Sequence[str] = ()) -> list[str]:
    """The command of `mongosh [NAME] [OPTION]...`: to the cluster, or to one process. Raises PlaceError.

    With `topology.security` it logs in as the run's administrator.
    """
    backend, processes = running.backend, running.point.processes
    address = running.point.connection_string
    process: Process = next((p for p in processes if p.role == "mongos"), processes[0])
    if name is not None:
        process = running.process(name)
        address = f"mongodb://{process.endpoint}/?directConnection=true"
    host = process.host
    program = os.environ.get(MONGOSH) or shutil.which("mongosh")
    if backend.remote and "//127." in address:
        # The embedded mongos listens on loopback of the client host: the shell runs where it is.
        secrets = backend.host_folder(running.folder) / "secrets" if any(_security(running.point)) else None
        root = _ROOT if secrets is not None and backend.process_manager == "systemd" else []
        line = [*root, "mongosh", *_connect(running.point, address, secrets, words), *words]
        return backend.command(host, line, terminal=True)
    if program is None:
        raise PlaceError(
            "mongosh is not on PATH: install it (MongoDB's package mongodb-mongosh, or npm install -g mongosh), or "
            f"name it with {MONGOSH}; the address is {address}"
        )
    secrets = running.folder.path / "secrets"
    if not backend.tunnel:
        return [program, *_connect(running.point, address, secrets, words), *words]
    port = _free_port()
    address = f"mongodb://127.0.0.1:{port}/?directConnection=true"
    if _security(running.point)[1]:
        address += "&tlsAllowInvalidHostnames=true"  # certificates name the hosts' addresses, not the tunnel's end
    tunnel = shlex.join(_tunnel(backend, host, port, process.endpoint))
    shell = shlex.join([program, *_connect(running.point, address, secrets, words), *words])
    return ["sh", "-c", f"{tunnel} && exec {shell}"]


def _tunnel(backend: Backend, host: str, port: int, endpoint: str) -> list[str]:
    """An ssh command that forwards a port of this machine, returns, and ends with the last connection through it."""
    ssh, *rest = backend.command(host, ["sleep", str(_TUNNEL_SECONDS)])
    return [ssh, "-f", "-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{port}:{endpoint}", *rest]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _security(point: PointVariables) -> tuple[bool, bool]:
    """Whether its servers require authentication, and whether they use TLS."""
    return point.security.get("authorization", False), point.security.get("tls", False)


def _connect(point: PointVariables, address: str, secrets: Path | None, words: Sequence[str]) -> list[str]:
    """The arguments that connect mongosh. No password is among them: every user can read command lines."""
    authorization, tls = _security(point)
    uri = with_login(address, secrets, authorization=False, tls=tls)
    if not authorization:
        return [uri]
    uri += f"{'&' if '?' in uri else '?'}authSource=admin&authMechanism=SCRAM-SHA-256"
    users = json.dumps(str(secrets and secrets / "users.json"))
    login = f"(({{user, password}}) => [user, password])(JSON.parse(require('fs').readFileSync({users}, 'utf8')).admin)"
    # Without --shell it would end after the login, unless a script is given.
    scripted = any(word.startswith(("--eval", "--file", "-f")) or word.endswith(".js") for word in words)
    script = f"db = connect({json.dumps(uri)}, ...{login}); undefined"
    return ["--nodb", "--eval", script, *([] if scripted else ["--shell"])]
