"""Give the data of a restored data image the addresses of the deployment they are restored into.

The configuration of a replica set, the cluster's list of shards and a shard's identity name servers by address and
port. Where those differ, each mongod is started alone, outside of its set and its cluster, changed, and shut down: the
manual's procedure "Restore a Sharded Cluster". Nothing that still has an old address can then reach another cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from . import mongo_config, proc, wire
from .errors import HostError
from .files import write_atomically
from .logs import last_lines

Document = dict[str, Any]

_STARTED_IN = 60.0  # s
_STOPPED_IN = 60.0  # s
_POLL = 0.02  # s
_LOOPBACK = "127.0.0.1"  # it has no users and no access control yet


def rewrite(here: Sequence[Document], processes: Sequence[Document], sets: Sequence[Document], mongod: str) -> None:
    """Change the data folders of the processes of this host (`here`, complete); `processes` and `sets` are the point's.

    Raises HostError where a server does not have what is to be changed: its data are not those of the plan.
    """
    changes = {process["name"]: list(_changes(process, processes, sets)) for process in here}
    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:  # as many as mongo_processes starts at a time
        list(pool.map(partial(_change, mongod), here, changes.values()))


def _changes(process: Document, processes: Sequence[Document], sets: Sequence[Document]) -> Iterator[Document]:
    """The commands that put the planned addresses into the data of a process.

    What is not initial was no member, or no shard, when the image was made.
    """
    own = next((each for each in sets if process["name"] in [m["process"] for m in _members(each)]), None)
    if own is None:
        return
    hosts = {f"members.{number}.host": member["endpoint"] for number, member in enumerate(_members(own))}
    yield _update("local", "system.replset", [({"_id": own["name"], "members": {"$size": len(hosts)}}, hosts)])
    servers = mongo_config.config_db(processes)
    bears_data = not next(m.get("arbiter") for m in own["members"] if m["process"] == process["name"])
    shards = [each for each in sets if each["role"] == "shard" and each.get("initial", True)]
    if not servers or not bears_data:
        return
    if own["name"] == "config":
        yield _update(
            "config", "shards", [({"_id": each["name"]}, {"host": mongo_config.connection(each)}) for each in shards]
        )
    if own in shards:
        yield _update("admin", "system.version", [({"_id": "shardIdentity"}, {"configsvrConnectionString": servers})])


def _members(planned: Document) -> list[Document]:
    return [member for member in planned["members"] if member.get("initial", True)]


def _update(database: str, collection: str, pairs: Sequence[tuple[Document, Document]]) -> Document:
    updates = [{"q": query, "u": {"$set": values}} for query, values in pairs]
    return {"update": collection, "updates": updates, "$db": database}


def _change(mongod: str, process: Document, commands: Sequence[Document]) -> None:
    if not commands:
        return
    with _alone(mongod, process):
        for command in commands:
            answer = wire.command(_LOOPBACK, process["port"], command, timeout=_STARTED_IN)
            if answer.get("ok") != 1 or answer.get("writeErrors") or answer.get("n") != len(command["updates"]):
                where = f"{command['$db']}.{command['update']}"
                raise HostError(f"{process['name']}: {where} does not take the addresses of this deployment: {answer}")


@contextlib.contextmanager
def _alone(mongod: str, process: Document) -> Iterator[None]:
    """A mongod with the data of a process, alone, on loopback; shut down cleanly at the end.

    Its configuration file and PID file are those of the process, so whatever ends the process finds it.
    """
    name, data, log = process["name"], process["db_path"], os.path.join(process["folder"], "addresses.log")
    options = {
        "storage": {**(process["options"].get("storage") or {}), "dbPath": data},
        "net": {"port": process["port"], "bindIp": _LOOPBACK, "unixDomainSocket": {"enabled": False}},
        # Nothing else may change: no session is written, no document expires.
        "setParameter": {"disableLogicalSessionCacheRefresh": True, "ttlMonitorEnabled": False},
    }
    write_atomically(process["config_path"], json.dumps(options))  # JSON is YAML
    command = [mongod, "--config", process["config_path"]]
    child = proc.spawn(command, folder=process["folder"], output=log, pid_path=process["pid_path"])
    deadline = time.monotonic() + _STARTED_IN
    try:
        while not wire.answers(_LOOPBACK, process["port"]):
            if child.poll() is not None or time.monotonic() > deadline:
                raise HostError(f"{name} does not start alone:\n  " + "\n  ".join(last_lines(log)))
            time.sleep(_POLL)
        yield
    finally:
        running = proc.from_pid_file(process["pid_path"], process["config_path"])
        ended = proc.terminate(running, grace=_STOPPED_IN) if running else "killed"
        child.wait()
    if ended != "terminated" or os.path.getsize(os.path.join(data, "mongod.lock")):
        raise HostError(f"{name} was not shut down cleanly after its addresses were changed")
    for path in (log, process["pid_path"]):
        os.unlink(path)
    shutil.rmtree(os.path.join(data, "journal"), ignore_errors=True)  # its place may be a volume
