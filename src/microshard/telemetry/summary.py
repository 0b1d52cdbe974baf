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


def window(records: Sequence[Record], started: float, ended: float) -> list[Part]:
    """The records that cover some of the window, with the seconds they cover of it.

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
        if inside > 0:
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
    """Per process mean and largest CPU (cores), largest resident bytes, bytes read and written in the window.

    The mean is over the whole window: a process that was not there for half of it used nothing in that half.
    """
    seconds = sum(part.seconds for part in parts)
    return {
        name: {
            "cpu_mean": _integral(parts, "proc", name, "cpu") / seconds,
            "cpu_max": max(_get(part.record, "proc", name, "cpu") or 0.0 for part in parts),
            "rss_max": max(_get(part.record, "proc", name, "rss") or 0.0 for part in parts),
            "r_bytes": _integral(parts, "proc", name, "r_bytes"),
            "w_bytes": _integral(parts, "proc", name, "w_bytes"),
        }
        for name in _names(parts, "proc")
    }


def disk_figures(parts: Sequence[Part]) -> dict[str, dict[str, float]]:
    """Per device means of operations and bytes per second and of utilisation (0 to 1)."""
    keys = ("r_ios", "w_ios", "r_bytes", "w_bytes", "util")
    found: dict[str, dict[str, float]] = {}
    for name in _names(parts, "disk"):
        means = {key: _mean(parts, "disk", name, key) for key in keys}
        found[name] = {f"{key}_mean": mean for key, mean in means.items() if mean is not None}
    return found


def volumes_at(records: Sequence[Record], when: float) -> dict[str, list[str]]:
    """The disks that hold data, journal and log, in the record nearest to a time (they are in every fifth)."""
    known = [record for record in records if record.get("volumes")]
    if not known:
        return {}
    nearest = min(known, key=lambda record: abs(float(record["t"]) - when))
    return {str(kind): [str(disk) for disk in disks] for kind, disks in nearest["volumes"].items()}


def net_figures(parts: Sequence[Part]) -> dict[str, dict[str, float]]:
    """Per interface bytes received and sent in the window."""
    return {
        name: {key: _integral(parts, "net", name, key) for key in ("rx_bytes", "tx_bytes")}
        for name in _names(parts, "net")
    }


def db_path_at(records: Sequence[Record], when: float) -> dict[str, int]:
    """Bytes of each dbPath in the record nearest to a time (they are in every fifth)."""
    with_paths = [record for record in records if record.get("db_path_bytes")]
    if not with_paths:
        return {}
    nearest = min(with_paths, key=lambda record: abs(float(record["t"]) - when))
    return {name: int(size) for name, size in nearest["db_path_bytes"].items()}


def host_summary(records: Sequence[Record], started: float, ended: float) -> dict[str, Any]:
    """All figures of one host; {"records": 0} when none covers the window."""
    parts = window(records, started, ended)
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
        "volumes": volumes_at(records, ended),
    }


def server_summary(records: Sequence[Record], started: float, ended: float) -> dict[str, dict[str, Any]]:
    """Per mongod: operations and page faults in the window, largest cache, dirty bytes, tickets and connections.

    `unanswered` counts the samples that a mongod left without an answer.
    """
    by_process: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_process[str(record.get("process"))].append(record)
    found: dict[str, dict[str, Any]] = {}
    for process, theirs in sorted(by_process.items()):
        unanswered = sum(1 for r in theirs if "error" in r and started <= float(r["t"]) <= ended)
        parts = window([record for record in theirs if "error" not in record], started, ended)
        figures: dict[str, Any] = {"records": len(parts), "unanswered": unanswered}
        if parts:
            figures["operations"] = {
                name: round(_integral(parts, "opcounters", name))
                for name in sorted({name for part in parts for name in part.record.get("opcounters", {})})
            }
            figures["page_faults"] = round(_integral(parts, "page_faults"))
            figures["cache_read_bytes"] = round(_integral(parts, "wt", "read_into_bytes"))
            figures["connections_max"] = max(_get(part.record, "connections") or 0.0 for part in parts)
            for name in ("cache_bytes", "cache_max", "dirty_bytes", "tickets_read_out", "tickets_write_out"):
                values = [value for part in parts if (value := _get(part.record, "wt", name)) is not None]
                if values:
                    figures[name if name.endswith("_max") else f"{name}_max"] = max(values)
        found[process] = figures
    return found


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
    merged: dict[str, Any] = {"cpu": {}, "processes": {}, "disk": {}, "net": {}, "db_path_bytes": {}, "volumes": {}}
    for name, host in covered.items():
        for kind, share in host["cpu"].items():
            merged["cpu"][kind] = merged["cpu"].get(kind, 0.0) + share * (host["cores"] / cores if cores else 0.0)
        merged["processes"].update(host["processes"])
        merged["db_path_bytes"].update(host["db_path_bytes"])
        for kind, disks in host["volumes"].items():
            merged["volumes"].setdefault(kind, []).extend(f"{name}:{disk}" if many else disk for disk in disks)
        for key in ("disk", "net"):
            merged[key].update({f"{name}:{device}" if many else device: v for device, v in host[key].items()})
    return merged


def summarise(
    hosts: Mapping[str, Sequence[Record]], servers: Sequence[Record], started: float, ended: float
) -> dict[str, Any]:
    """The telemetry of a window: cpu, processes, disk, net, db_path_bytes, volumes, servers, server_sums and hosts.

    `hosts` has per host how many records cover the window; with 0 the window was missed.
    """
    per_host = {name: host_summary(records, started, ended) for name, records in hosts.items()}
    per_server = server_summary(servers, started, ended)
    return {
        **_over_hosts(per_host),
        "servers": per_server,
        "server_sums": server_sums(per_server.values()),
        "hosts": {
            name: {key: host[key] for key in ("records", "cores", "cpu", "mem_available_min") if key in host}
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


def attach(result: dict[str, Any], folder: Path) -> None:
    """Put `telemetry` beside each phase of a result, from the files in a step's telemetry folder.

    Says in `telemetry.problems` what was wrong with them. A folder without any file leaves the phases as they are.
    """
    hosts: dict[str, Sequence[Record]] = {}
    servers: list[Record] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        loaded = parse(path.read_text(encoding="utf-8", errors="replace"), path.name)
        problems += loaded.problems
        if path.stem.startswith("host-"):
            hosts[path.stem.removeprefix("host-")] = loaded.records
        elif path.stem == "server":
            servers += loaded.records
    if not hosts and not servers:
        return
    for phase in result.get("phases", []):
        started, ended = phase.get("started"), phase.get("ended")
        if not started or not ended:
            continue
        summary = _rounded(summarise(hosts, servers, float(started), float(ended)))
        missed = [
            f"no record of {name} covers this phase" for name, host in summary["hosts"].items() if not host["records"]
        ]
        summary["problems"] = [*problems, *missed]
        phase["telemetry"] = summary
