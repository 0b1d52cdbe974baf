"""Telemetry: the records that are sampled once a second, and what they amount to over a phase.

Shares are 0 to 1, CPU of processes is in cores, sizes are in bytes, times in seconds.
"""

from dataclasses import dataclass, field
from typing import Any

from microshard.model import OPTIONAL


@dataclass(slots=True)
class VolumeOfProcess:
    """The device that a process has files on."""

    device: str
    limits: dict[str, float] = field(default_factory=dict, metadata=OPTIONAL)  # r_ios, w_ios, r_bytes, w_bytes per s


@dataclass(slots=True)
class HostRecord:
    """A line of host-HOST.jsonl: the time since the line before."""

    t: float  # epoch seconds, end of the interval
    host: str = ""
    seconds: float | None = None  # length of the interval
    cpu: dict[str, float] = field(default_factory=dict)  # user, sys, iowait, idle, steal: shares of all cores
    cores: float = 0
    mem: dict[str, float] = field(default_factory=dict)  # total, available
    # r_ios, w_ios, r_bytes, w_bytes per s, util, queue; of an EBS volume on Nitro {volume,instance}_{iops,throughput}
    # _exceeded: share of the time in which demand was above what it, or its instance, may do
    disk: dict[str, dict[str, float]] = field(default_factory=dict)
    # rx_bytes, tx_bytes, packets per s; speed where known; of Amazon's ENA {bw_in,bw_out,pps,conntrack …}_shaped:
    # packets per s that it queued or dropped because the instance was beyond an allowance
    net: dict[str, dict[str, float]] = field(default_factory=dict)
    stall: dict[str, float] = field(default_factory=dict)  # cpu, io, memory: share of time a task waited (PSI)
    vm: dict[str, float] = field(default_factory=dict)  # faults, swap_in, swap_out per s
    tcp: dict[str, float] = field(default_factory=dict)  # out, again: segments per s
    # cpu, limit (cores), held (threads its quota kept from running), throttled (share of its periods), rss,
    # memory_limit, r_bytes, w_bytes, faults per s
    proc: dict[str, dict[str, float | None]] = field(default_factory=dict)
    db_path_bytes: dict[str, float] = field(default_factory=dict)  # every fifth record
    devices: dict[str, dict[str, VolumeOfProcess]] = field(default_factory=dict)  # process → data, journal
    environment: dict[str, Any] | None = None  # kernel, CPU, settings; the last one counts


@dataclass(slots=True)
class ServerRecord:
    """A line of server.jsonl: what a mongod's serverStatus says of the time since its line before; counts are per s."""

    t: float  # epoch seconds
    process: str = ""
    seconds: float | None = None
    opcounters: dict[str, float] | None = None
    # cache_bytes, cache_max, dirty_bytes, read_into_bytes, evicted_by_operations (pages),
    # tickets_read_out, tickets_write_out, tickets_read_left, tickets_write_left (what the version does not report is
    # absent),
    # stall (operations busy with the cache), checkpoint (s), checkpoint_running (0, 1)
    wt: dict[str, float] = field(default_factory=dict)
    connections: float | None = None
    page_faults: float | None = None
    queue: dict[str, float] = field(default_factory=dict)  # readers, writers
    # s per s that operations waited: lock (Global, Database, Collection), flow_control, write_concern
    waits: dict[str, float] = field(default_factory=dict)
    operation_time: float | None = None  # operations being served
    served: dict[str, float] = field(default_factory=dict)  # reads, writes, commands that ended per s (opLatencies)
    serving: dict[str, float] = field(default_factory=dict)  # the same: time in the server, s per s
    migrations: float | None = None  # chunk migrations started
    version: str = ""
    state: str | None = None  # primary, secondary or other
    replica_set: str | None = None
    last_write: float | None = None  # epoch seconds of the newest operation it has applied
    round_trip: float | None = None  # s
    # Of a mongos: in_use, available, refreshing connections to shards; full: 1 where a shard had none to give
    pool: dict[str, float] = field(default_factory=dict)
    error: str | None = None  # it did not answer in 1.5 s


@dataclass(slots=True)
class ProcessUse:
    """A process over a phase."""

    cpu_mean: float = 0.0
    cpu_max: float = 0.0
    rss_max: float = 0.0
    r_bytes: float = 0.0  # in the phase
    w_bytes: float = 0.0
    limit: float | None = field(default=None, metadata=OPTIONAL)  # cores it may use
    held_mean: float | None = field(default=None, metadata=OPTIONAL)  # threads a CPU quota kept from running
    throttled_mean: float | None = field(default=None, metadata=OPTIONAL)  # share of periods cut short by a quota
    faults_mean: float | None = field(default=None, metadata=OPTIONAL)  # major page faults per s
    memory_limit: float | None = field(default=None, metadata=OPTIONAL)  # bytes its control group allows


