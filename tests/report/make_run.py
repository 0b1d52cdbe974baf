"""Fabricates the folder of a run in the format of docs/contracts.md, whole or damaged in a chosen way."""

import hashlib
import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.report.make_parts import KINDS

SHARDS = (1, 2, 4, 8, 16)
SECONDS = {1: 2.40, 2: 1.31, 4: 1.27, 8: 1.52, 16: 1.98}  # what two cores gave in a trial
CREATED = 1_753_000_000.0
DOCUMENTS = 600_000
ANSWER = [{"_id": band, "count": 85_714 + band, "mileage": 4_100_000_000 + band} for band in range(1, 8)]

# CATALOG A: WiredTiger with zlib on a c4.4xlarge.
REFERENCE = {
    "metric": "query time",
    "unit": "s",
    "axis": "topology.shards.count",
    "source": "Analytics on one server, July 2015: WiredTiger, zlib",
    "points": [
        {"at": 1, "value": 1392, "user": 6, "sys": 0, "iowait": 2, "idle": 74, "disk_gb": 28.5, "load_minutes": 88},
        {"at": 2, "value": 931, "user": 13, "sys": 0, "iowait": 0, "idle": 88, "disk_gb": 28.5, "load_minutes": 68},
        {"at": 4, "value": 512, "user": 25, "sys": 0, "iowait": 0, "idle": 75, "load_minutes": 68},
        {"at": 8, "value": 276, "user": 50, "sys": 0, "iowait": 0, "idle": 50, "load_minutes": 67},
        {"at": 16, "value": 215, "user": 100, "sys": 0, "iowait": 0, "idle": 0, "disk_gb": 28.5, "load_minutes": 66},
    ],
}


@dataclass(frozen=True)
class Shape:
    """What kind of run to make."""

    shards: tuple[int, ...] = SHARDS
    repetitions: int = 3
    reference: bool = True
    telemetry: bool = True
    drift: bool = True
    steps: int | None = None  # only the first so many steps have a result
    failed_point: int | None = None  # shards of the point whose every step failed
    wrong_answer: int | None = None  # shards of the point that answers otherwise once
    spread: float = 0.02  # of the repetitions
    drift_factor: float = 1.01
    others: float = 0.0  # cores that other programs use
    repeated: int | None = None  # shards of the point whose second repetition broke a gate and was taken again
    limit: str = "CPU"  # the verdict of every measurement
    second_axis: tuple[str, ...] = ()  # block compressors: one series each
    noise_seed: int = 7
    kind: str = ""  # of make_parts.KINDS: which optional parts the measured phase has
    published: tuple[dict[str, Any], ...] = ()  # points of the reference instead of the usual ones
    phases: tuple[str, ...] = ("measure",)  # names of the measured phases


def make_run(folder: Path, shape: Shape | None = None) -> Path:
    """Write a run below `folder` and return its path."""
    shape = shape or Shape()
    run = folder / "quickstart-20250720-083000-ab12"
    for name in ("results", "telemetry", "report", "logs", "points"):
        (run / name).mkdir(parents=True)
    rng = random.Random(shape.noise_seed)
    points = _points(shape)
    steps = _steps(points, shape, rng)
    plan = {
        "name": "quickstart",
        "title": "1 to 16 micro-shards on this machine",
        "backend": "local",
        "redeploy": "per_point",
        "repetitions": shape.repetitions,
        "hosts": [{"name": "local", "address": "127.0.0.1", "groups": ["shard_hosts", "client_hosts"]}],
        "points": points,
        "steps": steps,
        "teardown": "always",
        "warnings": ["up to 16 shards on 2 cores: no speed-up is to be expected beyond 2 shards"],
        "estimate_seconds": 260.0,
        "disk_bytes": 2_100_000_000,
        "memory_mib": 2900,
        "facts": {"cores": 2, "ram_mib": 8192, "free_disk_bytes": 60_000_000_000},
    }
    _write(
        run / "run.json", {"microshard": "0.1.0", "run_id": run.name, "experiment": "quickstart", "created": CREATED}
    )
    _write(run / "plan.json", plan)
    _write(run / "lock.json", _lock(shape))
    clock = CREATED + 20
    done = steps if shape.steps is None else steps[: shape.steps]
    with (run / "journal.jsonl").open("w", encoding="utf-8") as journal:
        for step in done:
            point = next(p for p in points if p["id"] == step["point"])
            name = "drift" if step["purpose"] == "drift" else f"r{step['repetition']}"
            if shape.repeated == point["shards"] and name == "r2":
                result, clock = _result(point, step, name, clock, shape, rng)
                reason = "measure: 3 operations ended in an error"
                result |= {"valid": False, "problems": [reason]}
                _write(run / "results" / point["id"] / f"{name}.json", result)
                name = "r2-2"
            result, clock = _result(point, step, name, clock, shape, rng)
            _write(run / "results" / point["id"] / f"{name}.json", result)
            journal.write(json.dumps({"t": clock, "event": "step done", "point": point["id"], "name": name}) + "\n")
    return run


