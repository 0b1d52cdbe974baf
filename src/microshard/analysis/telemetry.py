"""What the telemetry of a time window says: pure functions over records, and reading them from a step's folder.

A record with time t describes the interval since the record before it. Figures over a window weight each record by
how much of its interval lies in the window, so a query shorter than the sampling interval still gets its share of
the one record that covers it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
OF_A_HOST = ("records", "cores", "cpu", "mem_available_min", "stall", "vm", "tcp")
CPU_KINDS = ("user", "sys", "iowait", "idle", "steal")


@dataclass(frozen=True, slots=True)
class Part:
    """A record and how many seconds of its interval lie in the window."""

    record: Record
    seconds: float


@dataclass(slots=True)
class Loaded:
    """Records of a file and what was wrong with it."""

    records: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def parse(text: str, name: str) -> Loaded:
    """Records of a file's text. A torn last line is left out and named; so is any other line that is no JSON."""
    found = Loaded()
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError:
            last = number == len(lines)
            found.problems.append(f"{name}:{number}: {'the last line is torn' if last else 'not JSON'}; left out")
            continue
        if isinstance(record, dict) and "t" in record:
            found.records.append(record)
        else:
            found.problems.append(f"{name}:{number}: not a record; left out")
    return found


def window(records: Sequence[Record], started: float, ended: float, *, whole: bool = False) -> list[Part]:
    """The records that cover some of the window, with the seconds they cover of it; `whole`: those all inside it.

    `seconds` of a record says how long its interval was; without it, it began at the record before, and the first
    record of a file is taken to cover one second.
    """
    parts = []
    before: float | None = None
    for record in sorted(records, key=lambda r: float(r["t"])):
        end = float(record["t"])
        length = record.get("seconds")
        begin = end - float(length) if length is not None else before if before is not None else end - 1.0
        before = end
        inside = min(end, ended) - max(begin, started)
        if inside > 0 and (not whole or (begin >= started and end <= ended)):
            parts.append(Part(record, inside))
    return parts


def _mean(parts: Sequence[Part], *path: str) -> float | None:
    """Mean of a number over the window; records that do not have it do not count."""
    found = [(number, part.seconds) for part in parts if (number := _get(part.record, *path)) is not None]
    seconds = sum(weight for _, weight in found)
    return sum(number * weight for number, weight in found) / seconds if seconds else None


def _get(record: Record, *path: str) -> float | None:
    """A number deep in a record."""
    here: Any = record
    for name in path:
        if not isinstance(here, Mapping) or name not in here:
            return None
        here = here[name]
    return float(here) if isinstance(here, int | float) and not isinstance(here, bool) else None


def _integral(parts: Sequence[Part], *path: str) -> float:
    """A rate summed over the window: what it amounts to."""
    return sum((_get(part.record, *path) or 0.0) * part.seconds for part in parts)


def _names(parts: Sequence[Part], key: str) -> list[str]:
    return sorted({name for part in parts for name in part.record.get(key, {})})


def cpu_split(parts: Sequence[Part]) -> dict[str, float]:
    """Mean share (0 to 1) of all cores by kind; empty without records."""
    means = {kind: _mean(parts, "cpu", kind) for kind in CPU_KINDS}
    return {kind: mean for kind, mean in means.items() if mean is not None}


def process_figures(parts: Sequence[Part]) -> dict[str, dict[str, float]]:
    """Per process mean and largest CPU and its limit (cores), largest resident bytes, bytes and faults in the window.

    The mean is over the whole window: a process that was not there for half of it used nothing in that half.
    `held` is the mean number of threads that a CPU quota kept from running; it is there only with a quota.
    """
    seconds = sum(part.seconds for part in parts)
    found: dict[str, dict[str, float]] = {}
    for name in _names(parts, "proc"):
        figures = found[name] = {
            "cpu_mean": _integral(parts, "proc", name, "cpu") / seconds,
            "cpu_max": max(_get(part.record, "proc", name, "cpu") or 0.0 for part in parts),
            "rss_max": max(_get(part.record, "proc", name, "rss") or 0.0 for part in parts),
            "r_bytes": _integral(parts, "proc", name, "r_bytes"),
            "w_bytes": _integral(parts, "proc", name, "w_bytes"),
        }
        limits = [limit for part in parts if (limit := _get(part.record, "proc", name, "limit"))]
        held, faults = _mean(parts, "proc", name, "held"), _mean(parts, "proc", name, "faults")
        if limits:
            figures["limit"] = max(limits)
        if held is not None:
            figures["held_mean"] = held
        if faults is not None:
            figures["faults_mean"] = faults
    return found