@dataclass(slots=True)
class NetUse:
    """A network interface over a phase."""

    rx_bytes: float = 0.0
    tx_bytes: float = 0.0
    speed: float | None = field(default=None, metadata=OPTIONAL)  # bytes/s it can send, where known
    packets: float = field(default=0, metadata=OPTIONAL)
    shaped: dict[str, float] = field(
        default_factory=dict, metadata=OPTIONAL
    )  # packets by ENA's allowance: bw_in, pps …


@dataclass(slots=True)
class ServerUse:
    """A mongod or mongos over a phase. Of a mongos only the round trip and its pool are known."""

    records: int = 0
    unanswered: int = 0  # samples without an answer
    round_trip_min: float | None = field(default=None, metadata=OPTIONAL)
    pool_full_share: float | None = field(default=None, metadata=OPTIONAL)  # mongos: no connection to a shard was free
    pool_in_use_max: float | None = field(default=None, metadata=OPTIONAL)
    operations: dict[str, int] | None = field(default=None, metadata=OPTIONAL)  # from here on mongods only
    page_faults: float = field(default=0, metadata=OPTIONAL)
    cache_read_bytes: float = field(default=0, metadata=OPTIONAL)
    connections_max: float = field(default=0, metadata=OPTIONAL)
    operation_time_mean: float = field(default=0, metadata=OPTIONAL)  # operations being served
    cache_stall_mean: float = field(default=0, metadata=OPTIONAL)  # operations busy with the cache
    evicted_by_operations: float = field(default=0, metadata=OPTIONAL)  # pages
    checkpoint_seconds: float = field(default=0, metadata=OPTIONAL)
    checkpoint_running_share: float | None = field(default=None, metadata=OPTIONAL)  # None: not reported
    checkpoint_loss: float | None = field(default=None, metadata=OPTIONAL)  # operations lost while one was running
    waits: dict[str, float] = field(default_factory=dict, metadata=OPTIONAL)  # lock, flow_control, write_concern: means
    lag_max: float | None = field(default=None, metadata=OPTIONAL)  # s a secondary was behind its primary
    migrations: float = field(default=0, metadata=OPTIONAL)
    queue_mean: float = field(default=0, metadata=OPTIONAL)  # operations waiting for a lock or ticket
    no_ticket_share: float | None = field(default=None, metadata=OPTIONAL)  # None: the server reports no tickets
    cache_bytes_max: float | None = field(default=None, metadata=OPTIONAL)
    cache_max: float | None = field(default=None, metadata=OPTIONAL)
    dirty_bytes_max: float | None = field(default=None, metadata=OPTIONAL)
    tickets_read_out_max: float | None = field(default=None, metadata=OPTIONAL)
    tickets_write_out_max: float | None = field(default=None, metadata=OPTIONAL)
    states: list[str] = field(default_factory=list, metadata=OPTIONAL)  # primary, secondary, other

    @property
    def is_mongod(self) -> bool:
        """Whether it answered serverStatus as a mongod."""
        return self.operations is not None


@dataclass(slots=True)
class ServerSums:
    """All mongods of a point together."""

    operations: dict[str, int] = field(default_factory=dict)
    page_faults: float = 0
    cache_read_bytes: float = 0
    unanswered: int = 0


@dataclass(slots=True)
class HostUse:
    """A host over a phase."""

    records: int = 0  # 0: no record covers the phase
    cores: float = field(default=0, metadata=OPTIONAL)
    cpu: dict[str, float] = field(default_factory=dict, metadata=OPTIONAL)
    mem_available_min: float | None = field(default=None, metadata=OPTIONAL)
    stall: dict[str, float] = field(default_factory=dict, metadata=OPTIONAL)
    vm: dict[str, float] = field(default_factory=dict, metadata=OPTIONAL)
    tcp: dict[str, float] = field(default_factory=dict, metadata=OPTIONAL)
    processes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class TelemetrySummary:
    """Telemetry of all hosts over a phase. Devices are called HOST:DEVICE when there are several hosts."""

    cpu: dict[str, float] = field(default_factory=dict)  # user, sys, iowait, idle, steal; weighted by cores
    processes: dict[str, ProcessUse] = field(default_factory=dict)  # several clients: client/HOST
    disk: dict[str, dict[str, float]] = field(default_factory=dict)  # r_ios_mean … queue_mean
    net: dict[str, NetUse] = field(default_factory=dict)
    db_path_bytes: dict[str, float] = field(default_factory=dict)  # at the end of the phase
    devices: dict[str, dict[str, VolumeOfProcess]] = field(default_factory=dict)  # process → data, journal
    servers: dict[str, ServerUse] = field(default_factory=dict)
    server_sums: ServerSums = field(default_factory=ServerSums)
    hosts: dict[str, HostUse] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # of the telemetry files


@dataclass(slots=True)
class RungTelemetry:
    """CPU during a rung of a ladder."""

    cpu: dict[str, float] = field(default_factory=dict)
    processes: dict[str, float] = field(default_factory=dict)  # mean cores
