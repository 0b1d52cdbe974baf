"""What the data-bearing servers say of themselves, summed over all of a point: memory and storage traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from microshard.model.job import ProcessInfo
from microshard.workloads.base import Metric
from microshard.workloads.storage import direct, on_all

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Counters:
    """serverStatus: resident memory now, and since their start what WiredTiger read and wrote.

    `reads` and `read_bytes` are the block manager's (blocks of collection and index files, after WiredTiger's cache:
    the operating system's page cache may still serve them). `written_bytes` are the block manager's and the journal's
    together. None where a storage engine does not count them.
    """

    resident_bytes: int
    reads: int | None
    read_bytes: int | None
    written_bytes: int | None


def counters(processes: Sequence[ProcessInfo]) -> Counters:
    """The sum over the data-bearing processes. Raises PhaseError naming one that does not answer."""
    found: dict[str, Mapping[str, Any]] = {}

    def ask(process: ProcessInfo) -> None:
        with direct(process) as client:
            found[process.name] = client.admin.command("serverStatus")  # without `metrics` there is no `mem`

    on_all([p for p in processes if p.bears_data], ask)
    return add([found[name] for name in sorted(found)])


def add(statuses: Sequence[Mapping[str, Any]]) -> Counters:
    """Several answers of serverStatus as one."""
    resident = sum(int(s.get("mem", {}).get("resident", 0)) * MIB for s in statuses)
    blocks = [s.get("wiredTiger", {}).get("block-manager") for s in statuses]
    if not statuses or not all(blocks):
        return Counters(resident, None, None, None)
    journals = [s["wiredTiger"].get("log", {}) for s in statuses]
    return Counters(
        resident,
        sum(int(b["blocks read"]) for b in blocks),
        sum(int(b["bytes read"]) for b in blocks),
        sum(int(b["bytes written"]) for b in blocks) + sum(int(j.get("log bytes written", 0)) for j in journals),
    )


def per_operation(before: Counters, after: Counters, operations: int) -> list[Metric]:
    """Figures (docs/contracts.md) of the storage traffic between two readings; none where it is not counted."""
    pairs = (
        ("storage reads per insert", "reads", before.reads, after.reads),
        ("storage read per insert", "bytes", before.read_bytes, after.read_bytes),
        ("storage written per insert", "bytes", before.written_bytes, after.written_bytes),
    )
    return [
        Metric(name, unit, (new - old) / operations, "lower")
        for name, unit, old, new in pairs
        if old is not None and new is not None and operations
    ]
