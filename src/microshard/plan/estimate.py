"""Estimates of time, memory and disk, good enough to refuse what cannot work.

All constants were measured on 2 cores of a 2020s server with mongod 6.0.5. During a run measured times replace them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from microshard.model.phase import EstimateBasis
from microshard.model.plan import HostNeeds
from microshard.model.topology import Storage
from microshard.model.workload import WorkloadStep
from microshard.plan.hosts import HostsByRole
from microshard.plan.topology import PlacedProcess

MIB = 1024 * 1024
INDEX_BYTES_PER_DOCUMENT = 14  # _id index with prefix compression
COMPRESSION = {"none": 1.0, "snappy": 0.55, "zlib": 0.33, "zstd": 0.35}  # of data of this kind
PROCESS_DISK_BYTES = {"mongod": 302 * MIB, "mongos": 302 * MIB}  # three preallocated journal files of 100 MiB
PROCESS_MEMORY_MIB = {"mongod": 140, "mongos": 200}  # an embedded mongos has a router mongod of its own
ADD_SHARD_SECONDS = 0.08  # the config server adds one shard after the other: 16 in 1.3 s
START_SECONDS = 0.72  # of a core, to start and initiate a mongod
FLOOR_SECONDS = 2.0  # of a measurement: connecting, telemetry, writing the result


def assumptions(workload: Sequence[WorkloadStep]) -> Iterator[str]:
    """Yield what the estimates of time rest on, with its source."""
    yield f"deployment: {START_SECONDS:g} s of a core for each process, {ADD_SHARD_SECONDS:g} s for each shard"
    for step in workload:
        yield from step.phase.assumptions


def needs(
    processes: Sequence[PlacedProcess],
    workload: Sequence[WorkloadStep],
    storage: Storage,
    hosts: HostsByRole,
    copies: int,
    shards: int,
    volume_mibps: float | None = None,
) -> dict[str, Any]:
    """Estimate what a point needs: these fields of it.

    `copies` is how many members hold each document; `shards` is 0 where nothing is sharded; `volume_mibps` is the rate
    of all data volumes together, None where it is not known.
    """
    cores, client_cores = sum(host.cores for host in hosts.data), sum(host.cores for host in hosts.client)
    documents = sum(step.phase.adds() for step in workload)
    loaded = sum(step.phase.adds() for step in workload if step.kind == "load")
    raw = sum(step.phase.raw_bytes() for step in workload)
    mongods = [p for p in processes if p.role != "mongos"]
    data_bearing = [p for p in mongods if p.role != "config"]
    kept = COMPRESSION["none" if storage.engine == "mmapv1" else storage.block_compressor]
    oplog = 0
    if any(p.slot.replica_set for p in data_bearing):
        # The oplog holds each insert once more, compressed by snappy, up to its size.
        oplog = min(int(raw * COMPRESSION["snappy"] * copies), storage.oplog_size_mb * MIB * len(data_bearing))
    data = int(raw * kept * copies) + documents * INDEX_BYTES_PER_DOCUMENT * copies + oplog
    by_host = {
        host: _host_needs(
            [p for p in processes if p.host.name == host],
            data_bytes=data / len(data_bearing),
            cached_mib=raw * copies / MIB / len(data_bearing),
        )
        for host in dict.fromkeys(p.host.name for p in processes)
    }
    workers = min(max(len(data_bearing) // copies, 1), cores)
    expected = EstimateBasis(
        documents=loaded, workers=workers, cores=cores, copies=copies, client_cores=client_cores,
        volume_mibps=volume_mibps, disk_share=kept,
    )  # fmt: skip
    seconds = {True: 0.0, False: FLOOR_SECONDS}  # loading or not
    for step in workload:
        seconds[step.kind == "load"] += step.phase.seconds(expected)
    return {
        "needs": by_host,
        "disk_bytes": sum(n.disk_bytes for n in by_host.values()),
        "image_bytes": data,
        "memory_mib": sum(n.memory_mib for n in by_host.values()),
        "deploy_seconds": 2.5 + START_SECONDS * len(processes) / cores + ADD_SHARD_SECONDS * shards,
        "load_seconds": seconds[True],
        "measure_seconds": seconds[False],
    }


def _host_needs(processes: Sequence[PlacedProcess], *, data_bytes: float, cached_mib: float) -> HostNeeds:
    """What the processes of one host need; `data_bytes` and `cached_mib` of each data-bearing one."""
    disk = memory = 0.0
    for process in processes:
        kind = "mongos" if process.role == "mongos" else "mongod"
        disk += PROCESS_DISK_BYTES[kind]
        memory += PROCESS_MEMORY_MIB[kind]
        if process.role not in {"mongos", "config"}:
            disk += data_bytes
            memory += min(process.cache_mib or 0.0, cached_mib)
    return HostNeeds(disk_bytes=int(disk), memory_mib=int(memory))
