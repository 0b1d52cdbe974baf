"""From nothing to a sharded collection that takes writes, and back to nothing (rows 1 and 2).

In turn, for each number of shards: `microshard up` and `down` by their commands, everything included; `mlaunch init
--sharded N --replicaset --nodes 1` and `mlaunch kill` with the same mongod and mongos; a shell script that starts the
same mongods one by one and ends them by SIGTERM; and a bare concurrent start until all are primaries, the floor, which
has neither a router nor a cluster. Every way gives each mongod the same cache.
"""

import contextlib
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from bench.alone import BIN, alone, available_mib, rounds, say, scratch, timed
from bench.clusters import log_entries
from bench.findings import Findings, Target, absolute, compared, growth
from bench.shell_script import shell_script
from microshard.backends import local_processes
from microshard.backends.local import port_block
from microshard.embedded.binary import find_mongod
from microshard.records.run_folder import find_runs

CACHE_MIB = 256  # of each mongod, the least mongod takes as an option
MIB_EACH = 200  # RAM of a mongod that has just started, with room
LIMIT = 300  # s, for any one command
EXPERIMENT = """
microshard: 1
name: bench-up
load: {{image: {image}}}
topology:
  shards: {{count: {shards}}}
  storage: {{cache: {{policy: per_process_mb, value: {cache}}}}}
  collections: [{{namespace: vosa.mot_results, shard_key: {{_id: 1}}, presplit: {{policy: key_ranges}}}}]
workload: [{{load: {{engine: insert, documents: 1}}}}, {{measure: {{engine: aggregate, pipeline: mot_greenness}}}}]
"""
Figures = dict[str, float]


def ours(folder: Path, shards: int, image: str = "never") -> Figures:
    """`microshard up` and `down`, s; the memory of the cluster, MiB; how much of it was left."""
    experiment = folder / "experiment.yml"
    experiment.write_text(EXPERIMENT.format(shards=shards, cache=CACHE_MIB, image=image), encoding="utf-8")
    microshard, where = [str(BIN / "microshard")], ["--runs-dir", str(folder / "runs")]
    output: list[str] = []

    def up() -> None:
        done = subprocess.run(
            [*microshard, "up", str(experiment), *where], check=True, capture_output=True, text=True, timeout=LIMIT
        )
        output.append(done.stdout.strip())

    def down() -> None:
        subprocess.run([*microshard, "down", *where], check=True, capture_output=True, timeout=LIMIT)

    try:
        began = time.time()
        up_seconds = timed(up)
        ended = time.time()
        writes(output[0], shards)
        (run,) = find_runs(folder / "runs")[-1:]
        first, last = start_and_primaries(run.path)
        memory = sum(rss_mib(process.pid) for process in local_processes.running(run))
    finally:
        down_seconds = timed(down)
    left = len(local_processes.running(run)) + len(list((run.path / "deployments").glob("*")))
    parts = {"before": first - began, "start": last - first, "cluster": ended - last}
    return {"up": up_seconds, "down": down_seconds, "rss_mib": memory, "left": left, **parts}


def start_and_primaries(run: Path) -> tuple[float, float]:
    """When the first mongod of a run began, and when the last one became a primary, by their logs; epoch, s."""
    first, last = math.inf, 0.0
    for log in run.glob("deployments/*/*/mongod.log"):
        for moment, entry in log_entries(log):
            first = min(first, moment)
            if entry["msg"].startswith("Transition to primary complete"):
                last = max(last, moment)
    return first, last


def writes(connection: str, shards: int) -> None:
    """A document on each shard: the cluster takes writes."""
    with MongoClient[dict[str, object]](connection, serverSelectionTimeoutMS=30_000) as client:
        client.vosa.mot_results.insert_many([{"_id": n << 32} for n in range(shards)])