def tear(run: Path, point: str = "p03", step: str = "r2") -> None:
    """Cut a result file in half, as a machine that lost power would."""
    path = run / "results" / point / f"{step}.json"
    path.write_text(path.read_text(encoding="utf-8")[: path.stat().st_size // 2], encoding="utf-8")


def large(points: int = 1000, repetitions: int = 5) -> Shape:
    """A run of many points: 200 block sizes for each of five numbers of shards."""
    return replace(
        Shape(), repetitions=repetitions, second_axis=tuple(f"{kib} KiB" for kib in range(1, points // len(SHARDS) + 1))
    )


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def _lock(shape: Shape) -> dict[str, Any]:
    definition: dict[str, Any] = {
        "microshard": 1,
        "name": "quickstart",
        "title": "1 to 16 micro-shards on this machine",
        "gates": {"max_shard_skew": 1.2, "max_client_cpu": 0.8, "max_variation": None},
        "order": {"policy": "interleaved", "seed": 7, "repeat_first": True, "redeploy": "per_point"},
        "topology": {"kind": "sharded", "storage": {"block_compressor": "zlib"}},
    }
    if shape.reference:
        definition["reference"] = REFERENCE | ({"points": list(shape.published)} if shape.published else {})
        definition["reproduces"] = {
            "title": "Analytics on one server with micro-shards",
            "authors": "A. Author",
            "date": "2015-07-03",
            "host": "c4.4xlarge, 16 vCPU, EBS magnetic",
        }
    return {
        "definition": definition,
        "host": {
            "cpu": "AMD EPYC 9R45",
            "cores": 2,
            "ram_mib": 8192,
            "kernel": "6.1.0-32-amd64",
            "system": "Debian GNU/Linux 12 (bookworm)",
            "machine": "x86_64",
            "transparent_huge_pages": "always",
            "python": "3.11.2",
        },
        "microshard": "0.1.0",
        "definition_sha256": hashlib.sha256(b"yml").hexdigest(),
        "binaries": {
            f"p{number:02d}": {
                "mongod": "bin/mongod",
                "mongos": "",
                "embedded": True,
                "version": "6.0.5",
                "mongod_sha256": hashlib.sha256(b"mongod").hexdigest(),
            }
            for number in range(1, len(shape.shards) + 1)
        },
        "packages": {"ansible-core": "2.19.3", "pymongo": "4.15.0", "numpy": "2.4.6", "scipy": "1.17.1"},
    }


def _points(shape: Shape) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for other in shape.second_axis or ("",):
        for shards in shape.shards:
            number = len(points) + 1
            axes: dict[str, Any] = {"topology.shards.count": shards}
            label = f"{shards} shard{'' if shards == 1 else 's'}"
            if other:
                axes["topology.storage.block_size"] = other
                label += f", block_size {other}"
            points.append(_point(f"p{number:02d}", axes, label, shards))
    return points


def _point(point_id: str, axes: dict[str, Any], label: str, shards: int) -> dict[str, Any]:
    names = [f"shard{n:02d}" for n in range(1, shards + 1)]
    cache = 512 / shards
    processes = [_process(point_id, name, "shard", 27101 + n, cache) for n, name in enumerate(names)]
    processes.append(_process(point_id, "config1", "config", 27150, 256.0))
    processes.append(_process(point_id, "mongos1", "mongos", 27100, None))
    return {
        "id": point_id,
        "axes": axes,
        "label": label,
        "topology": "sharded",
        "shards": shards,
        "hosts": [],
        "processes": processes,
        "replica_sets": [],
        "collections": [
            {
                "namespace": "vosa.mot_results",
                "shard_key": {"_id": 1},
                "unique": False,
                "chunks": [{"shard": name, "lower": None, "upper": None} for name in names],
            }
        ],
        "balancer": {"enabled": False, "chunk_size_mb": 64},
        "phases": [
            {
                "name": "load",
                "kind": "load",
                "engine": "insert",
                "parameters": {"dataset": "mot", "documents": DOCUMENTS},
            },
            {
                "name": "measure",
                "kind": "measure",
                "engine": "aggregate",
                "parameters": {"pipeline_name": "mot_greenness", "cache": "warm"},
            },
        ],
        "mongodb": {"source": "embedded", "version": "6.0.5", "path": None},
        "network_compressors": ["snappy"],
        "cache": {
            "policy": "host_total_mb",
            "processes": shards,
            "per_process_mib": cache,
            "total_mib": 512.0,
            "ram_mib": 8192.0,
            "through_config_string": cache < 256,
        },
        "disk_bytes": 400_000_000,
        "memory_mib": 600 + 130 * shards,
        "deploy_seconds": 4.0 + shards / 4,
        "load_seconds": 13.0,
        "measure_seconds": 8.0,
    }


def _process(point: str, name: str, role: str, port: int, cache: float | None) -> dict[str, Any]:
    folder = f"deployments/{point}/{name}"
    options: dict[str, Any] = {
        "net": {"port": port, "bindIp": "127.0.0.1"},
        "systemLog": {"destination": "file", "path": f"{folder}/mongod.log"},
    }
    if cache is not None:
        options["storage"] = {
            "dbPath": f"{folder}/data",
            "engine": "wiredTiger",
            "wiredTiger": {
                "engineConfig": {"configString": f"cache_size={cache:g}M"},
                "collectionConfig": {"blockCompressor": "zlib"},
            },
        }
        options["sharding"] = {"clusterRole": "shardsvr" if role == "shard" else "configsvr"}
    return {
        "name": name,
        "role": role,
        "host": "local",
        "address": "127.0.0.1",
        "port": port,
        "folder": folder,
        "db_path": None if cache is None else f"{folder}/data",
        "log_path": f"{folder}/mongod.log",
        "config_path": f"{folder}/mongod.conf",
        "pid_path": f"{folder}/pid",
        "replica_set": None if cache is None else name,
        "cache_mib": cache,
        "cpu_share": 0.125,
        "options": options,
    }


def _steps(points: list[dict[str, Any]], shape: Shape, rng: random.Random) -> list[dict[str, Any]]:
    takes = []
    for repetition in range(1, shape.repetitions + 1):
        ids = [point["id"] for point in points]
        rng.shuffle(ids)
        takes += [(point, repetition, "measure") for point in ids]
    if shape.drift:
        takes.append((takes[0][0], 1, "drift"))
    return [
        {
            "index": index,
            "point": point,
            "repetition": repetition,
            "purpose": purpose,
            "deploy": repetition == 1 and purpose == "measure",
            "undeploy": False,
        }
        for index, (point, repetition, purpose) in enumerate(takes)
    ]


def _result(
    point: dict[str, Any], step: dict[str, Any], name: str, clock: float, shape: Shape, rng: random.Random
) -> tuple[dict[str, Any], float]:
    shards = point["shards"]
    failed = shape.failed_point == shards
    phases = []
    if step["deploy"]:
        clock += 4 + shards / 4
        rate = {1: 38_000}.get(shards, 52_000 - 400 * shards) * rng.gauss(1, 0.01)
        phases.append(_load(point, clock, rate, shape))
        clock += DOCUMENTS / rate
    seconds = SECONDS.get(shards, 2.0) * max(0.2, rng.gauss(1, shape.spread))
    if step["purpose"] == "drift":
        seconds *= shape.drift_factor
    wrong = shape.wrong_answer == shards and step["repetition"] == 2
    measure = _measure(point, clock, seconds, wrong, shape)
    if shape.kind and not failed:
        measure |= KINDS[shape.kind](shards, rng, clock)
    clock += seconds * 3 + 1
    if failed:
        measure |= {
            "error": {"type": "AutoReconnect", "message": "shard05 on local closed the connection (signal 9)"},
            "samples": [],
            "answer": None,
            "answer_sha256": None,
        }
        del measure["metric"]
    phases += [measure | {"name": name} for name in shape.phases]
    return {
        "microshard": 1,
        "point": point["id"],
        "axes": point["axes"],
        "step": name,
        "purpose": step["purpose"],
        "valid": not failed,
        "problems": ["measure: shard05 on local closed the connection (signal 9)"] if failed else [],
        "phases": phases,
    }, clock


def _load(point: dict[str, Any], clock: float, rate: float, shape: Shape) -> dict[str, Any]:
    shards = point["shards"]
    phase = {
        "name": "load",
        "kind": "load",
        "engine": "insert",
        "started": clock,
        "ended": clock + DOCUMENTS / rate,
        "metric": {"name": "load rate", "unit": "documents/s", "value": rate, "better": "higher"},
        "samples": [rate],
        "counters": {"documents": DOCUMENTS, "bytes": 143_400_000, "errors": 0},
        "answer": None,
        "answer_sha256": None,
        "client_cpu_seconds": DOCUMENTS / rate * 0.9,
        "storage": _storage(shards),
        "notes": {},
    }
    if shape.telemetry:
        phase["telemetry"] = _telemetry(point, 0.82, 0.12, 0.9, 0.0)
    return phase


def _measure(point: dict[str, Any], clock: float, seconds: float, wrong: bool, shape: Shape) -> dict[str, Any]:
    shards = point["shards"]
    answer = [*ANSWER, {"_id": 99, "count": 1}] if wrong else ANSWER
    phase = {
        "name": "measure",
        "kind": "measure",
        "engine": "aggregate",
        "started": clock,
        "ended": clock + seconds * 3,
        "metric": {"name": "query time", "unit": "s", "value": seconds, "better": "lower"},
        "samples": [seconds * f for f in (1.01, 1.0, 0.99)],
        "counters": {"documents": 7, "bytes": 700, "errors": 0},
        "answer": answer,
        "answer_sha256": hashlib.sha256(json.dumps(answer).encode()).hexdigest(),
        "client_cpu_seconds": 0.04,
        "storage": _storage(shards),
        "notes": {"cache": "warm: one query before"},
    }
    if shape.telemetry:
        busy = {1: 0.52, 2: 0.95}.get(shards, 0.98)
        phase["telemetry"] = _telemetry(point, busy * 0.93, busy * 0.07, 0.02, shape.others)
        phase["verdict"] = _verdict(busy, shape.limit)
    return phase


def _verdict(busy: float, name: str) -> dict[str, Any]:
    full = f"the 2 cores of the machine were {busy:.0%} busy"
    sentence = f"{full}, {busy * 2:.2f} of them with the shards".replace("%", " %")
    second = {"name": "cache", "sentence": "60 % of what it did was moving pages", "figures": {"stall_share": 0.6}}
    return {
        "name": name,
        "sentence": sentence,
        "figures": {"busy": busy, "cores": 2},
        "runner_up": second | {"score": 1.2, "holds": True},
    }


def _storage(shards: int) -> dict[str, Any]:
    data = 31_000_000 + 60_000 * shards
    each = DOCUMENTS // shards
    return {
        "data_bytes": data,
        "index_bytes": 9_800_000 + 20_000 * shards,
        "db_path_bytes": 60_000_000 + 34_000_000 * shards,
        "by_shard": {f"shard{n:02d}": {"documents": each, "data_bytes": data // shards} for n in range(1, shards + 1)},
    }


def _telemetry(point: dict[str, Any], user: float, system: float, client: float, others: float) -> dict[str, Any]:
    shards = point["shards"]
    idle = max(0.0, 1 - user - system - 0.004)
    total = 2 * (user + system) - client - 0.06 - others
    processes = {
        f"shard{n:02d}": {"cpu_mean": total / shards, "cpu_max": total / shards * 1.2, "rss_max": 140 * 2**20}
        for n in range(1, shards + 1)
    }
    processes |= {
        "config1": {"cpu_mean": 0.02, "cpu_max": 0.05, "rss_max": 120 * 2**20},
        "mongos1": {"cpu_mean": 0.01, "cpu_max": 0.02, "rss_max": 50 * 2**20},
        "mongos1/router": {"cpu_mean": 0.03, "cpu_max": 0.06, "rss_max": 130 * 2**20},
        "client": {"cpu_mean": client, "cpu_max": client * 1.1, "rss_max": 70 * 2**20},
    }
    return {
        "cpu": {"user": user, "sys": system, "iowait": 0.004, "idle": idle},
        "processes": processes,
        "disk": {"vda": {"w_bytes_mean": 1e6}},
        "hosts": {"local": {"records": 8, "cores": 2}},
        "db_path_bytes": {name: 60_000_000 / shards + 34_000_000 for name in processes if name.startswith("shard")},
    }