def disk_figures(parts: Sequence[Part]) -> dict[str, dict[str, float]]:
    """Per device means of operations and bytes per second, of utilisation (0 to 1), and of requests in flight."""
    keys = ("r_ios", "w_ios", "r_bytes", "w_bytes", "util", "queue")
    found: dict[str, dict[str, float]] = {}
    for name in _names(parts, "disk"):
        means = {key: _mean(parts, "disk", name, key) for key in keys}
        found[name] = {f"{key}_mean": mean for key, mean in means.items() if mean is not None}
    return found


def _means(parts: Sequence[Part], key: str) -> dict[str, float]:
    """The mean of each number below `key`."""
    means = {name: _mean(parts, key, name) for name in _names(parts, key)}
    return {name: mean for name, mean in means.items() if mean is not None}


def devices(records: Sequence[Record]) -> dict[str, Any]:
    """Per process the devices of its data and journal, with its limits there; of the latest record with them."""
    return next((dict(record["devices"]) for record in reversed(records) if record.get("devices")), {})


def net_figures(parts: Sequence[Part]) -> dict[str, dict[str, float]]:
    """Per interface bytes received and sent in the window, and bytes a second it can send where that is known."""
    found = {}
    for name in _names(parts, "net"):
        found[name] = {key: _integral(parts, "net", name, key) for key in ("rx_bytes", "tx_bytes")}
        speed = _mean(parts, "net", name, "speed")
        if speed is not None:
            found[name]["speed"] = speed
    return found


def db_path_at(records: Sequence[Record], when: float) -> dict[str, int]:
    """Bytes of each dbPath in the record nearest to a time (they are in every fifth)."""
    with_paths = [record for record in records if record.get("db_path_bytes")]
    if not with_paths:
        return {}
    nearest = min(with_paths, key=lambda record: abs(float(record["t"]) - when))
    return {name: int(size) for name, size in nearest["db_path_bytes"].items()}


def host_summary(records: Sequence[Record], started: float, ended: float, *, whole: bool = False) -> dict[str, Any]:
    """All figures of one host; {"records": 0} when none covers the window."""
    parts = window(records, started, ended, whole=whole)
    if not parts:
        return {"records": 0}
    return {
        "records": len(parts),
        "cores": int(parts[-1].record.get("cores", 0)),
        "cpu": cpu_split(parts),
        "mem_available_min": min(_get(part.record, "mem", "available") or 0.0 for part in parts),
        "processes": process_figures(parts),
        "disk": disk_figures(parts),
        "net": net_figures(parts),
        "db_path_bytes": db_path_at(records, ended),
        "devices": devices(records),
        "stall": _means(parts, "stall"),
        "vm": _means(parts, "vm"),
        "tcp": _means(parts, "tcp"),
    }


def server_summary(records: Sequence[Record], started: float, ended: float) -> dict[str, dict[str, Any]]:
    """Per process: operations, cache, tickets, queue and background work in the window.

    `unanswered` counts the samples left without an answer; of a mongos only the round trip is known.
    """
    by_process: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_process[str(record.get("process"))].append(record)
    found: dict[str, dict[str, Any]] = {}
    for process, theirs in sorted(by_process.items()):
        unanswered = sum(1 for r in theirs if "error" in r and started <= float(r["t"]) <= ended)
        parts = window([record for record in theirs if "error" not in record], started, ended)
        figures: dict[str, Any] = {"records": len(parts), "unanswered": unanswered}
        ways = [way for part in parts if (way := _get(part.record, "round_trip")) is not None]
        if ways:
            figures["round_trip_min"] = min(ways)
        if any("opcounters" in part.record for part in parts):
            figures |= _mongod_figures(parts)
        found[process] = figures
    return found


