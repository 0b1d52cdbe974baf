"""A further member of a replica set that was brought up for work by hand."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.backends.base import of_run
from microshard.backends.this_machine import is_free
from microshard.errors import EXIT_DEFINITION, MicroshardError, PlaceError
from microshard.records.run_folder import RunFolder, write_atomic
from microshard.run.runner import Listener

_LAST_PORT = 65535
_SYNC_SECONDS = 7 * 24 * 3600.0  # an initial sync may take days, and Ctrl-C ends the waiting


class NoSuchSetError(MicroshardError):
    """Nothing a member can be added to."""

    exit_code = EXIT_DEFINITION


@dataclass(frozen=True, slots=True)
class Added:
    """A member that has become one."""

    name: str
    endpoint: str
    replica_set: str
    waited: bool  # its process ran already and was no member (`initial: false`)


def add_member(run: RunFolder, name: str | None, listener: Listener) -> Added:
    """Add a member to a replica set of a run that is up, and wait until it is SECONDARY.

    A process that waits to become one (`initial: false`) is taken; where there is none, another is made after the
    last data-bearing member's fashion, with a port of its own. `name` is the set, where there are several.
    Raises NoSuchSetError, PlaceError, PlaybookError; `down` removes the member with the others.
    """
    backend = of_run(run)
    processes = backend.running(run)
    for path in sorted(run.path.glob("points/*/vars.json")):
        variables = json.loads(path.read_text(encoding="utf-8"))
        point = variables["microshard_point"]
        if any(f"/deployments/{point['id']}/" in process for process in processes):
            break
    else:
        raise NoSuchSetError(f"{run.run_id} has nothing running; first: microshard up FILE")
    planned = _set(point, name)
    member, waited = _waiting(planned), True
    if member is None:
        member, waited = _another(point, planned), False
    process = next(p for p in point["processes"] if p["name"] == member["process"])
    member["added"] = True
    if not waited:
        run.ledger.append(
            kind="process",
            state="about to start",
            point=point["id"],
            name=process["name"],
            folder=process["folder"],
            config_path=process["config_path"],
            pid_path=process["pid_path"],
            port=process["port"],
        )
    write_atomic(path, json.dumps({**variables, "mongo_topology_timeout": _SYNC_SECONDS}, indent=1) + "\n")
    listener.stage(None, "add member")
    backend.playbooks(run, listener.event, backend.limit_of(run)).run("deploy", path)
    run.journal.append(event="member added", point=point["id"], name=process["name"], replica_set=planned["name"])
    return Added(process["name"], member["endpoint"], planned["name"], waited)


def _set(point: dict[str, Any], name: str | None) -> dict[str, Any]:
    sets: dict[str, dict[str, Any]] = {s["name"]: s for s in point["replica_sets"] if s["role"] != "config"}
    if name is not None and name in sets:
        return sets[name]
    if name is None and len(sets) == 1:
        return next(iter(sets.values()))
    there = ", ".join(sets) or "none (a standalone has no members)"
    asked = f"--set {name}: " if name else "which replica set? --set takes one of them: "
    raise NoSuchSetError(f"{asked}{point['label']} has {there}")


def _waiting(planned: dict[str, Any]) -> dict[str, Any] | None:
    found = (m for m in planned["members"] if not m.get("initial", True) and not m.get("added"))
    return next(found, None)


def _another(point: dict[str, Any], planned: dict[str, Any]) -> dict[str, Any]:
    """A process and a member after the last data-bearing one's fashion; both are put into the point."""
    names = {process["name"]: process for process in point["processes"]}
    model = next(names[m["process"]] for m in reversed(planned["members"]) if not m.get("arbiter"))
    stem = model["name"].rsplit("-", 1)[0] if "-" in model["name"] else model["name"]
    number = next(n for n in range(2, 1000) if f"{stem}-{n}" not in names)
    process = copy.deepcopy(model)
    process["name"] = f"{stem}-{number}"
    process["port"] = _port(point, process["host"], local=process["address"] in {"127.0.0.1", "localhost"})
    process["endpoint"] = f"{process['address']}:{process['port']}"
    for key in ("folder", "db_path", "log_path", "config_path", "pid_path"):
        value = Path(process[key])
        folder = Path(model["folder"])
        process[key] = str(folder.with_name(process["name"]) / value.relative_to(folder))
    member = {"process": process["name"], "endpoint": process["endpoint"], "initial": False}
    point["processes"].append(process)
    planned["members"].append(member)
    return member


def _port(point: dict[str, Any], host: str, *, local: bool) -> int:
    taken = {int(process["port"]) for process in point["processes"] if process["host"] == host}
    for port in range(max(taken) + 1, _LAST_PORT):
        if not local or is_free(port):
            return port
    raise PlaceError(f"{host}: no port is free above {max(taken)}")
