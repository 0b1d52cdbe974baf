"""The kill campaign: every part of a run is hit at every stage, and `microshard resume` must mend what that broke."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymongo
from ruamel.yaml import YAML

from microshard.embedded.binary import find_mongod
from microshard.run import leftovers
from microshard.run.folder import RunFolder
from tests.faults.table import Row
from tests.faults.watched import Watched, answers, below, left, state, whole_results, words

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP)
LONGEST = 240.0  # seconds a command may take on a busy machine
TRIES = 4  # times a run is taken up without another fault before it counts as lost
MOMENTS = {
    "runner": ("prepare", "deploy", "unpark", "load", "measure", "park", "between", "teardown", "report"),
    "ansible-playbook": ("deploy", "unpark", "load", "measure", "park", "teardown"),
    "engine": ("load", "measure"),
    "shard": ("deploy", "load", "measure", "park", "teardown"),
    "config server": ("deploy", "load", "measure", "park", "teardown"),
    "mongos": ("deploy", "load", "measure", "park", "teardown"),
    "router mongod": ("deploy", "load", "measure", "park", "teardown"),
}
ALONE = ("runner", "ansible-playbook", "engine", "shard")  # what a standalone mongod has too: quicker


@dataclass(frozen=True, slots=True)
class Kill:
    """Who is hit by what, and when."""

    victim: str
    signal: signal.Signals
    stage: str  # or "any"

    def __str__(self) -> str:
        return f"{self.signal.name} to {self.victim} at {self.stage}"


def definition(kind: str) -> dict[str, Any]:
    """The cheapest experiment that has every stage: two points that take turns on this machine."""
    topology: dict[str, Any] = {
        "kind": kind,
        "storage": {"cache": {"policy": "host_total_mb", "value": 256}},
    }
    if kind == "sharded":
        topology["shards"] = {"count": 1}
    return {
        "microshard": 1,
        "name": f"kills-{kind}",
        "topology": topology,
        "workload": [
            {"load": {"engine": "insert", "documents": 3000, "seed": 7}},
            {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 60}},
        ],
        "matrix": {"topology.storage.block_compressor": ["zlib", "none"]},
        "repetitions": 2,
        "order": {"seed": 1},
    }


class Neighbours:
    """Things of somebody else, beside and like ours: none may be touched."""

    def __init__(self, folder: Path) -> None:
        # Below the folder of the runs and called like a deployment, but of no run.
        self.data = folder / "runs" / "kills-of-others" / "deployments" / "p01" / "shard01" / "data"
        self.data.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.mongod = subprocess.Popen(
            [str(find_mongod(None)), "--dbpath", str(self.data), "--port", str(self.port), "--bind_ip", "127.0.0.1",
             "--nounixsocket", "--logpath", str(self.data.parent / "mongod.log"), "--wiredTigerCacheSizeGB", "0.25"],
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        with self._client(60_000) as client:
            client.neighbour.things.insert_one({"_id": 1})
        self.files: list[Path] = []

    def _client(self, patience: int) -> pymongo.MongoClient[dict[str, Any]]:
        return pymongo.MongoClient("127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=patience)

    def beside(self, run: RunFolder) -> None:
        """Folders whose names are nearly that of the run."""
        for name in (f"{run.run_id}-2", run.run_id[:-1], f"{run.run_id}.old"):
            file = run.path.parent / name / "deployments" / "p01" / "file"
            if file not in self.files:
                file.parent.mkdir(parents=True)
                file.write_text("not yours", encoding="utf-8")
                self.files.append(file)

    def harmed(self) -> Iterator[str]:
        """What of them is not as it was."""
        if self.mongod.poll() is not None:
            yield "a mongod of somebody else was ended"
            return
        with self._client(20_000) as client:
            if client.neighbour.things.count_documents({}) != 1:
                yield "a mongod of somebody else has lost its data"
        for file in self.files:
            if not file.is_file() or file.read_text(encoding="utf-8") != "not yours":
                yield f"{file} of somebody else is gone"

    def close(self) -> None:
        """End the mongod; the folders go with the campaign's."""
        self.mongod.kill()
        self.mongod.wait()