def _mongod_figures(parts: Sequence[Part]) -> dict[str, Any]:
    """Counts and bytes are sums over the window, *_mean and *_max of levels, shares 0 to 1, times in s."""
    figures: dict[str, Any] = {
        "operations": {
            name: round(_integral(parts, "opcounters", name))
            for name in sorted({name for part in parts for name in part.record.get("opcounters", {})})
        },
        "page_faults": round(_integral(parts, "page_faults")),
        "cache_read_bytes": round(_integral(parts, "wt", "read_into_bytes")),
        "connections_max": max(_get(part.record, "connections") or 0.0 for part in parts),
        "operation_time_mean": _mean(parts, "operation_time") or 0.0,
        "cache_stall_mean": _mean(parts, "wt", "stall") or 0.0,
        "evicted_by_operations": round(_integral(parts, "wt", "evicted_by_operations")),
        "checkpoint_seconds": _integral(parts, "wt", "checkpoint"),
        "checkpoint_running_share": _mean(parts, "wt", "checkpoint_running") or 0.0,
        "migrations": round(_integral(parts, "migrations")),
        "queue_mean": (_mean(parts, "queue", "readers") or 0.0) + (_mean(parts, "queue", "writers") or 0.0),
        "no_ticket_share": _no_ticket(parts),
    }
    for name in ("cache_bytes", "cache_max", "dirty_bytes", "tickets_read_out", "tickets_write_out"):
        values = [value for part in parts if (value := _get(part.record, "wt", name)) is not None]
        if values:
            figures[name if name.endswith("_max") else f"{name}_max"] = max(values)
    states = {str(part.record["state"]) for part in parts if "state" in part.record}
    if states:
        figures["states"] = sorted(states)
    return figures


def _no_ticket(parts: Sequence[Part]) -> float:
    """Share of the time in which a mongod had no read or no write ticket left."""
    seconds = sum(part.seconds for part in parts)
    without = sum(
        part.seconds
        for part in parts
        if any(_get(part.record, "wt", name) == 0 for name in ("tickets_read_left", "tickets_write_left"))
    )
    return without / seconds if seconds else 0.0


