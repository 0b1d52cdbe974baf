"""What telemetry at 1 Hz and `microshard watch` cost (row 10): point reads on 16 shards with and without, in turns.

Both observers run as the role `telemetry` starts them: one looks at the host and every process, one asks every mongod
for its serverStatus. The load: point reads through the embedded mongos over eight connections, each always busy.
Stretches of three seconds with nothing, with telemetry, and with telemetry and a page of `watch` that is read once a
second follow one another, what is not to run held by SIGSTOP, each round in the reverse order of the last one: what
they cost is less than what the speed of a shared machine drifts by in longer stretches.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import bson
import uvloop
from tests.cluster.embedded.lab import SmallCluster, cpu_seconds, small_cluster
from tests.report.make_run import Shape, make_run

from bench.alone import ROOT, alone, available_mib, rounds, say, scratch
from bench.clusters import job
from bench.findings import Findings, Row, Target, absolute, in_turns
from microshard.embedded import wire
from microshard.embedded.mongod_connections import MongodPool
from microshard.model.run_records import JournalEvent
from microshard.records.run_folder import RunFolder

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
         "--out", str(folder / "host-local.jsonl")],
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


@contextlib.contextmanager
def watching(folder: Path, telemetry: Path) -> Iterator[list[int]]:
    """`microshard watch` of a run whose telemetry is this folder's, and a page that reads it; held by SIGSTOP."""
    run = RunFolder(make_run(folder / "runs", Shape(shards=(SHARDS,), repetitions=1, drift=False)))
    point = run.plan().points[0].id
    events = (JournalEvent("run started", steps=1), JournalEvent("step started", step=0, point=point, name="r1"))
    for event in events:
        run.journal.append(event)
    where = run / "telemetry" / point / "r1"
    shutil.rmtree(where, ignore_errors=True)
    where.parent.mkdir(parents=True, exist_ok=True)
    where.symlink_to(telemetry)
    command = [
        str(Path(sys.executable).with_name("microshard")),
        "watch",
        run.run_id,
        "--runs-dir",
        str(folder / "runs"),
    ]
    with run.lock(), subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as watch:
        url = next(iter(watch.stdout or ())).partition(": ")[2].strip()
        text = f"import time, urllib.request as u\nwhile True: u.urlopen('{url}state').read(); time.sleep(1)"
        with subprocess.Popen([sys.executable, "-c", text]) as page:
            try:
                state = json.loads(urllib.request.urlopen(f"{url}state", timeout=10).read())  # noqa: S310 - loopback
                if state["state"] != "running":
                    raise SystemExit(f"the page shows no run that goes on: {state['state']}")
                pids = [watch.pid, page.pid]
                hold(pids)
                yield pids
            finally:
                for process in (page, watch):
                    process.kill()


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
    observing: list[float] = []
    watched: list[float] = []
    cpu: list[float] = []
    page: list[float] = []
    with scratch() as folder, small_cluster(folder, shards) as cluster:
        admin = cluster.client.admin
        admin.command("shardCollection", "bench.points", key={"_id": "hashed"}, numInitialChunks=shards * 2)
        cluster.client.bench.points.insert_many([{"_id": number, "p": "x" * 100} for number in range(DOCUMENTS)])
        uvloop.run(reads(cluster.mongos.port, 2.0))  # warms caches and connections
        with observed(cluster, folder) as observers, watching(folder, folder) as watch:
            for number in rounds(3, 3 if quick else 25, 20 if quick else 240):
                arms: tuple[tuple[list[float], list[int], list[float] | None], ...]
                arms = ((plain, [], None), (observing, observers, cpu), (watched, observers + watch, page))
                for rates, pids, used in arms[:: -1 if number % 2 else 1]:
                    hold(pids, signal.SIGCONT)
                    counted = watch if used is page else pids
                    before = sum(map(cpu_seconds, counted))
                    rates.append(uvloop.run(reads(cluster.mongos.port, seconds)))
                    if used is not None:
                        used.append((sum(map(cpu_seconds, counted)) - before) / seconds * 100)
                    hold(pids)
                say(
                    f"{plain[-1]:,.0f} reads/s alone, {observing[-1]:,.0f} with telemetry, {watched[-1]:,.0f} and watch"
                )
        records = len((folder / "server.jsonl").read_text(encoding="utf-8").splitlines())
    if records < shards * (len(watched) + len(observing)) * seconds * 0.5:
        raise SystemExit(f"telemetry wrote {records} records only: it did not run as it should")
    found.rows.append(
        _lost(f"throughput lost to telemetry, {shards} shards", "the same run without it", observing, plain)
    )
    found.rows.append(_lost(f"throughput lost to watch, {shards} shards", "telemetry alone", watched, observing))
    found.rows.append(absolute(10, f"CPU of both observers, {shards} shards, of one core", cpu, "%"))
    found.rows.append(absolute(10, f"CPU of watch and a page, {shards} shards, of one core", page, "%"))
    return found


def _lost(name: str, baseline: str, rates: list[float], without: list[float]) -> Row:
    estimate = in_turns(rates, without)
    span = estimate.interval
    interval = None if span is None else ((1 - span.high) * 100, (1 - span.low) * 100)
    lost = (1 - estimate.value) * 100
    return Row(10, name, baseline, lost, interval, Target(2.0), unit="%", repetitions=estimate.n)


if __name__ == "__main__":
    sys.exit(alone(measure))
