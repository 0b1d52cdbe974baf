"""How many documents are where, and how much disk they take."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pymongo.errors import PyMongoError

from microshard.model.job import ProcessInfo
from microshard.workloads.base import Client, PhaseError, connect
from microshard.workloads.concurrently import together

CHECKPOINT_MS = 600_000  # a checkpoint writes the whole cache: minutes on a slow disk


def direct(process: ProcessInfo, **options: Any) -> Client:
    """A client of this process alone; options as in connect."""
    return connect(process.uri or f"mongodb://{process.endpoint}/", directConnection=True, **options)


def on_all(processes: Sequence[ProcessInfo], act: Callable[[ProcessInfo], None]) -> None:
    """Do something with every process at the same time; the first error is raised, with the process's name."""

    def named(process: ProcessInfo) -> None:
        try:
            act(process)
        except PyMongoError as error:
            raise PhaseError(type(error).__name__, f"{process.name} ({process.endpoint}): {error}") from error

    together([partial(named, process) for process in processes])


def checkpoint(processes: Sequence[ProcessInfo]) -> None:
    """Have every data-bearing mongod write a checkpoint, so that sizes on disk no longer move. Raises PhaseError."""

    def fsync(process: ProcessInfo) -> None:
        with direct(process) as client:
            client.admin.command({"fsync": 1, "maxTimeMS": CHECKPOINT_MS})

    on_all([p for p in processes if p.bears_data], fsync)


def bytes_on_disk(folder: Path) -> int:
    """Allocated bytes below a folder (st_blocks, so holes do not count); files that vanish meanwhile are skipped."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(Path(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def db_path_bytes(processes: Sequence[ProcessInfo]) -> int | None:
    """Bytes of all dbPaths; None when one is not on this machine."""
    paths = [Path(p.db_path) for p in processes if p.db_path is not None]
    if not all(path.is_dir() for path in paths):
        return None
    return sum(bytes_on_disk(path) for path in paths)


def shard_name(stats: dict[str, Any], processes: Sequence[ProcessInfo]) -> str:
    """The shard an answer of $collStats comes from; without shards, the process that listens on its port."""
    if "shard" in stats:
        return str(stats["shard"])
    port = str(stats["host"]).rpartition(":")[2]
    return next((p.name for p in processes if p.endpoint.rpartition(":")[2] == port), str(stats["host"]))


def measure(client: Client, database: str, collection: str, processes: Sequence[ProcessInfo]) -> dict[str, Any]:
    """The `storage` of a phase's result. Call checkpoint first."""
    by_shard: dict[str, dict[str, int]] = {}
    index_bytes = 0
    for stats in client[database][collection].aggregate([{"$collStats": {"storageStats": {}}}]):
        storage = stats["storageStats"]
        by_shard[shard_name(stats, processes)] = {
            "documents": int(storage.get("count", 0)),
            "data_bytes": int(storage["storageSize"]),
        }
        index_bytes += int(storage["totalIndexSize"])
    return {
        "data_bytes": sum(shard["data_bytes"] for shard in by_shard.values()),
        "index_bytes": index_bytes,
        "db_path_bytes": db_path_bytes(processes),
        "by_shard": dict(sorted(by_shard.items())),
    }
