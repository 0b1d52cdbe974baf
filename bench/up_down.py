"""From nothing to a sharded collection ready for writes, and back, beside mlaunch and a bare concurrent start.

    .venv/bin/python bench/up_down.py [--shards 16] [--rounds 3]

Alternates in one run: `microshard up` / `down` (by their commands, everything included), `mlaunch init --sharded N
--replicaset --nodes 1` / `mlaunch kill` with the same mongod and mongos, and a bare concurrent start of N mongods and a
config server until all are primaries (the floor). Prints seconds, medians and ratios, and the memory of our cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from microshard.embedded.binary import find_mongod
from microshard.run import leftovers
from microshard.run.folder import find_runs
from microshard.run.place import port_block

BIN = Path(sys.executable).parent
EXPERIMENT = """
microshard: 1
name: bench-up
topology:
  shards: {{count: {shards}}}
  storage: {{cache: {{policy: host_total_mb, value: 1024}}}}
  collections: [{{namespace: vosa.mot_results, shard_key: {{_id: 1}}, presplit: {{policy: key_ranges}}}}]
workload: [{{load: {{engine: insert, documents: 1}}}}, {{measure: {{engine: aggregate, pipeline: mot_greenness}}}}]
"""


def timed(action: Callable[[], object]) -> float:
    """Seconds an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def rss_mib(folder: Path) -> float:
    """Resident memory of all processes of the newest run, MiB; shared pages count for each."""
    (run,) = find_runs(folder)[-1:]
    total = 0.0
    for process in leftovers.running(run):
        for line in Path(f"/proc/{process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) / 1024
    return total


def ours(folder: Path, shards: int) -> dict[str, float]:
    """`microshard up` and `down`, seconds; the memory of the cluster, MiB."""
    experiment = folder / "experiment.yml"
    experiment.write_text(EXPERIMENT.format(shards=shards), encoding="utf-8")
    microshard = [str(BIN / "microshard")]
    where = ["--runs-dir", str(folder / "runs")]
    output: list[str] = []

    def up() -> None:
        done = subprocess.run([*microshard, "up", str(experiment), *where], check=True, capture_output=True, text=True)
        output.append(done.stdout.strip())

    up_seconds = timed(up)
    try:
        with MongoClient[dict[str, object]](output[0]) as client:
            client.vosa.mot_results.insert_many([{"_id": n << 32} for n in range(shards)])
        memory = rss_mib(folder / "runs")
    finally:
        down_seconds = timed(lambda: subprocess.run([*microshard, "down", *where], check=True, capture_output=True))
    return {"up": up_seconds, "down": down_seconds, "rss_mib": memory}


def mlaunch(folder: Path, shards: int) -> dict[str, float]:
    """`mlaunch init` and `mlaunch kill` with the same binaries, seconds."""
    command = [str(BIN / "mlaunch")]
    data = ["--dir", str(folder / "mlaunch")]
    with port_block(shards + 2) as port:
        init = [
            *["init", *data, "--sharded", str(shards), "--replicaset", "--nodes", "1", "--config", "1", "--csrs"],
            *["--port", str(port), "--bind_ip", "127.0.0.1", "--binarypath", str(BIN), "--hostname", "127.0.0.1"],
        ]
        seconds = timed(lambda: subprocess.run([*command, *init], check=True, capture_output=True, cwd=folder))
        down = timed(
            lambda: subprocess.run([*command, "kill", *data, "--signal", "9"], check=True, capture_output=True)
        )
        for number in range(port, port + shards + 2):  # a killed mongod leaves its socket
            (Path(tempfile.gettempdir()) / f"mongodb-{number}.sock").unlink(missing_ok=True)
    return {"up": seconds, "down": down}


@contextlib.contextmanager
def mongods(folder: Path, count: int) -> Iterator[list[int]]:
    """`count` mongods started at once, killed at the end; yields their ports."""
    started = []
    with port_block(count) as port:
        for number in range(count):
            data = folder / f"bare{number}"
            data.mkdir()
            role = "--configsvr" if number == 0 else "--shardsvr"
            started.append(
                subprocess.Popen(
                    [
                        *[str(find_mongod(None)), role, "--replSet", f"rs{number}", "--dbpath", str(data)],
                        *["--port", str(port + number), "--bind_ip", "127.0.0.1", "--nounixsocket"],
                        *["--logpath", str(data / "log"), "--wiredTigerCacheSizeGB", "0.25"],
                    ],
                    stdout=subprocess.DEVNULL,
                )
            )
        try:
            yield [port + number for number in range(count)]
        finally:
            for process in started:
                process.send_signal(signal.SIGKILL)
            for process in started:
                process.wait()


def bare(folder: Path, shards: int) -> dict[str, float]:
    """All mongods at once, each initiated as soon as it answers, until all are primaries: the floor, seconds."""
    started = time.perf_counter()
    with mongods(folder, shards + 1) as ports:
        waiting = dict.fromkeys(ports, False)
        while waiting:
            for port in list(waiting):
                with (
                    contextlib.suppress(PyMongoError),
                    MongoClient[dict[str, object]](
                        "127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=50
                    ) as client,
                ):
                    if not waiting[port]:
                        name = f"rs{ports.index(port)}"
                        members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
                        client.admin.command("replSetInitiate", {"_id": name, "members": members})
                        waiting[port] = True
                    if client.admin.command("hello").get("isWritablePrimary"):
                        del waiting[port]
            time.sleep(0.01)
        seconds = time.perf_counter() - started
    return {"up": seconds}


def main() -> None:
    """Run the rounds and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["ours", "mlaunch", "bare"], action="append")
    options = parser.parse_args()
    ways = {"ours": ours, "mlaunch": mlaunch, "bare": bare}
    chosen = options.only or list(ways)
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name in chosen:
            folder = Path(tempfile.mkdtemp(prefix="microshard-bench-"))
            try:
                for key, value in ways[name](folder, options.shards).items():
                    found.setdefault(f"{name} {key}", []).append(value)
                    print(f"{name} {key}: {value:.2f}", file=sys.stderr, flush=True)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    medians = {name: statistics.median(values) for name, values in found.items()}
    ratios = {
        f"{way}: ours / {other}": medians[f"ours {way}"] / medians[f"{other} {way}"]
        for other in ("mlaunch", "bare")
        for way in ("up", "down")
        if f"ours {way}" in medians and f"{other} {way}" in medians
    }
    print(
        json.dumps(
            {"shards": options.shards, "cores": os.cpu_count(), "median": medians, "ratio": ratios, "all": found},
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