def server_sums(servers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Operations, page faults and bytes read into the cache, over all mongods."""
    operations: dict[str, int] = defaultdict(int)
    sums = {"page_faults": 0, "cache_read_bytes": 0, "unanswered": 0}
    for server in servers:
        for name, count in server.get("operations", {}).items():
            operations[name] += count
        for name in sums:
            sums[name] += int(server.get(name, 0))
    return {"operations": dict(operations), **sums}


def _over_hosts(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """CPU split weighted by cores, and processes, disks and dbPaths of all hosts side by side.

    Names are unique within a point, except devices: with several hosts those become HOST:DEVICE.
    """
    covered = {name: host for name, host in hosts.items() if host["records"]}
    cores = sum(host["cores"] for host in covered.values())
    many = len(covered) > 1
    names = ("cpu", "processes", "disk", "net", "db_path_bytes", "devices")
    merged: dict[str, Any] = {name: {} for name in names}
    for name, host in covered.items():
        for kind, share in host["cpu"].items():
            merged["cpu"][kind] = merged["cpu"].get(kind, 0.0) + share * (host["cores"] / cores if cores else 0.0)
        merged["processes"].update(host["processes"])
        merged["db_path_bytes"].update(host["db_path_bytes"])
        for process, places in host["devices"].items():
            merged["devices"][process] = {
                kind: place | ({"device": f"{name}:{place['device']}"} if many else {})
                for kind, place in places.items()
            }
        for key in ("disk", "net"):
            merged[key].update({f"{name}:{device}" if many else device: v for device, v in host[key].items()})
    return merged


def _by_host(
    hosts: Mapping[str, Sequence[Record]], started: float, ended: float, *, whole: bool = False
) -> dict[str, dict[str, Any]]:
    """The figures of every host. Where several have a client each is called client/HOST, as names must be unique."""
    found = {name: host_summary(records, started, ended, whole=whole) for name, records in hosts.items()}
    with_client = [name for name, host in found.items() if "client" in host.get("processes", {})]
    for name in with_client if len(with_client) > 1 else ():
        processes = found[name]["processes"]
        processes[f"client/{name}"] = processes.pop("client")
    return found


def summarise(
    hosts: Mapping[str, Sequence[Record]],
    servers: Sequence[Record],
    started: float,
    ended: float,
    *,
    whole: bool = False,
) -> dict[str, Any]:
    """The telemetry of a window: cpu, processes, disk, net, db_path_bytes, devices, servers, server_sums and hosts.

    `hosts` has per host how many records cover the window; with 0 the window was missed. `whole` takes only the
    records of hosts that lie in the window altogether: levels that nothing before or after it dilutes.
    """
    per_host = _by_host(hosts, started, ended, whole=whole)
    per_server = server_summary(servers, started, ended)
    return {
        **_over_hosts(per_host),
        "servers": per_server,
        "server_sums": server_sums(per_server.values()),
        "hosts": {
            name: {key: host[key] for key in OF_A_HOST if key in host}
            | {"processes": sorted(host.get("processes", {}))}
            for name, host in per_host.items()
        },
    }


def _rounded(value: Any) -> Any:
    """Six significant digits: telemetry is not more exact than that."""
    if isinstance(value, float):
        short = float(f"{value:.6g}")
        return int(short) if short.is_integer() else short
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value


@dataclass(slots=True)
class Telemetry:
    """The files of a step's telemetry folder."""

    hosts: dict[str, Sequence[Record]] = field(default_factory=dict)
    servers: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_folder(folder: Path, shifts: Mapping[str, float] | None = None) -> Telemetry:
    """All records of a step, and what was wrong with the files.

    `shifts`: host → seconds to be added to its times, for hosts whose clock is not that of the client.
    """
    found = Telemetry()
    for path in sorted(folder.glob("*.jsonl")):
        loaded = parse(path.read_text(encoding="utf-8", errors="replace"), path.name)
        found.problems += loaded.problems
        if path.stem.startswith("host-"):
            name = path.stem.removeprefix("host-")
            shift = (shifts or {}).get(name, 0.0)
            found.hosts[name] = [{**r, "t": float(r["t"]) + shift} for r in loaded.records] if shift else loaded.records
        elif path.stem == "server":
            found.servers += loaded.records
    return found


def _rung(hosts: Mapping[str, Sequence[Record]], started: float, ended: float) -> dict[str, Any]:
    """CPU of all hosts (shares) and of every process on them (cores) during a rung."""
    over = _over_hosts(_by_host(hosts, started, ended))
    return {
        "cpu": over["cpu"],
        "processes": {name: process["cpu_mean"] for name, process in over["processes"].items()},
    }


def attach(result: dict[str, Any], telemetry: Telemetry) -> None:
    """Put `telemetry` beside each phase of a result, and CPU beside each rung of a ladder.

    `environment` of the result is what each host said of its kernel and settings, `versions` what the mongods said;
    `telemetry.problems` of a phase tells what was wrong with the files. Without any record the result stays as it is.
    """
    if not telemetry.hosts and not telemetry.servers:
        return
    environments = {
        name: record["environment"]
        for name, records in telemetry.hosts.items()
        if (record := next((r for r in records if "environment" in r), None)) is not None
    }
    if environments:
        result["environment"] = environments
    versions = sorted({str(record["version"]) for record in telemetry.servers if record.get("version")})
    if versions:
        result["versions"] = versions
    for phase in result.get("phases", []):
        started, ended = phase.get("started"), phase.get("ended")
        if not started or not ended:
            continue
        summary = _rounded(summarise(telemetry.hosts, telemetry.servers, float(started), float(ended)))
        missed = [
            f"no record of {name} covers this phase" for name, host in summary["hosts"].items() if not host["records"]
        ]
        summary["problems"] = [*telemetry.problems, *missed]
        phase["telemetry"] = summary
        for rung in phase.get("rungs", []):
            if rung.get("started") and rung.get("ended"):
                rung["telemetry"] = _rounded(_rung(telemetry.hosts, float(rung["started"]), float(rung["ended"])))
