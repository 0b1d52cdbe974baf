"""Environments of mlaunch (mtools) and experiments: each can be turned into the other, as far as mlaunch knows.

mlaunch keeps what it was called with in `.mlaunch_startup`, JSON of protocol version 2: `parsed_args`, its own options,
and `unknown_args`, those it passes on to mongod and mongos.
"""

import io
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from microshard.errors import EXIT_DEFINITION, MicroshardError
from microshard.experiment.document import put_value
from microshard.hostlib.mongo_config import leaves
from microshard.model.plan import Plan, Point, Process

# Key of mongod's configuration file → option of its command line.
_OPTIONS = {
    "net.compression.compressors": "networkMessageCompressors",
    "net.maxIncomingConnections": "maxConns",
    "operationProfiling.slowOpSampleRate": "slowOpSampleRate",
    "operationProfiling.slowOpThresholdMs": "slowms",
    "replication.enableMajorityReadConcern": "enableMajorityReadConcern",
    "replication.oplogSizeMB": "oplogSize",
    "storage.directoryPerDB": "directoryperdb",
    "storage.engine": "storageEngine",
    "storage.journal.commitIntervalMs": "journalCommitInterval",
    "storage.syncPeriodSecs": "syncdelay",
    "storage.wiredTiger.collectionConfig.blockCompressor": "wiredTigerCollectionBlockCompressor",
    "storage.wiredTiger.engineConfig.cacheSizeGB": "wiredTigerCacheSizeGB",
    "storage.wiredTiger.engineConfig.configString": "wiredTigerEngineConfigString",
    "storage.wiredTiger.engineConfig.directoryForIndexes": "wiredTigerDirectoryForIndexes",
    "storage.wiredTiger.engineConfig.journalCompressor": "wiredTigerJournalCompressor",
    "storage.wiredTiger.indexConfig.prefixCompression": "wiredTigerIndexPrefixCompression",
}
# Option → key of an experiment's topology, where it has one of its own.
_OWN_KEYS = {
    "oplogSize": "storage.oplog_size_mb",
    "storageEngine": "storage.engine",
    "wiredTigerCollectionBlockCompressor": "storage.block_compressor",
    "wiredTigerIndexPrefixCompression": "storage.index_prefix_compression",
}
# What mlaunch or the person adds for processes on one machine; the planner decides it.
_DECIDED = frozenset({"bind_ip", "bind_ip_all", "nounixsocket", "logappend", "fork", "ipv6"})
_FLAGS = frozenset({"directoryperdb"})
_CACHE_GB = 1.0  # mlaunch's default for each mongod
_SMALLEST_OPTION_MIB = 256  # of --wiredTigerCacheSizeGB; the storage engine itself takes less


class MlaunchError(MicroshardError):
    """What mlaunch and an experiment cannot both say."""

    exit_code = EXIT_DEFINITION


def import_mlaunch(folder: Path) -> dict[str, Any]:
    """The `topology` of an experiment from a folder of mlaunch, as YAML has it. Raises MlaunchError, OSError."""
    path = folder / ".mlaunch_startup"
    try:
        startup = json.loads(path.read_text(encoding="utf-8"))
        given, passed = startup["parsed_args"], startup["unknown_args"]
    except FileNotFoundError:
        raise MlaunchError(f"{path}: no such file; name the --dir of `mlaunch init`") from None
    except (ValueError, KeyError, TypeError):
        raise MlaunchError(f"{path} is not what mlaunch 1.5 or newer writes (protocol version 2)") from None
    topology = _processes(given)
    if given["binarypath"]:
        topology["mongodb"] = {"source": "path", "path": str(Path(given["binarypath"]).absolute())}
    topology["network"] = {"base_port": given["port"]}
    encrypted = bool(given.get("tlsMode") or given.get("sslMode"))
    if given["auth"] or encrypted:
        topology["security"] = {"authorization": given["auth"], "tls": encrypted}
    cache = _CACHE_GB * 1024
    for key, value in _translated(passed, path):
        if key.endswith("engineConfig.cacheSizeGB"):
            cache = float(value) * 1024
        else:
            topology = put_value(topology, _path(key), value)
    if topology.get("storage", {}).get("engine", "wiredTiger") == "wiredTiger":
        topology = put_value(topology, ("storage", "cache"), {"policy": "per_process_mb", "value": cache})
    return topology


def topology_text(folder: Path) -> str:
    """The same as YAML, as an experiment file has it."""
    text = io.StringIO()
    YAML().dump({"topology": import_mlaunch(folder)}, text)
    return text.getvalue()


def _processes(given: Mapping[str, Any]) -> dict[str, Any]:
    """What mlaunch was to start, as a topology."""
    members: Any = given["nodes"] if given["replicaset"] else 1
    if given["arbiter"] and given["replicaset"]:
        members = [{} for _ in range(members)] + [{"arbiter": True}]
    if given["sharded"]:
        names = given["sharded"]
        count = int(names[0]) if len(names) == 1 and names[0].isdigit() else len(names)
        return {
            "kind": "sharded",
            "shards": {"count": count, "members": members},
            "config_servers": {"members": int(given["config"])},
            "mongos": {"count": int(given["mongos"])},
        }
    if given["replicaset"]:
        return {"kind": "replica_set", "replica_set": {"members": members}}
    return {"kind": "standalone"}


