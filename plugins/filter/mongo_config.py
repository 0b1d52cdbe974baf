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


def wiredtiger_cache(cache_mib: float | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The `storage.wiredTiger` section that gives the engine a cache of `cache_mib` MiB.

    Empty where there is nothing to say: no size planned, another engine, or a cacheSizeGB in the passthrough.
    """
    storage = options.get("storage") or {}
    engine_config = (storage.get("wiredTiger") or {}).get("engineConfig") or {}
    if cache_mib is None or storage.get("engine", "wiredTiger") != "wiredTiger" or "cacheSizeGB" in engine_config:
        return {}
    gigabytes = float(cache_mib) / 1024
    if gigabytes < _SMALLEST_CACHE_OPTION_GB:
        # WiredTiger takes whole numbers with a unit.
        whole = float(cache_mib).is_integer()
        size = f"{int(cache_mib)}M" if whole else f"{round(float(cache_mib) * 1024)}K"
        return {"engineConfig": {"configString": f"cache_size={size}"}}
    return {"engineConfig": {"cacheSizeGB": round(gigabytes, 6)}}


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Filters by name."""
        return {"mongo_merge": mongo_merge, "wiredtiger_cache": wiredtiger_cache}
