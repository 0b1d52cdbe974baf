"""Which options of mongod an experiment may set: not those that are decided here, and only those its version knows.

`topology.mongod` and a member's `mongod` are merged into mongod's configuration file. The lists of the options of old
versions, and where they are from, are in options.json.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from microshard.experiment.document import KeyPath, dotted
from microshard.hostlib.mongo_config import leaves
from microshard.model.phase import KeyFinding

Release = tuple[int, int]  # major and minor version of MongoDB
_TOKUMX = "storage.tokumx."
# Sections of one storage engine; they are written only for a mongod with that engine.
ENGINE_SECTIONS = ("wiredTiger", "mmapv1", "rocksdb", "tokumx", "inMemory")

_PER_PROCESS = "the plan chooses one for every process"
_DECIDED = {
    "storage.dbPath": _PER_PROCESS,
    "storage.engine": "use topology.storage.engine",
    "storage.wiredTiger.engineConfig.cacheSizeGB": "use topology.storage.cache",
    "storage.wiredTiger.engineConfig.cacheSizePct": "use topology.storage.cache",
    "storage.wiredTiger.collectionConfig.blockCompressor": "use topology.storage.block_compressor",
    "storage.wiredTiger.indexConfig.prefixCompression": "use topology.storage.index_prefix_compression",
    "net.port": f"{_PER_PROCESS}; its first port is topology.network.base_port",
    "net.bindIp": _PER_PROCESS,
    "net.bindIpAll": _PER_PROCESS,
    "net.compression.compressors": "use topology.network.compressors",
    "systemLog.destination": "logs are written to files, which are collected at the end",
    "systemLog.path": _PER_PROCESS,
    "processManagement.fork": "microshard starts, watches and stops the processes",
    "processManagement.pidFilePath": _PER_PROCESS,
    "replication.replSet": "replica sets are named by the plan",
    "replication.replSetName": "replica sets are named by the plan",
    "replication.oplogSizeMB": "use topology.storage.oplog_size_mb",
    "sharding.clusterRole": "the role follows from topology.kind",
    "sharding.configDB": "the role follows from topology.kind",
    "security.keyFile": "a new one is created for every run",
}
# The first level of mongod's configuration file, from its manual, 2.6 to 8.0.
_SECTIONS = (
    *("auditLog", "cloud", "net", "operationProfiling", "processManagement", "replication", "security"),
    *("setParameter", "sharding", "snmp", "storage", "systemLog"),
)
# A cache size also hides in the engine's own strings.
_ENGINE_STRINGS = {"storage.wiredTiger.engineConfig.configString", "setParameter.wiredTigerEngineRuntimeConfig"}


def refused_options(options: Mapping[str, Any]) -> Iterator[KeyFinding]:
    """Options that are decided by the plan, or that are no options of mongod."""
    for section, value in options.items():
        known = section.split(".")[0] in _SECTIONS
        if not known and not section.startswith("__"):
            yield (section,), f"no section of mongod's configuration file ({', '.join(_SECTIONS)})", "warning"
        elif known and "." not in section and not isinstance(value, dict):
            yield (section,), f"{section} is a section of mongod's configuration file: it needs a mapping", "error"
    yield from _refused(options, (), "")


def _refused(options: Mapping[str, Any], path: KeyPath, prefix: str) -> Iterator[KeyFinding]:
    for key, value in options.items():
        # mongod reads `storage.dbPath: …` like `storage: {dbPath: …}`.
        name, here = f"{prefix}{key}", (*path, key)
        if key.startswith("__"):
            yield here, f"{key} would let mongod run or fetch something while it reads its options", "error"
        elif name in _DECIDED:
            yield here, f"mongod's {name} cannot be set here: {_DECIDED[name]}", "error"
        elif name in _ENGINE_STRINGS and isinstance(value, str) and "cache_size" in value:
            yield here, "the cache size cannot be set here: use topology.storage.cache", "error"
        elif isinstance(value, dict):
            yield from _refused(value, here, f"{name}.")


@functools.cache
def _lists() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("options.json").read_text(encoding="utf-8"))
    return found


def parse_release(version: str) -> Release:
    """Major and minor of a version."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def release_text(release: Release) -> str:
    """A release as people write it: 6.0."""
    return f"{release[0]}.{release[1]}"


@functools.cache
def _first_releases() -> dict[str, Release]:
    """Every listed option of mongod's configuration file with the first release that has it."""
    return {
        option: parse_release(version)
        for server in ("mongod", "rocksdb", "later")
        for version, options in _lists()[server]["versions"].items()
        for option in options
    }


def _first_release(option: str) -> Release | None:
    """The first release with an option, by its dotted name; None for options that are not listed."""
    listed, parts = _first_releases(), option.split(".")
    # setParameter and systemLog.component have names of any kind below them.
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((listed[name] for name in names if name in listed), None)


def _gone_in(option: str) -> Release | None:
    """The first release without an option, by its dotted name; None for one that is still there, or not listed."""
    gone = _lists()["gone"]["versions"]
    found = (v for v, names in gone.items() for name in names if f"{option}.".startswith(f"{name}."))
    return next(map(parse_release, found), None)


def listed_options(engine: str, release: Release) -> frozenset[str]:
    """Options of the configuration file of this engine and release, up to 3.4; of TokuMX its own flat names."""
    if engine == "tokumx":
        return frozenset(_lists()["tokumx"]["versions"]["2.4"])
    return frozenset(
        name
        for name, first in _first_releases().items()
        if first <= release and (engine == "rocksdb" or not name.startswith("storage.rocksdb."))
    )


def tokumx_parameters() -> frozenset[str]:
    """What TokuMX accepts as setParameter, besides MongoDB 2.4's own."""
    return frozenset(_lists()["tokumx"]["parameters"])


def unknown_options(options: Mapping[str, Any], engine: str, release: Release | None) -> Iterator[KeyFinding]:
    """Options this release does not have, of those that would be written into the configuration file."""
    for path, _ in leaves(options):
        name = dotted(path)
        section = name.split(".")[1] if name.startswith("storage.") else ""
        if section in ENGINE_SECTIONS and section != engine:
            continue
        if name.startswith(_TOKUMX):
            flat, parameters = str(path[2]), tokumx_parameters()
            if flat == "setParameter" and len(path) > 3 and path[3] not in parameters:
                yield path, f"TokuMX 2.0 has no parameter {path[3]} (it has {', '.join(sorted(parameters))})", "error"
            elif flat not in listed_options("tokumx", (2, 4)):
                yield path, f"TokuMX 2.0 has no option {flat}", "error"
            continue
        first = _first_release(name)
        if engine == "tokumx" or release is None:
            continue
        here, gone = f"topology.mongodb.version is {release_text(release)}", _gone_in(name)
        if first is not None and release < first:
            yield path, f"{name} came with MongoDB {release_text(first)}; {here}", "error"
        elif gone is not None and release >= gone:
            yield path, f"{name} is gone since MongoDB {release_text(gone)}; {here}", "error"
