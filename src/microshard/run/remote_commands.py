"""A host or a process of a run by its name, and the command that leads to it: ssh, tail, mongosh."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from microshard.backends.base import of_run
from microshard.backends.ssh import Hosts
from microshard.errors import EXIT_DEFINITION, MicroshardError, PlaceError
from microshard.records.run_folder import RunFolder, find_runs
from microshard.run.cluster import pick
from microshard.workloads.access import with_access

MONGOSH = "MICROSHARD_MONGOSH"
_ROOT = ("sudo", "-n")


class NoSuchNameError(MicroshardError):
    """Neither a host nor a process of the run has this name."""

    exit_code = EXIT_DEFINITION


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is up: its folder, its deployed point, and where that is."""

    folder: RunFolder
    point: dict[str, Any]  # as in vars.json, paths absolute on the hosts
    hosts: Hosts | None  # None: this machine

    def process(self, name: str) -> dict[str, Any]:
        """The process of this name. Raises NoSuchNameError."""
        for process in self.point["processes"]:
            if process["name"] == name:
                return dict(process)
        raise NoSuchNameError(f"{name}: {self.folder.run_id} has no such process; it has {', '.join(self.names())}")

    def names(self) -> list[str]:
        """Names of all processes."""
        return [str(process["name"]) for process in self.point["processes"]]

    def host_of(self, name: str) -> str:
        """The host of this name, or of the process of this name. Raises NoSuchNameError."""
        hosts = list(dict.fromkeys(str(process["host"]) for process in self.point["processes"]))
        if name in hosts:
            return name
        if name in self.names():
            return str(self.process(name)["host"])
        raise NoSuchNameError(
            f"{name}: neither a host ({', '.join(hosts)}) nor a process ({', '.join(self.names())}) of "
            f"{self.folder.run_id}"
        )

    def on(self, host: str, *words: str, terminal: bool = False) -> list[str]:
        """The command line that executes words on a host; without words a shell in the run's folder."""
        if self.hosts is None:
            shell = os.environ.get("SHELL", "/bin/sh")
            return list(words) or [shell]
        return [*self.hosts.ssh(host, terminal=terminal), *([shlex.join(words)] if words else [])]


def hand_over(run: Run, line: list[str]) -> NoReturn:
    """Become this command, whose the terminal is from now on; nothing of ours will run that could tidy up."""
    if run.hosts is not None:
        run.hosts.hang_up()
    os.execvp(line[0], line)  # noqa: S606 - a list, no shell


def found(runs: Path, run: str | None, point: str | None) -> Run:
    """The newest run that is up, or the one named, with its (named) deployed point. Raises PlaceError."""
    candidates = pick(runs, (run,)) if run else list(reversed(find_runs(runs)))
    for folder in candidates:
        backend = of_run(folder)
        processes = backend.running(folder)
        for variables in sorted(folder.path.glob("points/*/vars.json")):
            known = json.loads(variables.read_text(encoding="utf-8"))["microshard_point"]
            deployed = any(f"/deployments/{known['id']}/" in process for process in processes)
            if deployed and point in {None, known["id"], known["label"]}:
                return Run(folder, known, backend if isinstance(backend, Hosts) else None)
    which = f"{run} is not up" if run else f"no run in {runs} is up"
    raise PlaceError(f"{which}{f' with point {point}' if point else ''}; start one with: microshard up FILE")


def shell(run: Run, name: str) -> tuple[list[str], str | None]:
    """The command of `ssh NAME`, and the folder it starts in when it is this machine's shell."""
    host = run.host_of(name)
    if run.hosts is None:
        folder = run.process(name)["folder"] if name in run.names() else str(run.folder.path)
        return run.on(host), folder
    return run.on(host, terminal=True), None


def log(run: Run, name: str, *, follow: bool, lines: int) -> list[str]:
    """The command of `logs NAME`."""
    process = run.process(name)
    # Logs of systemd's processes belong to their own user.
    root = _ROOT if run.hosts is not None and run.hosts.process_manager == "systemd" else []
    tail = [*root, "tail", *(["-F"] if follow else []), "-n", str(lines), process["log_path"]]
    return run.on(str(process["host"]), *tail)


def mongosh(run: Run, name: str | None, words: Sequence[str] = ()) -> list[str]:
    """The command of `mongosh [NAME] [OPTION]...`: to the point's own door, or to one process. Raises PlaceError.

    With `topology.security` it logs in as the run's administrator.
    """
    address = run.point["connection_string"]
    host = next((p["host"] for p in run.point["processes"] if p["role"] == "mongos"), run.point["processes"][0]["host"])
    if name is not None:
        process = run.process(name)
        address, host = f"mongodb://{process['endpoint']}/?directConnection=true", process["host"]
    program = os.environ.get(MONGOSH) or shutil.which("mongosh")
    if run.hosts is not None and "//127." in address:
        # The embedded mongos listens on loopback of the client host: the shell runs where it is.
        there = run.hosts.host_folder(run.folder) / "secrets" if any(_security(run.point)) else None
        root = _ROOT if there is not None and run.hosts.process_manager == "systemd" else []
        return run.on(str(host), *root, "mongosh", *_door(run.point, address, there, words), *words, terminal=True)
    if program is None:
        raise PlaceError(
            "mongosh is not on PATH: install it (MongoDB's package mongodb-mongosh, or npm install -g mongosh), or "
            f"name it with {MONGOSH}; the address is {address}"
        )
    return [program, *_door(run.point, address, run.folder.path / "secrets", words), *words]


def _security(point: dict[str, Any]) -> tuple[bool, bool]:
    """Whether its servers want logins, and whether they speak TLS."""
    wanted = point.get("security") or {}
    return bool(wanted.get("authorization")), bool(wanted.get("tls"))


def _door(point: dict[str, Any], address: str, secrets: Path | None, words: Sequence[str]) -> list[str]:
    """The words that lead mongosh to an address. A password is not among them, for all may read command lines."""
    authorization, tls = _security(point)
    uri = with_access(address, secrets, authorization=False, tls=tls)
    if not authorization:
        return [uri]
    uri += f"{'&' if '?' in uri else '?'}authSource=admin&authMechanism=SCRAM-SHA-256"
    users = json.dumps(str(secrets and secrets / "users.json"))
    login = f"(({{user, password}}) => [user, password])(JSON.parse(require('fs').readFileSync({users}, 'utf8')).admin)"
    # Without --shell it would end after the login, where nothing else is asked of it.
    asked = any(word.startswith(("--eval", "--file", "-f")) or word.endswith(".js") for word in words)
    script = f"db = connect({json.dumps(uri)}, ...{login}); undefined"
    return ["--nodb", "--eval", script, *([] if asked else ["--shell"])]
