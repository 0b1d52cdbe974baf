"""What the MongoDB manual recommends for Linux, by version, each value with its page."""

from __future__ import annotations

from typing import Any

_NOTES = "Production Notes for Self-Managed Deployments"
_CHECKLIST = "Operations Checklist for Self-Managed Deployments"
_LIMITS = "UNIX ulimit Settings for Self-Managed Deployments"
_TCMALLOC = "TCMalloc Performance Optimization for a Self-Managed Deployment"
_NO_HUGE_PAGES = "Disable Transparent Hugepages (THP)"
_KEEPALIVE = "FAQ: Diagnostics, TCP keepalive"

# Since 8.0 mongod has a TCMalloc that gains from huge pages; before, it lost by them.
_HUGE_PAGES_SINCE = (8, 0)


def recommended(version: str) -> dict[str, tuple[Any, str]]:
    """Setting → (value, page of the manual) for a MongoDB version such as 6.0.5.

    Dirty ratios, somaxconn, governor and SMT have no figure in the manual, so they stay as they are.
    """
    found: dict[str, tuple[Any, str]] = {
        "swappiness": (1, f"{_NOTES}: swappiness 0 or 1"),
        "zone_reclaim_mode": (0, f"{_NOTES}: MongoDB and NUMA hardware"),
        "max_map_count": (128000, f"{_CHECKLIST}: starting point for large systems"),
        "tcp_keepalive_s": (120, _KEEPALIVE),
        "open_files": (64000, _LIMITS),
        "time_sync": (True, f"{_NOTES}: clock synchronization"),
    }
    if tuple(int(part) for part in version.split(".")[:2]) >= _HUGE_PAGES_SINCE:
        found["transparent_huge_pages"] = ("always", _TCMALLOC)
        found["transparent_huge_pages_defrag"] = ("defer+madvise", _TCMALLOC)
        found["khugepaged_max_ptes_none"] = (0, _TCMALLOC)
        found["overcommit_memory"] = (1, _TCMALLOC)
    else:
        found["transparent_huge_pages"] = ("never", _NO_HUGE_PAGES)
        found["transparent_huge_pages_defrag"] = ("never", _NO_HUGE_PAGES)
    return found