def _path(key: str) -> tuple[str, ...]:
    head, found, parameter = key.partition("setParameter.")
    return (*head.split(".")[:-1], "setParameter", parameter) if found else tuple(key.split("."))


def _translated(words: Sequence[str], path: Path) -> Iterator[tuple[str, Any]]:
    """Options of a command line as keys of a topology and their values."""
    keys = {option: key for key, option in _OPTIONS.items()}
    rest = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    while rest:
        name = rest.pop(0).lstrip("-")
        text = rest.pop(0) if rest and not rest[0].startswith("--") else ""
        if name in _DECIDED:
            continue
        if name == "setParameter":
            parameter, _, text = text.partition("=")
            yield f"mongod.setParameter.{parameter}", _value(text)
        elif name == "networkMessageCompressors":
            yield "network.compressors", [] if text == "disabled" else text.split(",")
        elif name in keys:
            yield _OWN_KEYS.get(name, f"mongod.{keys[name]}"), True if name in _FLAGS else _value(text)
        else:
            raise MlaunchError(f"{path}: --{name} has no counterpart here; put it into topology.mongod by hand")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def mlaunch_commands(plan: Plan, binaries: Path) -> Iterator[tuple[str, list[str]]]:
    """For each point: the mlaunch command of its processes, and what of the point mlaunch leaves out.

    `binaries` is the folder of mongod and mongos where the experiment names none. Raises MlaunchError for a point that
    mlaunch cannot start.
    """
    if plan.backend != "local":
        raise MlaunchError(f"mlaunch starts processes on this machine, not on {plan.backend}: leave out --on")
    for point in plan.points:
        yield _command(plan.name, point, binaries), list(_left_out(point))


def _command(name: str, point: Point, binaries: Path) -> str:
    words = ["mlaunch", "init"]
    for group in point.replica_sets:
        if any(not m.initial or m.hidden or m.delay_seconds or m.votes != 1 for m in group.members):
            raise MlaunchError(f"{point.id}: {group.name} has members that mlaunch cannot make: hidden, delayed, later")
    sets = [group for group in point.replica_sets if group.role != "config"]
    if point.topology == "sharded" and not _count(point, "config"):
        raise MlaunchError(f"{point.id}: mlaunch cannot make a config shard (config_servers.embedded)")
    if point.topology == "sharded":
        words += ["--sharded", str(point.shards)]
        words += ["--config", str(_count(point, "config")), "--mongos", str(_count(point, "mongos"))]
    if sets:
        shapes = {tuple(m.arbiter for m in group.members) for group in sets}
        shape = shapes.pop()
        if shapes or shape not in {(False,) * len(shape), (*[False] * (len(shape) - 1), True)}:
            raise MlaunchError(f"{point.id}: mlaunch makes all sets alike, with one arbiter at most")
        words += ["--replicaset", "--nodes", str(shape.count(False)), *(["--arbiter"] if any(shape) else [])]
        words += ["--name", sets[0].name] if point.topology == "replica_set" else []
    else:
        words += [] if point.topology == "sharded" else ["--single"]
    words += ["--port", str(min(process.port for process in point.processes)), "--dir", f"{name}-{point.id}"]
    where = point.mongodb["path"]
    folder = binaries if where is None else Path(where) if Path(where).is_dir() else Path(where).parent
    words += ["--binarypath", str(folder), *(["--auth"] if point.security["authorization"] else [])]
    bearers = [p for p in point.processes if p.role not in {"config", "mongos"} and not _arbiter(point, p)]
    options = [_mongod_options(process) for process in bearers]
    if any(other != options[0] for other in options):
        raise MlaunchError(f"{point.id}: mlaunch gives all mongods the same options, and here they differ")
    return shlex.join(words + options[0])


def _count(point: Point, role: str) -> int:
    return sum(process.role == role for process in point.processes)


def _arbiter(point: Point, process: Process) -> bool:
    return any(m.arbiter and m.process == process.name for group in point.replica_sets for m in group.members)


def _mongod_options(process: Process) -> list[str]:
    """The options of a mongod on its command line: what the experiment says, and the cache of the plan."""
    words: list[str] = []
    for path, value in leaves(process.options):
        key = ".".join(path)
        option = _OPTIONS.get(key)
        if key.startswith("setParameter."):
            words += ["--setParameter", f"{key.removeprefix('setParameter.')}={_word(value)}"]
        elif option is None:
            raise MlaunchError(f"{process.name}: {key} is no option of mongod's command line that is known here")
        elif option in _FLAGS:
            words += [f"--{option}"] if value else []
        else:
            words += [f"--{option}", _word(value)]
    if process.cache_mib is None or "--wiredTigerCacheSizeGB" in words:
        return words
    if process.cache_mib >= _SMALLEST_OPTION_MIB:
        return [*words, "--wiredTigerCacheSizeGB", f"{process.cache_mib / 1024:g}"]
    return [*words, "--wiredTigerEngineConfigString", f"cache_size={round(process.cache_mib * 1024)}K"]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _left_out(point: Point) -> Iterator[str]:
    if _count(point, "config"):
        yield "the config servers get the cache of the shards, and mlaunch's default if that is none"
    if point.collections:
        yield "sharded collections, chunks and balancer settings: " + ", ".join(c.namespace for c in point.collections)
    if point.zones:
        yield "zones: " + ", ".join(zone.name for zone in point.zones)
    if point.volumes:
        yield "emulated volumes"
    if point.security["tls"]:
        yield "TLS and its certificates"
