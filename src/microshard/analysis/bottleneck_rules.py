"""The rules: each computes from the evidence how near one resource was to being the bottleneck.

A candidate's score is the strongest figure over its threshold: from 1 on it holds. docs/report.md explains every rule.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from microshard.analysis.evidence import MIB, Evidence, HostLoad, MongodLoad, ProcessLoad, VolumeLoad
from microshard.model.ec2_facts import EbsOfInstance

Bottleneck = Literal[
    "client", "router", "CPU", "steal", "disk IOPS", "disk throughput", "lock or ticket", "cache", "memory", "network",
    "replication", "checkpoint", "connection pool", "skew", "none", "unknown",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit, its unit, and why it is that."""

    value: float
    unit: str
    why: str


THRESHOLDS: Mapping[str, Threshold] = {
    "cores_busy": Threshold(
        0.90, "share", "a queue before a resource used 90 % is nine times as long as its service (M/M/1)"
    ),
    "own_limit": Threshold(
        0.90, "share", "the same of the cores a process may use: affinity, quota, one an interpreter"
    ),
    "one_thread": Threshold(
        0.80, "share", "an operation that is on a CPU four fifths of its time waits for little else"
    ),
    "volume_limit": Threshold(0.90, "share", "Amazon's EBS promises provisioned rates to within 10 %"),
    "volume_limit_waits": Threshold(
        0.75, "share", "as volume_limit, of bursts: it is at its limit while tasks wait for it, and idle between"
    ),
    "volume_busy": Threshold(0.90, "share", "as cores_busy, where no limit is known"),
    "volume_waits": Threshold(0.25, "share", "a volume with many queues can be busy without anyone waiting for it"),
    "volume_exceeded": Threshold(
        0.25, "share", "as volume_waits: by EBS's own count the demand was above what volume or instance allow"
    ),
    "large_request": Threshold(
        43 * 1024, "bytes", "gp3's 125 MiB/s over its 3,000 IOPS: larger requests meet the throughput first"
    ),
    "cache_stall": Threshold(0.50, "share", "half of what operations do in the mongod is moving pages"),
    "steal": Threshold(0.10, "share", "a tenth of the cores is taken away: more than a difference that counts"),
    "flow_control": Threshold(0.50, "share", "half of the operations in the primary wait to be admitted"),
    "write_concern": Threshold(0.50, "share", "half of an operation's time is the other members'"),
    "lag": Threshold(
        5.0, "s", "flowControlTargetLagSeconds × flowControlThresholdLagPercentage: the primary slows writes down"
    ),
    "checkpoint_loss": Threshold(0.10, "share", "a tenth of the operations is lost to checkpoints"),
    "no_connection": Threshold(0.50, "share", "no connection to a shard was free half of the time"),
    "no_ticket": Threshold(0.50, "share", "no ticket left half of the time"),
    "queue": Threshold(1.0, "operations", "at least one operation always waits"),
    "queue_share": Threshold(0.50, "share", "half of the operations in the mongod wait for a lock"),
    "swap": Threshold(1.0 * MIB, "bytes/s", "256 pages a second; a database host should not swap at all"),
    "major_faults": Threshold(100.0, "1/s", "at 1 ms a read a tenth of a thread's time, on magnetic disks all of it"),
    "memory_stall": Threshold(0.10, "share", "a task waited for memory a tenth of the time"),
    "link": Threshold(0.80, "share", "what TCP gets through a link next to headers and other traffic"),
    "segments_again": Threshold(0.01, "share", "above one lost segment in a hundred TCP's rate collapses"),
    "shaped": Threshold(0.01, "share", "as segments_again: EC2 queued or dropped a packet in a hundred"),
    "round_trip": Threshold(0.50, "share", "half of an operation's time is the network round trip"),
    "skew": Threshold(1.5, "times", "the busiest shard against the mean of all"),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A resource that one rule found near to its limit or at it."""

    name: Bottleneck
    score: float  # 1 and above: it holds
    sentence: str
    figures: Mapping[str, float]
    work: Mapping[str, float] = field(default_factory=dict)  # of a limit of shards: what each of them did
    measure: str = ""  # what `work` counts

    @property
    def holds(self) -> bool:
        """Whether the resource was the limit by this rule."""
        return self.score >= 1


def _over(value: float, key: str) -> float:
    return value / THRESHOLDS[key].value


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def candidates(evidence: Evidence) -> list[Candidate]:
    """One candidate of each name: those that hold in the order of precedence, then the others by score."""
    strongest: dict[Bottleneck, Candidate] = {}
    for rule in RULES:
        # Of several rules for one bottleneck the first that holds counts; of one rule's candidates the strongest.
        settled = {name for name, known in strongest.items() if known.holds}
        for found in rule(evidence):
            known = strongest.get(found.name)
            if found.name not in settled and (known is None or found.score > known.score):
                strongest[found.name] = found
    return sorted(strongest.values(), key=lambda f: (not f.holds, ORDER.index(f.name) if f.holds else 0, -f.score))


def memory(evidence: Evidence) -> Iterator[Candidate]:
    """Swapping, tasks waiting for memory, or pages of the mongods that must be read again."""
    for host in evidence.hosts:
        waits = host.stall.get("memory", 0.0)
        if host.swap:
            sentence = f"{host.place} swapped {host.swap / MIB:.1f} MiB/s"
            yield Candidate("memory", _over(host.swap, "swap"), sentence, {"swap_bytes_per_second": host.swap})
        sentence = f"on {host.place} tasks waited for memory {_percent(waits)} of the time"
        yield Candidate("memory", _over(waits, "memory_stall"), sentence, {"memory_stall_share": waits})
    for shard in evidence.shards:
        faults = shard.use.faults
        sentence, figures = f"{shard.use.name} had {faults:,.0f} major page faults a second", {}
        if limit := shard.use.memory_limit:
            figures = {"resident_bytes": shard.use.rss, "memory_allowed_bytes": limit}
            sentence += f" and held {shard.use.rss / MIB:,.0f} of the {limit / MIB:,.0f} MiB it may use"
        figures["major_faults_per_second"] = faults
        yield Candidate("memory", _over(faults, "major_faults"), sentence, figures)


def disk(evidence: Evidence) -> Iterator[Candidate]:
    """A volume at its limit, or busy while tasks wait for it."""
    for device, shares in evidence.exceeded.items():
        for exceeded, share in shares.items():
            whose, _, what = exceeded.partition("_")
            name: Bottleneck = "disk IOPS" if what == "iops" else "disk throughput"
            what = name.removeprefix("disk ")
            sentence = f"{device}: demand was above the {what} of its {whose} {_percent(share)} of the time"
            yield Candidate(name, _over(share, "volume_exceeded"), sentence, {f"{exceeded}_exceeded": share})
    for host in evidence.hosts:
        if host.ebs is not None:
            yield from _ebs_of_instance(evidence, host, host.ebs)
    for volume in evidence.volumes:
        known = [(key, volume.rate(key), limit) for key, limit in volume.limits.items() if limit > 0]
        for key, rate, limit in known:
            yield _at_limit(evidence, volume, key, rate, limit)
        if not known:
            yield _busy_volume(evidence, volume)


def _ebs_of_instance(evidence: Evidence, host: HostLoad, ebs: EbsOfInstance) -> Iterator[Candidate]:
    """All EBS volumes of an instance together: at what it may do at any time, or for 30 minutes a day."""
    volumes = [volume for volume in evidence.volumes if volume.host == host.name and "ios" in volume.limits]
    for key, always, burst, unit, called in (
        ("ios", ebs.iops, ebs.burst_iops, 1, "IOPS"), ("bytes", ebs.mibps, ebs.burst_mibps, MIB, "MiB/s")
    ):  # fmt: skip
        rate = sum(volume.rate(key) for volume in volumes) / unit
        if not always or not volumes:
            continue
        bursting = burst is not None and burst > always
        above = bursting and rate > always * _ABOVE
        limit, when = (burst or always, "for 30 minutes a day") if above else (always, "at any time")
        score = _over(rate / limit, "volume_limit")
        if bursting and not above:  # it may be there by chance, unless something waits
            score = min(score, _over(host.waiting_for_disk, "volume_waits"))
        sentence = (
            f"the EBS volumes of {host.place} did {rate:,.0f} of the {limit:,.0f} {called} that {ebs.type} has {when}"
        )
        figures = {f"instance_{key}_per_second": rate * unit, f"instance_{key}_limit": limit * unit}
        yield Candidate("disk IOPS" if key == "ios" else "disk throughput", score, sentence, figures)


_ABOVE = 1.1  # of the baseline, which EBS keeps to within 10 %


def _io(evidence: Evidence) -> dict[str, float]:
    """Requests a second by shard, where no two shards share a volume."""
    if any(len(volume.shards) != 1 for volume in evidence.volumes):
        return {}
    found: dict[str, float] = {}
    for volume in evidence.volumes:
        found[volume.shards[0]] = found.get(volume.shards[0], 0.0) + volume.rate("ios")
    return found


def _cpu(evidence: Evidence) -> dict[str, float]:
    return {shard.use.name: shard.use.cpu for shard in evidence.shards}


def _at_limit(evidence: Evidence, volume: VolumeLoad, key: str, rate: float, limit: float) -> Candidate:
    waiting = _waiting(evidence, volume)
    burst = min(_over(rate / limit, "volume_limit_waits"), _over(waiting, "volume_waits"))
    score = max(_over(rate / limit, "volume_limit"), burst)
    direction = {"r": "reads", "w": "writes"}.get(key.partition("_")[0], "reads and writes")
    figures = {f"{key}_per_second": rate, f"{key}_limit": limit, "waiting": waiting}
    if key.endswith("ios"):
        sentence = f"{volume.name} did {rate:,.0f} of its {limit:,.0f} {direction} a second"
        return Candidate("disk IOPS", score, sentence, figures, _io(evidence), "requests")
    sentence = f"{volume.name}: {direction} of {rate / MIB:,.1f} of its {limit / MIB:,.1f} MiB/s"
    return Candidate("disk throughput", score, sentence, figures, _io(evidence), "requests")


def _waiting(evidence: Evidence, volume: VolumeLoad) -> float:
    host = evidence.host(volume.host) or (evidence.hosts[0] if evidence.hosts else None)
    return host.waiting_for_disk if host else 0.0


def _busy_volume(evidence: Evidence, volume: VolumeLoad) -> Candidate:
    waiting = _waiting(evidence, volume)
    util = volume.figures.get("util", 0.0)
    size = volume.request_bytes
    name: Bottleneck = "disk throughput" if size >= THRESHOLDS["large_request"].value else "disk IOPS"
    requests = volume.rate("ios")
    sentence = (
        f"{volume.name} was busy {_percent(util)} of the time with {requests:,.0f} requests/s of "
        f"{size / 1024:,.0f} KiB, and tasks waited for it {_percent(waiting)} of the time"
    )
    figures = {"util": util, "waiting": waiting, "requests_per_second": requests, "request_bytes": size}
    score = min(_over(util, "volume_busy"), _over(waiting, "volume_waits"))
    return Candidate(name, score, sentence, figures, _io(evidence), "requests")


def cache(evidence: Evidence) -> Iterator[Candidate]:
    """Operations that spend their time on fetching pages into the cache or making room for them.

    The time is against that of all operations in the mongod, or its CPU time where that is more: an operation is
    counted when it ends, its CPU time when it is used.
    """
    for shard in evidence.shards:
        whole = max(shard.operation_time, shard.use.cpu, shard.stall)
        share = shard.stall / whole if whole else 0.0
        idle = min(whole / 0.2, 1.0)  # a mongod that does nothing has no bottleneck
        sentence = (
            f"{shard.use.name}: {_percent(share)} of what its operations did was moving pages through a cache of "
            f"{shard.cache_max / MIB:,.0f} MiB ({shard.cache_read / MIB / max(evidence.seconds, 1e-9):,.1f} MiB/s read)"
        )
        figures = {
            "stall_share": share,
            "cache_bytes": shard.cache_max,
            "cache_read_bytes_per_second": shard.cache_read / max(evidence.seconds, 1e-9),
            "pages_evicted_by_operations": shard.evicted,
            "dirty_bytes": shard.dirty,
        }
        if shard.evicted:
            sentence += f"; they evicted {shard.evicted:,.0f} pages themselves"
        yield Candidate("cache", _over(share, "cache_stall") * idle, sentence, figures, _cpu(evidence), "CPU time")


_NAME_OF: Mapping[str, Bottleneck] = {"client": "client", "router": "router"}


def cores(evidence: Evidence) -> Iterator[Candidate]:
    """A host whose cores are all busy; the bottleneck is the role that uses most of them."""
    for host in evidence.hosts:
        most = max(host.roles.values(), default=0.0)
        if most <= 0:
            continue
        for role, used in host.roles.items():
            who = {"others": "background CPU load", "router": "the router", "client": "the client"}.get(
                role, f"the {role}"
            )
            full = f"the {host.cores:g} cores of {host.place} were {_percent(host.busy)} busy"
            sentence = f"{full}, {used:.2f} of them by {who}"
            figures = {"busy": host.busy, "cores": host.cores, f"cores_of_{role}": used}
            filled = _over(host.busy, "cores_busy")
            # Only the largest consumer can be the limit; the others rank behind it by what they use.
            score = filled if used == most else min(filled, 0.99) * used / most
            work = _cpu(evidence) if role == "shards" else {}
            yield Candidate(_NAME_OF.get(role, "CPU"), score, sentence, figures, work, "CPU time")


def steal(evidence: Evidence) -> Iterator[Candidate]:
    """Cores that the hypervisor gave to others, or an instance without CPU credits held to its baseline."""
    for host in evidence.hosts:
        sentence = f"the hypervisor took {_percent(host.steal)} of the cores of {host.place}"
        figures = {"steal": host.steal, "busy": host.busy}
        if host.baseline is not None:
            sentence += f"; without CPU credits {host.instance_type} has {_percent(host.baseline)} of each"
            sentence += f", and it used {_percent(host.busy)}"
            figures["baseline"] = host.baseline
        yield Candidate("steal", _over(host.steal, "steal"), sentence, figures)


def own_limits(evidence: Evidence) -> Iterator[Candidate]:
    """A process at the cores it may use, which are fewer than its host has."""
    cores = max((host.cores for host in evidence.hosts), default=0.0)
    if evidence.client is not None:
        yield _own_limit("client", evidence.client, cores)
    for router in evidence.routers:
        yield _own_limit("router", router, cores)
    for shard in evidence.shards:
        yield replace(_own_limit("CPU", shard.use, cores), work=_cpu(evidence), measure="CPU time")


def _own_limit(name: Bottleneck, use: ProcessLoad, cores: float) -> Candidate:
    share = use.cpu / use.limit if use.limit and use.limit < cores else 0.0
    sentence = f"{use.name} used {use.cpu:.2f} of the {use.limit or 0:.2g} cores it may use"
    if use.held:
        sentence += f"; its quota kept {use.held:.1f} threads from running"
        if use.throttled:
            sentence += f" and throttled it {use.throttled * 100:.0f} % of the time"
    figures = {"cores_used": use.cpu, "cores_allowed": use.limit or 0.0, "threads_held_back": use.held}
    if use.throttled:
        figures["throttled"] = use.throttled
    return Candidate(name, _over(share, "own_limit"), sentence, figures)


def locks(evidence: Evidence) -> Iterator[Candidate]:
    """Operations that wait in a mongod's queue: for a ticket of the storage engine, or for a lock."""
    for shard in evidence.shards:
        share = shard.queue / max(shard.operation_time, shard.queue, 1e-9)
        none_left = shard.no_ticket
        score = min(_over(shard.queue, "queue"), max(_over(none_left or 0.0, "no_ticket"), _over(share, "queue_share")))
        sentence = f"{shard.use.name}: {shard.queue:.1f} operations waited in its queue on average"
        figures = {"queue": shard.queue, "queue_share": share}
        if none_left is None:
            sentence += "; this server does not report tickets"
        else:
            sentence += f", and it had no ticket left {_percent(none_left)} of the time"
            figures["no_ticket_share"] = none_left
        queues = {each.use.name: each.queue for each in evidence.shards}
        yield Candidate("lock or ticket", score, sentence, figures, queues, "waiting operations")
        yield _waiting_for(shard, "lock", "lock or ticket", "queue_share", "for locks of collections and databases")


def _waiting_for(shard: MongodLoad, kind: str, name: Bottleneck, key: str, what: str) -> Candidate:
    """Operations that waited, against all operations in the mongod: an operation is counted when it ends."""
    waited = shard.waits.get(kind, 0.0)
    share = waited / max(shard.operation_time, waited, 1e-9)
    sentence = f"{shard.use.name}: of its operations' time {_percent(share)} was waiting {what}"
    idle = min(waited / 0.2, 1.0)  # next to nobody waited
    return Candidate(name, _over(share, key) * idle, sentence, {f"{kind}_wait_share": share, f"{kind}_waiting": waited})


def replication(evidence: Evidence) -> Iterator[Candidate]:
    """A primary that waits for the other members, by its own choice or by the write concern."""
    members = Counter(evidence.shard_of.get(shard.use.name, shard.use.name) for shard in evidence.shards)
    for shard in evidence.shards:
        name = shard.use.name
        yield _waiting_for(shard, "flow_control", "replication", "flow_control", "for flow control, as members lag")
        if members[evidence.shard_of.get(name, name)] > 1:  # of one member it is its journal's
            yield _waiting_for(shard, "write_concern", "replication", "write_concern", "for their write concern")


def lagging(evidence: Evidence) -> Iterator[Candidate]:
    """A secondary that cannot follow, whether its primary waits or not."""
    for shard in evidence.shards:
        if shard.lag is not None:
            lag = max(shard.lag - evidence.delays.get(shard.use.name, 0.0), 0.0)
            sentence = f"{shard.use.name} fell {lag:.0f} s behind its primary"
            yield Candidate("replication", _over(lag, "lag"), sentence, {"lag_seconds": lag})


def checkpoint(evidence: Evidence) -> Iterator[Candidate]:
    """A mongod that serves fewer operations while it writes a checkpoint."""
    for shard in evidence.shards:
        if (lost := shard.checkpoint_loss) is not None:
            sentence = f"{shard.use.name} served {_percent(lost)} fewer operations because of its checkpoints"
            yield Candidate("checkpoint", _over(lost, "checkpoint_loss"), sentence, {"checkpoint_loss": lost})


def connection_pool(evidence: Evidence) -> Iterator[Candidate]:
    """A mongos without a free connection to a shard."""
    for name, share in evidence.pools.items():
        sentence = f"{name} had no free connection to a shard {_percent(share)} of the time"
        yield Candidate("connection pool", _over(share, "no_connection"), sentence, {"no_connection_share": share})


def network(evidence: Evidence) -> Iterator[Candidate]:
    """A link at its speed, segments sent again, or operations that spend most of their time on the network."""
    for interface in evidence.interfaces:
        if interface.speed:
            share = interface.rate / interface.speed
            sentence = f"{interface.name} carried {_percent(share)} of what it can"
            yield Candidate("network", _over(share, "link"), sentence, {"link_share": share})
        for allowance, share in interface.shaped.items():
            sentence = f"EC2 held back {share:.1%} of the packets of {interface.name}: allowance {allowance} exceeded"
            yield Candidate("network", _over(share, "shaped"), sentence, {f"{allowance}_shaped_share": share})
    for host in evidence.hosts:
        if host.segments_again and host.segments:
            share = host.segments_again / host.segments
            busy = min(host.segments / 100, 1.0)  # of a handful of segments one lost means nothing
            sentence = f"{host.place} sent {share:.1%} of its TCP segments again"
            yield Candidate("network", _over(share, "segments_again") * busy, sentence, {"segments_again_share": share})
    if evidence.response and evidence.round_trip:
        share = min(evidence.round_trip / evidence.response, 1.0)
        sentence = (
            f"an operation took {evidence.response * 1e3:.3g} ms, of which at least {evidence.round_trip * 1e3:.3g} ms "
            f"({_percent(share)}) was the network round trip"
        )
        figures = {
            "round_trip_seconds": evidence.round_trip,
            "response_seconds": evidence.response,
            "round_trip_share": share,
        }
        yield Candidate("network", _over(share, "round_trip"), sentence, figures)


def one_thread(evidence: Evidence) -> Iterator[Candidate]:
    """Single-threaded operations that are always on a CPU of a shard: idle cores cannot help them."""
    if not evidence.concurrency or not evidence.shards:
        return
    busiest = max(evidence.shards, key=lambda s: s.use.cpu)
    share = busiest.use.cpu / evidence.concurrency
    sentence = (
        f"{busiest.use.name} used {busiest.use.cpu:.2f} cores with {evidence.concurrency} single-threaded "
        f"operation{'s' if evidence.concurrency > 1 else ''} in flight: CPU-bound"
    )
    figures = {"cores_used": busiest.use.cpu, "in_flight": float(evidence.concurrency)}
    yield Candidate("CPU", _over(share, "one_thread"), sentence, figures, _cpu(evidence), "CPU time")


RULES: tuple[Callable[[Evidence], Iterator[Candidate]], ...] = (
    memory, disk, cache, steal, cores, own_limits, replication, lagging, checkpoint, locks, connection_pool, network,
    one_thread,
)  # fmt: skip

# What takes precedence where several hold: what costs the others their time comes before them. Swapping shows as disk
# and CPU, a slow disk as cache misses, cache misses as CPU, full cores as operations that hold their tickets longer and
# as members that lag.
ORDER: tuple[Bottleneck, ...] = (
    "skew", "memory", "disk IOPS", "disk throughput", "cache", "steal", "client", "router", "CPU", "replication",
    "checkpoint", "lock or ticket", "connection pool", "network",
)  # fmt: skip


def skewed(found: Candidate, shard_of: Mapping[str, str]) -> Candidate | None:
    """The skew behind a limit that one shard alone reached; None when the shards shared the work.

    Unequal shards that nothing waits for are no bottleneck: skew needs a limit that a shard reached. Nor are members of
    one shard: a primary has more to do than its secondaries. `shard_of`: mongod → its replica set.
    """
    work: dict[str, float] = {}
    for name, value in found.work.items():
        shard = shard_of.get(name, name)
        work[shard] = work.get(shard, 0.0) + value
    if not found.holds or len(work) < 2:
        return None
    mean = sum(work.values()) / len(work)
    hot = max(work, key=lambda name: work[name])
    times = work[hot] / mean if mean > 0 else 1.0
    if _over(times, "skew") < 1:
        return None
    sentence = f"{hot} had {times:.1f} times the {found.measure} of an average shard; {found.sentence}"
    return Candidate("skew", _over(times, "skew"), sentence, {"times_the_mean": times, **found.figures})


def busiest_host(evidence: Evidence) -> HostLoad | None:
    """The host with the busiest cores."""
    return max(evidence.hosts, key=lambda host: host.busy, default=None)
