"""MongoDB's configuration files: an experiment's own options laid over a rendered template, whose comments stay."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .errors import HostError

Options = Mapping[str, Any]

# TokuMX's names (MongoDB 2.4's) of what plan and experiment say in the words of later configuration files.
_FLAT = {
    "net.port": "port",
    "net.bindIp": "bind_ip",
    "net.maxIncomingConnections": "maxConns",
    "operationProfiling.slowOpThresholdMs": "slowms",
    "systemLog.quiet": "quiet",
}
# TokuMX is so anyway, or has no such thing.
_NOT_IN_TOKUMX = frozenset({"storage.engine", "replication.oplogSizeMB", "storage.syncPeriodSecs"})


def complete(process: Options, run_folder: str, deployment: str) -> dict[str, Any]:
    """A process with what was left out: role, address, and the paths below the run's folder as a plan has them.

    `engine` is that of its options, `endpoint` its `address:port`.
    """
    role = process.get("role") or "standalone"
    folder = process.get("folder") or os.path.join(run_folder, "deployments", deployment, process["name"])
    program = "mongos" if role == "mongos" else "mongod"
    storage = (process.get("options") or {}).get("storage") or {}
    engine_config = (storage.get("wiredTiger") or {}).get("engineConfig") or {}
    found = {
        "host": "",
        "address": "127.0.0.1",
        "folder": folder,
        "db_path": None if program == "mongos" else os.path.join(folder, "data"),
        "log_path": os.path.join(folder, f"{program}.log"),
        "config_path": os.path.join(folder, f"{program}.conf"),
        "pid_path": os.path.join(folder, "pid"),
        "replica_set": None,
        "cache_mib": None,
        "options": {},
        "engine": storage.get("engine") or "wiredTiger",
        **{key: value for key, value in process.items() if value is not None},
        "role": role,
    }
    if "cacheSizeGB" in engine_config:  # it was given in mongod's own words
        found["cache_mib"] = None
    found["endpoint"] = f"{found['address']}:{found['port']}"
    return found


def on_host(processes: Sequence[Options], host: str, run_folder: str, deployment: str) -> list[dict[str, Any]]:
    """The processes of a host ("" is all), and those that name none, complete."""
    return [complete(p, run_folder, deployment) for p in processes if not host or p.get("host") in {None, "", host}]


def config_db(processes: Sequence[Options]) -> str:
    """`NAME/HOST:PORT,…` of the config servers among the processes, as mongos takes it; "" when there are none.

    They are the members of the set `config`, which is a shard too where the config servers are embedded.
    """
    servers = [complete(p, "", "") for p in processes if p.get("replica_set") == "config"]
    return f"{servers[0]['replica_set']}/{','.join(p['endpoint'] for p in servers)}" if servers else ""


def replica_sets(processes: Sequence[Options]) -> list[dict[str, Any]]:
    """A replica set of the processes (complete) that name the same one; the first becomes primary."""
    found: dict[str, dict[str, Any]] = {}
    for process in processes:
        name = process["replica_set"]
        if name:
            planned = found.setdefault(name, {"name": name, "role": process["role"], "members": []})
            planned["members"].append({"process": process["name"], "endpoint": process["endpoint"]})
    return list(found.values())


def connection(planned: Options) -> str:
    """The set as addShard takes it. The server refuses hidden members and arbiters there, and finds them itself."""
    shown = [
        m["endpoint"]
        for m in planned["members"]
        if m.get("initial", True) and not m.get("hidden") and not m.get("arbiter")
    ]
    return f"{planned['name']}/{','.join(shown)}"


def leaves(options: Options, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths and values of an option tree; an empty section has none."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*path, str(key)))
        else:
            yield (*path, str(key)), value


def merged(text: str, options: Options) -> str:
    """The configuration file `text` with these options laid over it.

    `text` is YAML as templates/ has it: an option a line, two spaces a level. Every value is replaced but WiredTiger's
    configString, which is joined: WiredTiger reads it from left to right, so the later still wins.
    """
    lines = text.splitlines()
    for path, value in leaves(options):
        _set_option(lines, path, value)
    return "\n".join(lines) + "\n"


def _set_option(lines: list[str], path: Sequence[str], value: Any) -> None:
    start, end, line, before = 0, len(lines), 0, ""
    for depth, key in enumerate(path):
        indent = "  " * depth
        line = next((n for n in range(start, end) if lines[n].startswith(f"{indent}{key}:")), -1)
        if line < 0:
            while end > start and not lines[end - 1].strip():
                end -= 1
            sections = [f"{'  ' * (depth + n)}{name}:" for n, name in enumerate(path[depth:])]
            sections[-1] += f" {json.dumps(value)}"
            lines[end:end] = ["", *sections] if depth == 0 else sections
            return
        start, last, inner = line + 1, end, f"{indent}  "
        end = next((n for n in range(start, last) if lines[n].strip() and not lines[n].startswith(inner)), last)
        before = lines[line].partition(":")[2].strip()
        is_section = any(text.strip() for text in lines[start:end])
        if bool(before) != (depth == len(path) - 1) or (before and is_section):
            raise HostError(f"{'.'.join(path)} cannot be merged into the template's line {lines[line].strip()!r}")
    if path[-1] == "configString":
        value = f"{before},{value}"
    lines[line] = f"{lines[line].partition(':')[0]}: {json.dumps(value)}"


def without_engine(options: Options) -> dict[str, Any]:
    """The options for MongoDB 2.6, which has one engine and no option that names it."""
    return {**options, "storage": {k: v for k, v in (options.get("storage") or {}).items() if k != "engine"}}


def merged_tokumx(text: str, options: Options) -> str:
    """TokuMX's flat file `text` with these options: a name a line, setParameter once for each parameter.

    `storage.tokumx` holds TokuMX's own flat names. HostError for what TokuMX has no name for.
    """
    storage = options.get("storage") or {}
    own = dict(storage.get("tokumx") or {})
    parameters = {**(options.get("setParameter") or {}), **(own.pop("setParameter", None) or {})}
    named = {k: v for k, v in options.items() if k not in {"storage", "setParameter"}}
    for path, value in leaves({**named, "storage": {k: v for k, v in storage.items() if k != "tokumx"}}):
        name = ".".join(path)
        if name in _FLAT:
            own.setdefault(_FLAT[name], value)
        elif name not in _NOT_IN_TOKUMX:
            raise HostError(f"TokuMX has no option for {name}; its own go below storage.tokumx")
    kept = [line for line in text.splitlines() if line.partition(" = ")[0] not in own]
    lines = [f"{name} = {_word(value)}" for name, value in own.items()]
    lines += [f"setParameter = {name}={_word(value)}" for name, value in parameters.items()]
    return "\n".join([*kept, *lines]) + "\n"


def tokumx_tree(text: str) -> dict[str, Any]:
    """The `name = value` lines as a mapping; setParameter, which is repeated, as a list."""
    found: dict[str, Any] = {}
    for name, value in re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE):
        found[name] = [*found.get(name, []), value] if name == "setParameter" else value
    return found


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