@dataclass
class Campaign:
    """Kills upon runs in a folder."""

    folder: Path
    rng: random.Random
    tell: Callable[[str], None] = lambda _: None
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    expected: dict[str, dict[str, list[Any]]] = field(default_factory=dict)  # kind → answers of an undisturbed run
    count: int = 0
    missed: int = 0
    token: str = ""
    kept: dict[str, bytes] = field(default_factory=dict)  # results of the present run that are finished
    wrong: list[str] = field(default_factory=list)
    leftover: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.token = f"{os.getpid()}-{self.rng.randrange(10**9)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.neighbours = Neighbours(self.folder)

    def close(self) -> None:
        """End what a failed check may have left, by its pid."""
        self.neighbours.close()
        for run in (self.folder / "runs").iterdir():
            if (run / "run.json").exists():
                leftovers.clean(RunFolder(run))

    def execute(self, seconds: float, most: int, kinds: Sequence[str]) -> list[Row]:
        """As many kills as fit into the time, `most` at the most; a run that was begun is ended.

        The same time for each kind, so that every victim has its turn; the undisturbed runs come on top.
        """
        for number, kind in enumerate(kinds, start=1):
            self._undisturbed(kind)
            wanted = self._plan(kind)
            began = time.monotonic()
            while (
                wanted and time.monotonic() - began < seconds / len(kinds) and self.count < most * number / len(kinds)
            ):
                self._broken_run(kind, wanted, self.rng.randrange(4, 9), began + seconds / len(kinds))
                if self.wrong or self.leftover:
                    return self._told()
        return self._told()

    def _told(self) -> list[Row]:
        return list(self.rows.values()) or [Row("kills", "nowhere")]

    def _plan(self, kind: str) -> list[Kill]:
        """Every victim, signal and stage once in random order, again and again, and random moments."""
        victims = [v for v in MOMENTS if (v in ALONE) == (kind == "standalone")]
        if kind == "sharded":
            victims += ["runner", "shard"]
        plan: list[Kill] = []
        for _ in range(20):
            each = [Kill(v, s, stage) for v in victims for s in SIGNALS for stage in (*MOMENTS[v], "any")]
            self.rng.shuffle(each)
            plan += each
        plan.reverse()  # taken from the end
        return plan

    def _start(self, kind: str, *arguments: str, run: RunFolder | None = None) -> Watched:
        path = self.folder / f"{kind}.yml"
        if not path.exists():
            with path.open("w", encoding="utf-8") as file:
                YAML(typ="safe").dump(definition(kind), file)
        return Watched(arguments or ("run", str(path)), self.folder, self.token, run)

    def _undisturbed(self, kind: str) -> None:
        watched = self._start(kind)
        code = watched.process.wait(timeout=LONGEST)
        run = watched.found_run()
        assert code == 0 and run is not None, watched.said()  # noqa: PT018
        watched.close()
        self.neighbours.beside(run)
        self.expected[kind] = answers(run)
        assert len(self.expected[kind]) == 4, self.expected
        assert left(run, self.token) == []
        self.tell(f"{kind}: undisturbed, {len(self.expected[kind])} measurements")

    def _broken_run(self, kind: str, wanted: list[Kill], most: int, until: float) -> None:
        """A run that is hit again and again, taken up each time, and left in peace at the end."""
        self.kept = {}
        run: RunFolder | None = None
        hits: list[Kill] = []
        while wanted and len(hits) < most and not self._complete(run, kind):
            if hits and time.monotonic() > until:
                break
            kill = wanted.pop()
            watched = self._start(kind, *(("resume", run.run_id) if run else ()), run=run)
            hit = self._hit(watched, kill)
            while hit and kill.signal == signal.SIGSTOP and wanted and len(hits) + 1 < most:
                # Nothing is broken by that, so the same process is hit again.
                hits.append(kill)
                self._count(kill)
                kill = wanted.pop()
                hit = self._hit(watched, kill)
            if hit:
                hits.append(kill)
                self._count(kill)
            else:
                self.missed += 1
                wanted.insert(0, kill)
            code = self._ended(watched, kill)
            run = self._after(watched, kill, code, hit=hit)
            if run is not None:
                self.neighbours.beside(run)
            self.tell(f"{self.count} kills; {kill}{'' if hit else ' (did not come to it)'}: exit code {code}")
            if self.wrong or self.leftover:
                break
        if not self.wrong and not self.leftover:
            self._in_peace(kind, run)
        blamed = self.rows.get((hits[-1].signal.name, hits[-1].victim)) if hits else None
        blamed = blamed or self.rows.setdefault(("none", "undisturbed"), Row("none", "undisturbed"))
        history = ", ".join(map(str, hits))
        where = run.run_id if run else "no run"
        blamed.lost += [f"{where}: {item}; after {history}" for item in self.wrong]
        blamed.left += [f"{where}: {item}; after {history}" for item in self.leftover]

    def _complete(self, run: RunFolder | None, kind: str) -> bool:
        return run is not None and set(self.kept) == set(self.expected[kind])

    def _count(self, kill: Kill) -> None:
        self.count += 1
        row = self.rows.setdefault((kill.signal.name, kill.victim), Row(f"{kill.signal.name} to {kill.victim}", ""))
        row.times += 1
        row.where = ", ".join(dict.fromkeys([*filter(None, row.where.split(", ")), kill.stage]))

    def _hit(self, watched: Watched, kill: Kill) -> bool:
        """Wait for the moment and send the signal; whether it came to that."""
        deadline = time.monotonic() + LONGEST
        random_moment = time.monotonic() + self.rng.uniform(0.0, 20.0)
        while not watched.is_over and time.monotonic() < deadline:
            stage = watched.stage()
            if stage == kill.stage or (kill.stage == "any" and time.monotonic() > random_moment):
                if kill.victim in {"runner", "shard"}:
                    time.sleep(self.rng.uniform(0.0, 0.3))  # not only the beginning of a stage
                pids = self._pids(watched, kill.victim)
                if pids:
                    return self._send(self.rng.choice(pids), kill.signal)
            time.sleep(0.01)
        return False

    def _pids(self, watched: Watched, victim: str) -> list[int]:
        if victim == "runner":
            return [] if watched.is_over else [watched.process.pid]
        if victim == "ansible-playbook":
            playbook = watched.ansible()
            return [playbook[0]] if playbook else []
        if victim == "engine":
            engine = watched.engine()
            return [engine] if engine else []
        if victim == "router mongod":
            routers = [pid for front in watched.servers("mongos") for pid in below(front)]
            return [pid for pid in routers if words(pid)[:1] and Path(words(pid)[0]).name == "mongod"]
        if victim == "shard":
            return watched.servers("shard") + watched.servers("mongod")
        return watched.servers({"mongos": "mongos", "config server": "config"}[victim])

    def _send(self, pid: int, number: signal.Signals) -> bool:
        try:
            os.kill(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(self.rng.uniform(0.3, 1.5))
                if state(pid) == "T":
                    os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return False
        return True

    def _ended(self, watched: Watched, kill: Kill) -> int:
        try:
            return watched.process.wait(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"{kill}: no end after {LONGEST:.0f} s: {watched.said()[-500:]}")
            watched.process.kill()
            return watched.process.wait()
        finally:
            watched.close()

    def _after(self, watched: Watched, kill: Kill, code: int, *, hit: bool) -> RunFolder | None:
        """The checks that hold right after a process has ended, resumed or not."""
        run = watched.found_run()
        said = Path(watched.log.name).read_text(encoding="utf-8", errors="replace")
        if "Traceback" in said:
            self.wrong.append(f"{kill}: a traceback: {said[-800:]}")
        allowed = _allowed(watched, kill, hit=hit)
        if code not in allowed:
            self.wrong.append(f"{kill}: exit code {code}, not one of {sorted(allowed)}: {said[-800:]}")
        if code >= 0:
            self.leftover += [f"right after {kill}: {item}" for item in left(run, self.token)]
        if run is None:
            return None
        self._compare(run, str(kill))
        if code < 0 and self.rng.random() < 0.3:
            self._collect(run, str(kill))
        if "steps" not in _text(run / "plan.json"):
            self._collect(run, str(kill))
            return None  # it broke off before it had a plan, and is begun anew
        return run

    def _compare(self, run: RunFolder, when: str) -> None:
        """Finished measurements are what they were."""
        try:
            now = whole_results(run)
        except OSError as error:
            self.wrong.append(f"{when}: a finished result is gone: {error}")
            return
        for name, data in self.kept.items():
            if now.get(name) != data:
                self.wrong.append(f"{when}: the finished result {name} is {'gone' if name not in now else 'another'}")
        self.kept |= now

    def _collect(self, run: RunFolder, when: str) -> None:
        collected = self._start("", "gc", "--on", "here", run=run)
        code = collected.process.wait(timeout=LONGEST)
        collected.close()
        if code != 0:
            self.wrong.append(f"{when}: gc ended with {code}: {Path(collected.log.name).read_text()[-500:]}")
        self.leftover += [f"gc after {when}: {item}" for item in left(run, self.token)]

    def _in_peace(self, kind: str, run: RunFolder | None) -> None:
        """Without another fault the run ends as an undisturbed one."""
        code, said = -1, ""
        for _ in range(TRIES):
            watched = self._start(kind, *(("resume", run.run_id) if run else ()), run=run)
            code = watched.process.wait(timeout=LONGEST)
            said = watched.said()
            watched.close()
            run = watched.found_run()
            if code == 0 and run is not None:
                break
        if code != 0 or run is None:
            self.wrong.append(f"resume ends with {code}: {said[-1500:]}")
            return
        self._compare(run, "resume")
        if answers(run) != self.expected[kind]:
            self.wrong.append(f"the measurements are {answers(run)}, not {self.expected[kind]}")
        names = [f"{r['point']}/{r['name']}" for r in run.journal.records() if r.get("event") == "step done"]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            self.wrong.append(f"measured twice: {', '.join(twice)}")
        if not (run / "report" / "report.html").is_file():
            self.wrong.append("there is no report")
        self.leftover += left(run, self.token)
        self.wrong += self.neighbours.harmed()


def _allowed(watched: Watched, kill: Kill, *, hit: bool) -> set[int]:
    """The exit codes that may follow."""
    aimed = hit and kill.victim == "runner"
    if aimed and kill.signal in {signal.SIGTERM, signal.SIGINT}:
        allowed = {128 + kill.signal}
        if not watched.events():
            allowed.add(-kill.signal)  # Python itself was still starting, and nothing was touched
        if kill.stage in {"report", "any"}:
            allowed.add(0)  # it was over
    elif aimed and kill.signal == signal.SIGKILL:
        allowed = {-kill.signal, 0} if kill.stage in {"report", "any"} else {-kill.signal}
    else:
        allowed = {0, 3}
    return allowed


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def campaign(
    seed: int,
    folder: Path,
    seconds: float,
    most: int = 10**6,
    kinds: Sequence[str] = ("standalone", "sharded"),
    tell: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Kills for a while, in an order that the seed decides, upon runs of these kinds."""
    whole = Campaign(folder, random.Random(seed), tell)
    try:
        return whole.execute(seconds, most, kinds)
    finally:
        whole.close()
