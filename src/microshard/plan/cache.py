"""How much WiredTiger cache each process gets."""

from __future__ import annotations

from microshard.model.plan import CacheBudget
from microshard.model.topology import Cache

# mongod's own option cacheSizeGB refuses less; WiredTiger's configuration string does not.
OPTION_MINIMUM_MIB = 256.0


def budget(
    cache: Cache, processes: int, ram_mib: float | None, own_mib: float = 0.0, host: str = "local"
) -> CacheBudget:
    """Share out the cache of one host among its data-bearing processes; `own_mib` is what others have beside it.

    Amounts are MiB. The total never exceeds what the policy grants the host: shares are rounded down
    to 1/1024 MiB. Raises ValueError when a fraction of an unknown RAM is asked for.
    """
    if cache.policy == "per_process_mb":
        each = cache.value
    elif cache.policy == "host_total_mb":
        each = cache.value / max(processes, 1)
    else:
        if ram_mib is None:
            raise ValueError(f"topology.storage.cache: a fraction of RAM needs to know the RAM of {host}")
        each = cache.value * ram_mib / max(processes, 1)
    each = int(each * 1024) / 1024  # rounded down to whole KiB, the unit of the configuration string
    return CacheBudget(
        policy=cache.policy,
        processes=processes,
        per_process_mib=each,
        total_mib=each * processes + own_mib,
        ram_mib=ram_mib,
        through_config_string=each < OPTION_MINIMUM_MIB,
        own_mib=own_mib,
        host=host,
    )