def rss_mib(pid: int) -> float:
    """Resident memory of a process, MiB; pages that several share count for each."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def mlaunch(folder: Path, shards: int) -> Figures:
    """`mlaunch init` and `mlaunch kill` with the same binaries, s."""
    command, data = [str(BIN / "mlaunch")], ["--dir", str(folder / "mlaunch")]
    with port_block(shards + 2) as port:
        init = [
            *["init", *data, "--sharded", str(shards), "--replicaset", "--nodes", "1", "--config", "1", "--csrs"],
            *["--port", str(port), "--bind_ip", "127.0.0.1", "--binarypath", str(BIN), "--hostname", "127.0.0.1"],
            *["--wiredTigerCacheSizeGB", str(CACHE_MIB / 1024)],
        ]

        def run(*words: str) -> None:
            subprocess.run([*command, *words], check=True, capture_output=True, cwd=folder, timeout=LIMIT)

        try:
            seconds = timed(lambda: run(*init))
        finally:
            # Its default signal is SIGTERM, for which mongod takes its time; 9 is what suits data to be thrown away.
            down = timed(lambda: run("kill", *data, "--signal", "9"))
            for number in range(port, port + shards + 2):  # a killed mongod leaves its socket
                Path(f"/tmp/mongodb-{number}.sock").unlink(missing_ok=True)  # noqa: S108 - mongod's, not ours
    return {"up": seconds, "down": down}


@contextlib.contextmanager
def mongods(folder: Path, count: int) -> Iterator[list[int]]:
    """`count` mongods started at once, killed at the end; yields their ports."""
    started = []
    with port_block(count) as port:
        try:
            for number in range(count):
                data = folder / f"bare{number}"
                data.mkdir()
                role = "--configsvr" if number == 0 else "--shardsvr"
                started.append(
                    subprocess.Popen(
                        [
                            *[str(find_mongod(None)), role, "--replSet", f"rs{number}", "--dbpath", str(data)],
                            *["--port", str(port + number), "--bind_ip", "127.0.0.1", "--nounixsocket"],
                            *["--logpath", str(data / "log"), "--wiredTigerCacheSizeGB", str(CACHE_MIB / 1024)],
                        ],
                        stdout=subprocess.DEVNULL,
                    )
                )
            yield [port + number for number in range(count)]
        finally:
            for process in started:
                process.send_signal(signal.SIGKILL)
            for process in started:
                process.wait()


def bare(folder: Path, shards: int) -> Figures:
    """All mongods at once, each initiated as soon as it answers, until all are primaries, s."""
    started = time.perf_counter()
    with mongods(folder, shards + 1) as ports:
        initiated: dict[int, bool] = dict.fromkeys(ports, False)
        while initiated:
            if time.perf_counter() - started > LIMIT:
                raise TimeoutError(f"no primary on ports {sorted(initiated)} after {LIMIT} s")
            for port in list(initiated):
                with (
                    contextlib.suppress(PyMongoError),
                    MongoClient[dict[str, object]](
                        "127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=50
                    ) as client,
                ):
                    if not initiated[port]:
                        name = f"rs{ports.index(port)}"
                        members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
                        client.admin.command("replSetInitiate", {"_id": name, "members": members})
                        initiated[port] = True
                    if client.admin.command("hello").get("isWritablePrimary"):
                        del initiated[port]
            time.sleep(0.01)
        seconds = time.perf_counter() - started
    return {"up": seconds}


def script(folder: Path, shards: int) -> Figures:
    """A shell script that starts one after the other and ends all by SIGTERM, s."""
    with port_block(shards + 2) as port:
        path = folder / "cluster.sh"
        path.write_text(
            shell_script(folder, port, shards, find_mongod(None), BIN / "mongos", sys.executable, CACHE_MIB),
            encoding="utf-8",
        )

        def run(word: str) -> None:
            subprocess.run(["bash", str(path), word], check=True, capture_output=True, timeout=LIMIT)

        try:
            seconds = timed(lambda: run("up"))
            writes(f"mongodb://127.0.0.1:{port}/", shards)
        finally:
            down = timed(lambda: run("down"))
    return {"up": seconds, "down": down}


WAYS: dict[str, Callable[[Path, int], Figures]] = {"ours": ours, "mlaunch": mlaunch, "script": script, "bare": bare}


def measure(quick: bool) -> Findings:
    """Rows 1 and 2; growth with shards."""
    # shards → (least and most rounds, s for them)
    sizes = {4: (1, 1, 0)} if quick else {1: (2, 3, 15), 4: (2, 3, 40), 16: (3, 5, 200), 32: (1, 1, 0)}
    if not quick:
        sizes[64] = (1, 1, 0)
    found = Findings()
    taken: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for shards, (least, most, seconds) in sizes.items():
        need = MIB_EACH * (shards + 2)
        if available_mib() < need:
            found.missing.append(f"1: {shards} shards need about {need:,} MiB of RAM")
            continue
        # The ways that start one after the other take minutes at 64, and that they grow as they do is seen before.
        ways = {name: way for name, way in WAYS.items() if shards <= 32 or name in {"ours", "bare"}}
        for _ in rounds(least, most, seconds):
            for name, way in ways.items():
                if name == "script" and taken["script up"].get(16) and shards == 16:
                    continue  # it takes longest by far, and has no target
                try:
                    with scratch() as folder:
                        figures = way(folder, shards)
                except (subprocess.SubprocessError, PyMongoError, TimeoutError) as error:
                    if way is ours:
                        raise
                    found.missing.append(f"1: {name} with {shards} shards: {error}")
                    continue
                for key, value in figures.items():
                    taken[f"{name} {key}"].setdefault(shards, []).append(value)
                say(f"{shards} shards, {name}: " + ", ".join(f"{k} {v:.2f}" for k, v in figures.items()))
    _rows(found, taken)
    return found


def _rows(found: Findings, taken: dict[str, dict[int, list[float]]]) -> None:
    names = {"mlaunch": "mlaunch", "script": "a script, one by one", "bare": "bare concurrent start"}
    for shards, up in sorted(taken["ours up"].items()):
        what = f"from nothing to writes, {shards} shard{'' if shards == 1 else 's'}"
        limits = {"mlaunch": Target(0.5), "bare": Target(1.4)} if shards == 16 else {}
        for way, name in names.items():
            if shards in taken[f"{way} up"]:
                note = _made_of(taken, shards) if way == "bare" else ""
                found.rows.append(compared(1, what, up, name, taken[f"{way} up"][shards], "s", limits.get(way), note))
    for shards, down in sorted(taken["ours down"].items()):
        what = f"back to nothing, {shards} shard{'' if shards == 1 else 's'}"
        note = _down_made_of(taken["ours down"], shards) if shards == 16 else ""
        found.rows.append(absolute(2, what, down, "s", Target(2.0) if shards == 16 else None, note))
        for way, name in {"mlaunch": "mlaunch kill", "script": "plain SIGTERM"}.items():
            if shards in taken[f"{way} down"]:
                found.rows.append(compared(2, what, down, name, taken[f"{way} down"][shards], "s"))
    left = [count for counts in taken["ours left"].values() for count in counts]
    found.rows.append(absolute(2, "processes and folders left", [max(left)], "left", Target(0)))
    for key, what, unit in (("up", "up", "s"), ("down", "down", "s"), ("rss_mib", "memory of the cluster", "MiB")):
        found.growths.append(growth(f"microshard, {what}", "shards", unit, taken[f"ours {key}"]))
    for way, name in names.items():
        found.growths.append(growth(f"{name}, up", "shards", "s", taken[f"{way} up"]))


def _made_of(taken: dict[str, dict[int, list[float]]], shards: int) -> str:
    """Where the seconds of ours go, compared with the floor, which ends with the primaries."""
    before, start, cluster = (statistics.median(taken[f"ours {p}"][shards]) for p in ("before", "start", "cluster"))
    return (
        f"{shards} shard{'' if shards == 1 else 's'}: {before:.1f} s until the first mongod begins (command, plan, "
        f"Ansible), {start:.1f} s until all are primaries (what the floor ends with), {cluster:.1f} s to add the "
        "shards one after the other, to create the collection with a chunk on each, and to say so"
    )


def _down_made_of(down: dict[int, list[float]], shards: int) -> str:
    """What of the seconds is spent whatever there is to end."""
    one, many = statistics.median(down[1]), statistics.median(down[shards])
    return (
        f"{shards} shards: {many:.2f} s where one shard takes {one:.2f} s: they are spent whatever there is to end "
        "(the command, Ansible, its tasks, compressing logs)"
    )


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(alone(measure))
