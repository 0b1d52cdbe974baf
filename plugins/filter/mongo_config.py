"""Filters that the templates of MongoDB's configuration files use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

# Below this mongod refuses storage.wiredTiger.engineConfig.cacheSizeGB; the storage engine's own text takes less.
_SMALLEST_CACHE_OPTION_GB = 0.25
# Options whose two values are both wanted: WiredTiger reads its text from left to right, so the later still wins.
_JOINED = frozenset({"configString"})


def mongo_merge(own: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` laid on `own`, section by section; WiredTiger's configString is joined, every other value replaced."""
    if not isinstance(own, Mapping) or not isinstance(options, Mapping):
        raise AnsibleFilterError("mongo_merge: options of MongoDB's configuration file are nested mappings")
    result = dict(own)
    for key, value in options.items():
        mine = result.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            result[key] = mongo_merge(mine, value)
        elif mine and key in _JOINED:
            result[key] = f"{mine},{value}"
        else:
            result[key] = value
    return result


# Before 3.4 cacheSizeGB was a whole number (release notes of 3.4).
_FRACTIONS_SINCE = (3, 4)


def wiredtiger_cache(cache_mib: float | None, options: Mapping[str, Any], version: str = "") -> dict[str, Any]:
    """The `storage.wiredTiger` section that gives the engine a cache of `cache_mib` MiB.

    Empty where there is nothing to say: no size planned, another engine, or a cacheSizeGB in the passthrough.
    """
    storage = options.get("storage") or {}
    engine_config = (storage.get("wiredTiger") or {}).get("engineConfig") or {}
    if cache_mib is None or storage.get("engine", "wiredTiger") != "wiredTiger" or "cacheSizeGB" in engine_config:
        return {}
    gigabytes = float(cache_mib) / 1024
    old = bool(version) and tuple(int(part) for part in version.split(".")[:2]) < _FRACTIONS_SINCE
    if old and gigabytes.is_integer():
        return {"engineConfig": {"cacheSizeGB": int(gigabytes)}}
    if old or gigabytes < _SMALLEST_CACHE_OPTION_GB:
        # WiredTiger takes whole numbers with a unit.
        whole = float(cache_mib).is_integer()
        size = f"{int(cache_mib)}M" if whole else f"{round(float(cache_mib) * 1024)}K"
        return {"engineConfig": {"configString": f"cache_size={size}"}}
    return {"engineConfig": {"cacheSizeGB": round(gigabytes, 6)}}


# TokuMX's names (MongoDB 2.4's) of what the plan and the experiment say in the words of later configuration files.
_FLAT = {
    "net.port": "port",
    "net.bindIp": "bind_ip",
    "net.maxIncomingConnections": "maxConns",
    "operationProfiling.slowOpThresholdMs": "slowms",
    "processManagement.pidFilePath": "pidfilepath",
    "replication.replSetName": "replSet",
    "security.keyFile": "keyFile",
    "storage.dbPath": "dbpath",
    "systemLog.logAppend": "logappend",
    "systemLog.path": "logpath",
    "systemLog.quiet": "quiet",
}
# Said in the words of later files and nothing to say here: they are as TokuMX is anyway, or it has no such thing.
_NOT_IN_TOKUMX = frozenset(
    {"storage.engine", "replication.oplogSizeMB", "systemLog.destination", "storage.syncPeriodSecs"}
)


def tokumx_options(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Options as TokuMX's file has them: names and values, one a line, setParameter once for each parameter.

    `storage.tokumx` holds TokuMX's own flat names. Raises AnsibleFilterError for what TokuMX has no name for.
    """
    lines: list[tuple[str, str]] = []
    own = (options.get("storage") or {}).get("tokumx") or {}
    rest = {k: v for k, v in options.items() if k not in {"storage", "setParameter"}}
    rest["storage"] = {k: v for k, v in (options.get("storage") or {}).items() if k != "tokumx"}
    for name, value in _leaves(rest, ""):
        if name == "net.unixDomainSocket.enabled":
            lines += [] if value else [("nounixsocket", "true")]
        elif name in _FLAT:
            lines.append((_FLAT[name], _word(value)))
        elif name not in _NOT_IN_TOKUMX:
            raise AnsibleFilterError(f"TokuMX has no option for {name}; its own go below storage.tokumx")
    lines += [(name, _word(value)) for name, value in own.items() if name != "setParameter"]
    parameters = {**(options.get("setParameter") or {}), **(own.get("setParameter") or {})}
    return lines + [("setParameter", f"{name}={_word(value)}") for name, value in parameters.items()]


def _leaves(options: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in options.items():
        found += _leaves(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", value)]
    return found


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Filters by name."""
        return {
            "mongo_merge": mongo_merge,
            "wiredtiger_cache": wiredtiger_cache,
            "tokumx_options": tokumx_options,
        }
