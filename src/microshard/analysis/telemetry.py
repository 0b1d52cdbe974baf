"""Telemetry over a time window: pure functions over records, and reading the records of a step.

A record describes the interval before its time. Figures over a window weight each record by how much of its interval
lies in the window, so that a query shorter than the sampling interval still gets its share of the record covering it.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, TypeVar

from microshard.hostlib.host_counters import EBS_EXCEEDED
from microshard.model.result import StepResult
from microshard.model.telemetry import (
    HostRecord,
    HostUse,
    NetUse,
    ProcessUse,
    RungTelemetry,
    ServerRecord,
    ServerSums,
    ServerUse,
    TelemetrySummary,
    VolumeOfProcess,
)
from microshard.records.codec import decode, encode

R = TypeVar("R", HostRecord, ServerRecord)
T = TypeVar("T")
CPU_KINDS = ("user", "sys", "iowait", "idle", "steal")
DISK_FIGURES = (
    *("r_ios", "w_ios", "r_bytes", "w_bytes", "util", "queue"),
    *(f"{limit}_exceeded" for limit in EBS_EXCEEDED),
)
FEWEST_CHECKPOINTED = 2  # records with a checkpoint running, and as many without, to compare them


@dataclass(frozen=True, slots=True)
class Overlap(Generic[R]):
    """A record and how many seconds of its interval lie in the window."""

    record: R
    seconds: float


def parse(kind: type[T], text: str, name: str) -> tuple[list[T], list[str]]:
    """The records of a file's text, and a sentence for each line that is left out, such as a torn last one."""
    records: list[T] = []
    problems: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            records.append(decode(kind, json.loads(line)))
        except json.JSONDecodeError:
            last = number == len(lines)
            problems.append(f"{name}:{number}: {'the last line is torn' if last else 'not JSON'}; left out")
        except ValueError:
            problems.append(f"{name}:{number}: not a record; left out")
    return records, problems


def window(records: Sequence[R], started: float, ended: float, *, whole: bool = False) -> list[Overlap[R]]:
    """The records that cover some of the window; `whole`: those whose interval lies in it completely.

    A record without the length of its interval began at the record before it, the first one a second before its time.
    """
    found = []
    before: float | None = None
    for record in sorted(records, key=lambda r: r.t):
        end = record.t
        begin = end - record.seconds if record.seconds is not None else before if before is not None else end - 1.0
        before = end
        inside = min(end, ended) - max(begin, started)
        if inside > 0 and (not whole or (begin >= started and end <= ended)):
            found.append(Overlap(record, inside))
    return found


def _mean(parts: Sequence[Overlap[R]], figure: Callable[[R], float | None]) -> float | None:
    """Mean of a figure over the window; records without it do not count."""
    found = [(value, part.seconds) for part in parts if (value := figure(part.record)) is not None]
    seconds = sum(weight for _, weight in found)
    return sum(value * weight for value, weight in found) / seconds if seconds else None


def _total(parts: Sequence[Overlap[R]], rate: Callable[[R], float | None]) -> float:
    """A rate summed over the window."""
    return sum((rate(part.record) or 0.0) * part.seconds for part in parts)


def _most(parts: Sequence[Overlap[R]], figure: Callable[[R], float | None]) -> float | None:
    return max((value for part in parts if (value := figure(part.record)) is not None), default=None)


def _entry(group: Callable[[R], Mapping[str, float | None]], name: str) -> Callable[[R], float | None]:
    return lambda record: group(record).get(name)


def _means(parts: Sequence[Overlap[R]], group: Callable[[R], Mapping[str, float]]) -> dict[str, float]:
    """The mean of each figure of a group."""
    names = sorted({name for part in parts for name in group(part.record)})
    means = {name: _mean(parts, _entry(group, name)) for name in names}
    return {name: mean for name, mean in means.items() if mean is not None}


