"""Rough figures for time, memory and disk, good enough to refuse what cannot work.

All constants were measured on 2 cores of a 2020s server with mongod 6.0.5; they are estimates and are
shown as such. While a run goes on, its own figures replace them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from microshard.definition.phase import Expected
from microshard.definition.workload import WorkloadStep
from microshard.plan.model import Process

MIB = 1024 * 1024
INDEX_BYTES_PER_DOCUMENT = 14  # _id index with prefix compression
COMPRESSION = {"none": 1.0, "snappy": 0.55, "zlib": 0.33, "zstd": 0.35}  # of data of this kind
PROCESS_DISK_BYTES = {"mongod": 302 * MIB, "mongos": 302 * MIB}  # three preallocated journal files of 100 MiB
PROCESS_MEMORY_MIB = {"mongod": 140, "mongos": 200}  # an embedded mongos has a router mongod of its own
FLOOR_SECONDS = 2.0  # of a measurement: connecting, telemetry, writing the result


@dataclass(frozen=True, slots=True)
class Needs:
    """What a point needs."""

    disk_bytes: int
    memory_mib: int
    deploy_seconds: float
    load_seconds: float
    measure_seconds: float


def needs(
    processes: Sequence[Process],
    workload: Sequence[WorkloadStep],
    *,
    compressor: str,
    oplog_mb: int,
    copies: int,
    cores: int,
) -> Needs:
    """Estimate a point. `copies` is how many members hold each document."""
    documents = sum(step.phase.adds() for step in workload)
    raw = sum(step.phase.raw_bytes() for step in workload)
    mongods = [p for p in processes if p.role != "mongos"]
    data_bearing = [p for p in mongods if p.role != "config"]
    oplog = 0
    if any(p.replica_set for p in data_bearing):
        # The oplog holds each insert once more, compressed by snappy, up to its size.
        oplog = min(int(raw * COMPRESSION["snappy"] * copies), oplog_mb * MIB * len(data_bearing))
    disk = (
        int(raw * COMPRESSION[compressor] * copies)
        + documents * INDEX_BYTES_PER_DOCUMENT * copies
        + oplog
        + PROCESS_DISK_BYTES["mongod"] * len(mongods)
        + PROCESS_DISK_BYTES["mongos"] * (len(processes) - len(mongods))
    )
    cached = sum(min(p.cache_mib or 0.0, raw * copies / MIB / len(data_bearing)) for p in data_bearing)
    memory = (
        PROCESS_MEMORY_MIB["mongod"] * len(mongods)
        + PROCESS_MEMORY_MIB["mongos"] * (len(processes) - len(mongods))
        + int(cached)
    )
    workers = min(max(len(data_bearing) // copies, 1), cores)
    loaded = sum(step.phase.adds() for step in workload if step.kind == "load")
    expected = Expected(documents=loaded, workers=workers, cores=cores, copies=copies)
    seconds = {True: 0.0, False: FLOOR_SECONDS}  # loading or not
    for step in workload:
        seconds[step.kind == "load"] += step.phase.seconds(expected)
    return Needs(
        disk_bytes=disk,
        memory_mib=memory,
        deploy_seconds=2.5 + 0.8 * len(processes) / cores,
        load_seconds=seconds[True],
        measure_seconds=seconds[False],
    )
