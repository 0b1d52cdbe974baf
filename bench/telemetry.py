"""What telemetry at 1 Hz costs (row 10): throughput of point reads on 16 shards with and without it, in turns.

Both observers run as the role `telemetry` starts them: one looks at the host and every process, one asks every mongod
for its serverStatus. The load: point reads through the embedded mongos over eight connections, each always busy.
Stretches of three seconds with and without telemetry follow one another, the observers held by SIGSTOP in those
without, each round in the reverse order of the last one: what they cost is less than what the speed of a shared machine
drifts by in longer stretches.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import bson
import uvloop
from tests.cluster.embedded.lab import SmallCluster, cpu_seconds, small_cluster

from bench.alone import ROOT, alone, available_mib, rounds, say, scratch
from bench.clusters import job
from bench.findings import Findings, Row, Target, absolute, in_turns
from microshard.embedded import wire
from microshard.embedded.mongod_connections import MongodPool

DOCUMENTS = 10_000
CONNECTIONS = 8
SHARDS, QUICK_SHARDS = 16, 4


async def reads(port: int, seconds: float) -> float:
    """Point reads a second over so many seconds."""
    pool, numbers, done = MongodPool(("127.0.0.1", port)), random.Random(1), 0
    messages = [
        wire.build(bson.encode({"find": "points", "filter": {"_id": numbers.randrange(DOCUMENTS)}, "limit": 1,
                                "singleBatch": True, "$db": "bench"}))
        for _ in range(2000)
    ]  # fmt: skip
    end = time.perf_counter() + seconds

    async def one(first: int) -> None:
        nonlocal done
        number = first
        while time.perf_counter() < end:
            await pool.exchange(messages[number % len(messages)])
            number += 1
            done += 1

    began = time.perf_counter()
    try:
        async with asyncio.timeout(seconds + 30):
            await asyncio.gather(*(one(n * 250) for n in range(CONNECTIONS)))
    finally:
        pool.close()
    return done / (time.perf_counter() - began)


@contextlib.contextmanager
def observed(cluster: SmallCluster, folder: Path) -> Iterator[list[int]]:
    """Both observers at 1 Hz, held by SIGSTOP; yields their pids."""
    point = job(cluster, [], {"name": "measure", "kind": "measure", "engine": "aggregate", "parameters": {}})
    for (name, _), process in zip(cluster.shards.items(), cluster.processes[1:], strict=True):
        (folder / name / "pid").write_text(f"{process.pid}\n", encoding="ascii")
    processes = [{**p, "config_path": str(folder / p["name"] / "mongod.log")} for p in point["point"]["processes"]]
    (folder / "processes.json").write_text(json.dumps(processes), encoding="utf-8")
    (folder / "job.json").write_text(json.dumps(point), encoding="utf-8")
    host = str(ROOT / "src" / "microshard" / "hostlib" / "host_telemetry.py")
    commands = [
        [sys.executable, host, "--interval", "1", "--processes", str(folder / "processes.json"),
         "--out", str(folder / "host.jsonl")],
        [sys.executable, "-m", "microshard.workloads.server_telemetry", "--interval", "1",
         "--job", str(folder / "job.json"), "--out", str(folder / "server.jsonl")],
    ]  # fmt: skip
    started = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    try:
        time.sleep(1.5)  # their start is not part of what a measurement sees: they are there before it
        if any(process.poll() is not None for process in started):
            raise SystemExit("an observer ended right after its start")
        pids = [process.pid for process in started]
        hold(pids)
        yield pids
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()


def hold(pids: list[int], number: signal.Signals = signal.SIGSTOP) -> None:
    """Stop them where they are; with SIGCONT they go on."""
    for pid in pids:
        os.kill(pid, number)


def measure(quick: bool) -> Findings:
    """Row 10."""
    shards, seconds = QUICK_SHARDS if quick else SHARDS, 3.0
    found = Findings()
    if available_mib() < 180 * (shards + 3):
        found.missing.append(f"10: {shards} shards need about {180 * (shards + 3):,} MiB of RAM")
        return found
    plain: list[float] = []
    watched: list[float] = []
    cpu: list[float] = []
    with scratch() as folder, small_cluster(folder, shards) as cluster:
        admin = cluster.client.admin
        admin.command("shardCollection", "bench.points", key={"_id": "hashed"}, numInitialChunks=shards * 2)
        cluster.client.bench.points.insert_many([{"_id": number, "p": "x" * 100} for number in range(DOCUMENTS)])
        uvloop.run(reads(cluster.mongos.port, 2.0))  # warms caches and connections
        with observed(cluster, folder) as pids:
            for number in rounds(3, 3 if quick else 25, 20 if quick else 160):
                for with_them in (True, False)[:: -1 if number % 2 else 1]:
                    if not with_them:
                        plain.append(uvloop.run(reads(cluster.mongos.port, seconds)))
                        continue
                    hold(pids, signal.SIGCONT)
                    used = sum(map(cpu_seconds, pids))
                    watched.append(uvloop.run(reads(cluster.mongos.port, seconds)))
                    cpu.append((sum(map(cpu_seconds, pids)) - used) / seconds * 100)
                    hold(pids)
                say(f"{plain[-1]:,.0f} reads/s without, {watched[-1]:,.0f} with")
        records = len((folder / "server.jsonl").read_text(encoding="utf-8").splitlines())
    if records < shards * len(watched) * seconds * 0.5:
        raise SystemExit(f"telemetry wrote {records} records only: it did not run as it should")
    estimate = in_turns(watched, plain)
    span = estimate.interval
    found.rows.append(
        Row(
            10,
            f"throughput lost to telemetry, {shards} shards",
            "the same run without it",
            (1 - estimate.value) * 100,
            None if span is None else ((1 - span.high) * 100, (1 - span.low) * 100),
            Target(2.0),
            unit="%",
            repetitions=estimate.n,
        )
    )
    found.rows.append(absolute(10, f"CPU of both observers, {shards} shards, of one core", cpu, "%"))
    return found


if __name__ == "__main__":
    sys.exit(alone(measure))