def process_use(parts: Sequence[Overlap[HostRecord]]) -> dict[str, ProcessUse]:
    """Each process over the window: a process that existed for half of it used nothing in the other half."""
    seconds = sum(part.seconds for part in parts)

    def use(name: str) -> ProcessUse:
        def figures(record: HostRecord) -> Mapping[str, float | None]:
            return record.proc.get(name, {})

        keys = ("cpu", "limit", "held", "throttled", "rss", "r_bytes", "w_bytes", "faults")
        cpu, limit, held, throttled, rss, r_bytes, w_bytes, faults = (_entry(figures, key) for key in keys)
        return ProcessUse(
            cpu_mean=_total(parts, cpu) / seconds,
            cpu_max=_most(parts, cpu) or 0.0,
            rss_max=_most(parts, rss) or 0.0,
            r_bytes=_total(parts, r_bytes),
            w_bytes=_total(parts, w_bytes),
            limit=_most(parts, limit) or None,
            held_mean=_mean(parts, held),
            throttled_mean=_mean(parts, throttled),
            faults_mean=_mean(parts, faults),
            memory_limit=_most(parts, _entry(figures, "memory_limit")) or None,
        )

    return {name: use(name) for name in sorted({name for part in parts for name in part.record.proc})}


def _disk(parts: Sequence[Overlap[HostRecord]], name: str) -> dict[str, float]:
    means = _means(parts, lambda r: r.disk.get(name, {}))
    return {f"{key}_mean": means[key] for key in DISK_FIGURES if key in means}


def _net(parts: Sequence[Overlap[HostRecord]], name: str) -> NetUse:
    def figures(record: HostRecord) -> Mapping[str, float]:
        return record.net.get(name, {})

    received, sent, speed, packets = (_entry(figures, key) for key in ("rx_bytes", "tx_bytes", "speed", "packets"))
    names = sorted({key for part in parts for key in figures(part.record) if key.endswith("_shaped")})
    shaped = {key.removesuffix("_shaped"): _total(parts, _entry(figures, key)) for key in names}
    return NetUse(_total(parts, received), _total(parts, sent), _mean(parts, speed), _total(parts, packets), shaped)


@dataclass(slots=True)
class HostFigures:
    """One host over a window."""

    use: HostUse
    processes: dict[str, ProcessUse] = field(default_factory=dict)
    disk: dict[str, dict[str, float]] = field(default_factory=dict)
    net: dict[str, NetUse] = field(default_factory=dict)
    db_path_bytes: dict[str, float] = field(default_factory=dict)
    devices: dict[str, dict[str, VolumeOfProcess]] = field(default_factory=dict)


def host_figures(records: Sequence[HostRecord], started: float, ended: float, *, whole: bool = False) -> HostFigures:
    """All figures of a host; with 0 records when none covers the window."""
    parts = window(records, started, ended, whole=whole)
    if not parts:
        return HostFigures(HostUse())
    cpu = _means(parts, lambda r: r.cpu)
    with_paths = [record for record in records if record.db_path_bytes]
    processes = process_use(parts)
    return HostFigures(
        use=HostUse(
            records=len(parts),
            cores=int(parts[-1].record.cores),
            cpu={kind: cpu[kind] for kind in CPU_KINDS if kind in cpu},
            mem_available_min=min(part.record.mem.get("available", 0.0) for part in parts),
            stall=_means(parts, lambda r: r.stall),
            vm=_means(parts, lambda r: r.vm),
            tcp=_means(parts, lambda r: r.tcp),
            processes=sorted(processes),
        ),
        processes=processes,
        disk={name: _disk(parts, name) for name in sorted({name for part in parts for name in part.record.disk})},
        net={name: _net(parts, name) for name in sorted({name for part in parts for name in part.record.net})},
        # dbPaths and devices are not in every record
        db_path_bytes=min(with_paths, key=lambda r: abs(r.t - ended)).db_path_bytes if with_paths else {},
        devices=next((record.devices for record in reversed(records) if record.devices), {}),
    )


def server_use(records: Sequence[ServerRecord], started: float, ended: float) -> dict[str, ServerUse]:
    """Each mongod and mongos over the window."""
    by_process: dict[str, list[ServerRecord]] = defaultdict(list)
    for record in records:
        by_process[record.process].append(record)
    lags = _lags(records, started, ended)
    found = {process: _server(theirs, started, ended) for process, theirs in sorted(by_process.items())}
    return {process: replace(use, lag_max=lags.get(process)) for process, use in found.items()}


def _lags(records: Sequence[ServerRecord], started: float, ended: float) -> dict[str, float]:
    """The most seconds each secondary was behind what its primary had written when that was last looked at."""
    written: dict[str, float] = {}
    lags: dict[str, float] = {}
    for record in sorted(records, key=lambda r: r.t):
        if record.replica_set is None or record.last_write is None:
            continue
        if record.state == "primary":
            written[record.replica_set] = record.last_write
        elif record.state == "secondary" and record.replica_set in written and started <= record.t <= ended:
            behind = max(written[record.replica_set] - record.last_write, 0.0)
            lags[record.process] = max(lags.get(record.process, 0.0), behind)
    return lags


