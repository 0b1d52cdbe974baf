"""`topology.mongod` and a member's `mongod`: mongod's own options, except those the tool decides itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from microshard.experiment.source import KeyPath

_PLAN = "the plan gives every process its own"
_OURS = {
    "storage.dbPath": _PLAN,
    "storage.engine": "use topology.storage.engine",
    "storage.wiredTiger.engineConfig.cacheSizeGB": "use topology.storage.cache",
    "storage.wiredTiger.engineConfig.cacheSizePct": "use topology.storage.cache",
    "storage.wiredTiger.collectionConfig.blockCompressor": "use topology.storage.block_compressor",
    "storage.wiredTiger.indexConfig.prefixCompression": "use topology.storage.index_prefix_compression",
    "net.port": f"{_PLAN}; its first port is topology.network.base_port",
    "net.bindIp": _PLAN,
    "net.bindIpAll": _PLAN,
    "net.compression.compressors": "use topology.network.compressors",
    "systemLog.destination": "logs are files, collected at the end",
    "systemLog.path": _PLAN,
    "processManagement.fork": "processes are started, watched and stopped by the tool",
    "processManagement.pidFilePath": _PLAN,
    "replication.replSet": "replica sets are named by the plan",
    "replication.replSetName": "replica sets are named by the plan",
    "replication.oplogSizeMB": "use topology.storage.oplog_size_mb",
    "sharding.clusterRole": "the role follows from topology.kind",
    "sharding.configDB": "the role follows from topology.kind",
    "security.keyFile": "made anew for every run",
}
# The first level of mongod's configuration file, from its manual, 2.6 to 8.0.
_SECTIONS = (
    "auditLog",
    "cloud",
    "net",
    "operationProfiling",
    "processManagement",
    "replication",
    "security",
    "setParameter",
    "sharding",
    "snmp",
    "storage",
    "systemLog",
)
# A cache size also hides in the engine's own strings.
_STRINGS = {"storage.wiredTiger.engineConfig.configString", "setParameter.wiredTigerEngineRuntimeConfig"}

Found = tuple[KeyPath, str, Literal["error", "warning"]]


def passthrough(options: dict[str, Any]) -> Iterator[Found]:
    """What is wrong with the options: path below them, sentence, severity."""
    for section, value in options.items():
        known = section.split(".")[0] in _SECTIONS
        if not known and not section.startswith("__"):
            yield (section,), f"no section of mongod's configuration file ({', '.join(_SECTIONS)})", "warning"
        elif known and "." not in section and not isinstance(value, dict):
            yield (section,), f"{section} is a section of mongod's configuration file: it needs a mapping", "error"
    yield from _options(options, (), "")


def _options(options: dict[str, Any], path: KeyPath, prefix: str) -> Iterator[Found]:
    for key, value in options.items():
        # mongod reads `storage.dbPath: …` like `storage: {dbPath: …}`.
        name, here = f"{prefix}{key}", (*path, key)
        if key.startswith("__"):
            yield here, f"{key} would let mongod run or fetch something while it reads its options", "error"
        elif name in _OURS:
            yield here, f"mongod's {name} cannot be set here: {_OURS[name]}", "error"
        elif name in _STRINGS and isinstance(value, str) and "cache_size" in value:
            yield here, "the cache size cannot be set here: use topology.storage.cache", "error"
        elif isinstance(value, dict):
            yield from _options(value, here, f"{name}.")