def _checkpoint_loss(parts: Sequence[Overlap[ServerRecord]]) -> float | None:
    """The share of a mongod's operations that were not served because a checkpoint was running.

    Against the rate right before and after each, since a load may rise from rung to rung. None where too few records
    are with, or without, a checkpoint to tell.
    """
    known = [part.record for part in parts if "checkpoint_running" in part.record.wt]
    rates = [(record.wt["checkpoint_running"] > 0, sum(record.served.values())) for record in known]
    lost, compared = 0.0, 0
    for running, group in groupby(range(len(rates)), key=lambda n: rates[n][0]):
        places = list(group)
        around = max(len(places), FEWEST_CHECKPOINTED)
        beside = [rate for ran, rate in rates[max(places[0] - around, 0) : places[-1] + 1 + around] if not ran]
        if running and len(beside) >= FEWEST_CHECKPOINTED:
            lost += sum(sum(beside) / len(beside) - rates[n][1] for n in places)
            compared += len(places)
    could = sum(rate for _, rate in rates) + lost
    return max(lost / could, 0.0) if compared >= FEWEST_CHECKPOINTED and could > 0 else None


def _server(records: Sequence[ServerRecord], started: float, ended: float) -> ServerUse:
    """Counts and bytes are sums over the window."""
    unanswered = sum(1 for r in records if r.error is not None and started <= r.t <= ended)
    parts = window([record for record in records if record.error is None], started, ended)
    ways = [part.record.round_trip for part in parts if part.record.round_trip is not None]
    found = ServerUse(
        records=len(parts),
        unanswered=unanswered,
        round_trip_min=min(ways, default=None),
        pool_full_share=_mean(parts, lambda r: r.pool.get("full")),
        pool_in_use_max=_most(parts, lambda r: r.pool.get("in_use")),
    )
    if all(part.record.opcounters is None for part in parts):
        return found
    return replace(
        found,
        operations={
            name: round(_total(parts, _entry(lambda r: r.opcounters or {}, name)))
            for name in sorted({name for part in parts for name in part.record.opcounters or {}})
        },
        page_faults=round(_total(parts, lambda r: r.page_faults)),
        cache_read_bytes=round(_total(parts, lambda r: r.wt.get("read_into_bytes"))),
        connections_max=_most(parts, lambda r: r.connections) or 0.0,
        operation_time_mean=_mean(parts, lambda r: r.operation_time) or 0.0,
        cache_stall_mean=_mean(parts, lambda r: r.wt.get("stall")) or 0.0,
        evicted_by_operations=round(_total(parts, lambda r: r.wt.get("evicted_by_operations"))),
        checkpoint_seconds=_total(parts, lambda r: r.wt.get("checkpoint")),
        checkpoint_running_share=_mean(parts, lambda r: r.wt.get("checkpoint_running")),
        checkpoint_loss=_checkpoint_loss(parts),
        waits=_means(parts, lambda r: r.waits),
        migrations=round(_total(parts, lambda r: r.migrations)),
        queue_mean=sum(_means(parts, lambda r: r.queue).values()),
        no_ticket_share=_mean(parts, _without_ticket),
        cache_bytes_max=_most(parts, lambda r: r.wt.get("cache_bytes")),
        cache_max=_most(parts, lambda r: r.wt.get("cache_max")),
        dirty_bytes_max=_most(parts, lambda r: r.wt.get("dirty_bytes")),
        tickets_read_out_max=_most(parts, lambda r: r.wt.get("tickets_read_out")),
        tickets_write_out_max=_most(parts, lambda r: r.wt.get("tickets_write_out")),
        # That of a moment: the record that covers the end was made after it, when the next phase may have begun.
        states=sorted({r.state for r in records if r.state is not None and started <= r.t <= ended}),
    )


def _without_ticket(record: ServerRecord) -> float | None:
    """1 where no read or no write ticket was left, 0 where one was; None where the server reports none."""
    left = [record.wt[name] for name in ("tickets_read_left", "tickets_write_left") if name in record.wt]
    return float(0 in left) if left else None


def _sums(servers: Iterable[ServerUse]) -> ServerSums:
    sums = ServerSums()
    for server in servers:
        for name, count in (server.operations or {}).items():
            sums.operations[name] = sums.operations.get(name, 0) + count
        sums.page_faults += server.page_faults
        sums.cache_read_bytes += server.cache_read_bytes
        sums.unanswered += server.unanswered
    return sums


def summarise(
    hosts: Mapping[str, Sequence[HostRecord]],
    servers: Sequence[ServerRecord],
    started: float,
    ended: float,
    *,
    whole: bool = False,
) -> TelemetrySummary:
    """The telemetry of a window. `whole` takes only host records whose interval lies in the window completely.

    Names are unique within a point, except devices and clients: with several of them they become HOST:DEVICE and
    client/HOST.
    """
    every = {name: host_figures(records, started, ended, whole=whole) for name, records in hosts.items()}
    clients = [name for name, host in every.items() if "client" in host.processes]
    for name in clients if len(clients) > 1 else ():
        host = every[name]
        host.processes[f"client/{name}"] = host.processes.pop("client")
        host.use.processes = sorted(host.processes)
    covered = {name: host for name, host in every.items() if host.use.records}
    cores = sum(host.use.cores for host in covered.values())
    found = TelemetrySummary(servers=server_use(servers, started, ended))
    found.server_sums = _sums(found.servers.values())
    found.hosts = {name: host.use for name, host in every.items()}
    for name, host in covered.items():
        prefix = f"{name}:" if len(covered) > 1 else ""
        for kind, share in host.use.cpu.items():
            found.cpu[kind] = found.cpu.get(kind, 0.0) + share * (host.use.cores / cores if cores else 0.0)
        found.processes |= host.processes
        found.db_path_bytes |= host.db_path_bytes
        found.disk |= {prefix + device: figures for device, figures in host.disk.items()}
        found.net |= {prefix + device: use for device, use in host.net.items()}
        for process, places in host.devices.items():
            found.devices[process] = {kind: replace(v, device=prefix + v.device) for kind, v in places.items()}
    return found


def _rounded(value: Any) -> Any:
    """Six significant digits: telemetry is not more precise than that."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value


@dataclass(slots=True)
class StepTelemetry:
    """The telemetry files of a step."""

    hosts: dict[str, Sequence[HostRecord]] = field(default_factory=dict)
    servers: list[ServerRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_folder(folder: Path, shifts: Mapping[str, float] | None = None) -> StepTelemetry:
    """All records of a step. `shifts`: host → seconds to add to its times, where its clock is not the client's."""
    found = StepTelemetry()
    for path in sorted(folder.glob("*.jsonl")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.stem.startswith("host-"):
            name = path.stem.removeprefix("host-")
            records, problems = parse(HostRecord, text, path.name)
            shift = (shifts or {}).get(name, 0.0)
            found.hosts[name] = [replace(r, t=r.t + shift) for r in records] if shift else records
            found.problems += problems
        elif path.stem == "server":
            found.servers, problems = parse(ServerRecord, text, path.name)
            found.problems += problems
    return found


def attach(result: StepResult, telemetry: StepTelemetry) -> None:
    """Add to a result what its telemetry says: of each phase and rung, environment of the hosts, versions of mongods.

    Without any record the result stays as it is.
    """
    if not telemetry.hosts and not telemetry.servers:
        return
    for name, records in telemetry.hosts.items():
        # The last one counts: an earlier one may not know the data folders yet.
        for environment in (record.environment for record in records if record.environment is not None):
            result.environment[name] = environment
    result.versions = sorted({record.version for record in telemetry.servers if record.version}) or result.versions
    for phase in result.phases:
        if phase.interval is None:
            continue
        summary = summarise(telemetry.hosts, telemetry.servers, *phase.interval)
        missed = [f"no record of {name} covers this phase" for name, host in summary.hosts.items() if not host.records]
        summary.problems = [*telemetry.problems, *missed]
        phase.telemetry = decode(TelemetrySummary, _rounded(encode(summary)))
        for rung in phase.rungs:
            if rung.started and rung.ended:
                during = summarise(telemetry.hosts, (), rung.started, rung.ended)
                processes = {name: use.cpu_mean for name, use in during.processes.items()}
                rung.telemetry = RungTelemetry(_rounded(during.cpu), _rounded(processes))
