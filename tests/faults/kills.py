"""The kill campaign: every part of a run is hit at every stage, and `microshard resume` must mend what that broke."""

import itertools
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from microshard.backends import local_processes
from microshard.hostlib.files import sha256
from microshard.records.data_images import folder_of, kept_images
from microshard.records.run_folder import RunFolder
from tests.faults.neighbours import Neighbours
from tests.faults.table import Row, traceback_in
from tests.faults.watched import Watched, answers, below, left, listens, state, whole_results, words

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP)
LONGEST = 240.0  # seconds a command may take on a busy machine
TRIES = 4  # times a run is taken up without another fault before it counts as lost
MOMENTS = {
    "runner": ("prepare", "deploy", "unpause", "load", "measure", "pause", "between", "teardown", "report"),
    "ansible-playbook": ("deploy", "unpause", "load", "measure", "pause", "teardown"),
    "engine": ("load", "measure"),
    "shard": ("deploy", "load", "measure", "pause", "teardown"),
    "config server": ("deploy", "load", "measure", "pause", "teardown"),
    "mongos": ("deploy", "load", "measure", "pause", "teardown"),
    "router mongod": ("deploy", "load", "measure", "pause", "teardown"),
}
# Of runs that keep data images and are restored from them, by the deployment of a second repetition too.
OF_IMAGES = {
    "runner": ("deploy", "keep_data", "teardown"),
    "ansible-playbook": ("deploy", "keep_data"),
    "shard": ("deploy", "keep_data"),
    "config server": ("deploy", "keep_data"),
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


IMAGES = "images"  # a sharded cluster that is kept as data images and restored
KINDS = ("standalone", "sharded", IMAGES)
REPETITIONS = 2


def definition(kind: str, repetitions: int = REPETITIONS) -> dict[str, Any]:
    """The cheapest experiment that has every stage: two points that take turns on this machine."""
    topology: dict[str, Any] = {
        "kind": "standalone" if kind == "standalone" else "sharded",
        "storage": {"cache": {"policy": "host_total_mb", "value": 256}},
    }
    if kind != "standalone":
        topology["shards"] = {"count": 1}
    images = {"load": {"image": "use"}, "order": {"seed": 1, "redeploy": "per_repetition"}}
    return {
        "microshard": 1,
        "name": f"kills-{kind}",
        "topology": topology,
        "workload": [
            {"load": {"engine": "insert", "documents": 3000, "seed": 7}},
            {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 60}},
        ],
        "matrix": {"topology.storage.block_compressor": ["zlib", "none"]},
        "repetitions": repetitions,
        "order": {"seed": 1},
        **(images if kind == IMAGES else {}),
    }


@dataclass
class Campaign:
    """Kills upon runs in a folder."""

    folder: Path
    rng: random.Random
    tell: Callable[[str], None] = lambda _: None
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    expected: dict[str, dict[str, list[Any]]] = field(default_factory=dict)  # kind → answers of an undisturbed run
    count: int = 0
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
                local_processes.clean(RunFolder(run))

    def execute(self, seconds: float, most: int, kind: str) -> list[Row]:
        """As many kills as fit into the time, `most` at the most; a run that was begun is ended.

        The undisturbed run comes on top.
        """
        self._undisturbed(kind)
        until = time.monotonic() + seconds
        wanted: list[Kill] = []
        while time.monotonic() < until and self.count < most:
            wanted = wanted or self._round(kind)
            before = self.count
            self._broken_run(kind, wanted, min(self.rng.randrange(8, 20), most - self.count), until)
            if self.wrong or self.leftover:
                break
            if self.count == before:
                self.tell(f"given up, as no run came to it: {', '.join(map(str, wanted))}")
                wanted = []
        return self._result()

    def _result(self) -> list[Row]:
        return list(self.rows.values()) or [Row("kills", "nowhere")]

    @staticmethod
    def everything(kind: str) -> list[Kill]:
        """Every victim, signal and stage once."""
        if kind == IMAGES:
            return [Kill(v, s, stage) for v, stages in OF_IMAGES.items() for s in SIGNALS for stage in stages]
        victims = [v for v in MOMENTS if (v in ALONE) == (kind == "standalone")]
        if kind == "sharded":
            victims += ["runner", "shard"]
        return [Kill(v, s, stage) for v in victims for s in SIGNALS for stage in (*MOMENTS[v], "any")]

    def _round(self, kind: str) -> list[Kill]:
        wanted = self.everything(kind)
        self.rng.shuffle(wanted)
        return wanted

    def _start(self, kind: str, *arguments: str, run: RunFolder | None = None) -> Watched:
        path = self.folder / f"{kind}.yml"
        if not path.exists():
            with path.open("w", encoding="utf-8") as file:
                YAML(typ="safe").dump(definition(kind), file)
        return Watched(arguments or ("run", str(path)), self.folder, self.token, run)

    def _undisturbed(self, kind: str) -> None:
        began = time.monotonic()
        watched = self._start(kind)
        code = watched.process.wait(timeout=LONGEST)
        run = watched.found_run()
        assert code == 0 and run is not None, watched.said()  # noqa: PT018
        watched.close()
        self.neighbours.beside(run)
        self.expected[kind] = answers(run)
        assert len(self.expected[kind]) == 2 * REPETITIONS, self.expected
        assert left(run, self.token) == []
        took = time.monotonic() - began
        self.tell(f"{kind}: undisturbed, {len(self.expected[kind])} measurements in {took:.1f} s")

    def _broken_run(self, kind: str, wanted: list[Kill], most: int, until: float) -> None:
        """A run that is hit again and again, taken up each time, and left in peace at the end."""
        self.kept = {}
        shutil.rmtree(folder_of(self.folder / "runs"), ignore_errors=True)  # so that images are made again
        run: RunFolder | None = None
        hits: list[Kill] = []
        while wanted and len(hits) < most and not self._complete(run, kind):
            if hits and time.monotonic() > until:
                break
            watched = self._start(kind, *(("resume", run.run_id) if run else ()), run=run)
            now = self._hits(watched, wanted, most - len(hits))
            hits += now
            code = self._ended(watched, now)
            run = self._after(watched, now, code)
            if run is not None:
                self.neighbours.beside(run)
            self.tell(f"{self.count} kills; {', '.join(map(str, now)) or 'nothing that is wanted'}: exit code {code}")
            if self.wrong or self.leftover or not now:
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
        fault = f"{kill.signal.name} to {kill.victim}"
        self.rows.setdefault((kill.signal.name, kill.victim), Row(fault, "")).add(Row(fault, kill.stage, 1))

    def _hits(self, watched: Watched, wanted: list[Kill], most: int) -> list[Kill]:
        """Follow a command from stage to stage and hit in each what is still wanted there, until it ends.

        The first stages come with every command and the last ones seldom, so a kill is taken when its stage comes
        and not waited for. What was hit goes from `wanted`.
        """
        done: list[Kill] = []
        deadline = time.monotonic() + LONGEST
        passed = ""
        while len(done) < most and not watched.is_over and time.monotonic() < deadline:
            stage = watched.stage()
            kill = self._fitting(wanted, stage) if stage != passed else None
            passed = stage
            if kill is not None and self._hit(watched, kill):
                wanted.remove(kill)
                done.append(kill)
                self._count(kill)
                if kill.victim == "runner" and kill.signal != signal.SIGSTOP:
                    break
                passed = watched.stage()
            time.sleep(0.01)
        return done

    def _fitting(self, wanted: Sequence[Kill], stage: str) -> Kill | None:
        """What is to be hit in this stage: the first that is wanted, and now and then something at any moment."""
        stages = {"any"} if self.rng.random() < 0.1 else {stage}
        return next((kill for kill in wanted if kill.stage in stages), None)

    def _hit(self, watched: Watched, kill: Kill) -> bool:
        """Send the signal once the victim is there, within the stage; whether it came to that."""
        if kill.stage == "any":
            self._wait(watched, self.rng.uniform(0.0, 4.0))
        elif kill.victim in {"runner", "shard"}:
            time.sleep(self.rng.uniform(0.0, 0.3))  # not only the beginning of a stage
        until = time.monotonic() + (2.0 if kill.stage == "any" else LONGEST)
        while not watched.is_over and time.monotonic() < until:
            pids = self._pids(watched, kill.victim)
            if pids:
                return self._send(self.rng.choice(pids), kill.signal)
            time.sleep(0.01)
            if kill.stage not in {"any", watched.stage()}:
                return False
        return False

    @staticmethod
    def _wait(watched: Watched, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not watched.is_over and time.monotonic() < until:
            time.sleep(0.01)

    def _pids(self, watched: Watched, victim: str) -> list[int]:
        if victim == "runner":
            return [watched.process.pid] if listens(watched.process.pid) else []
        if victim == "ansible-playbook":
            playbook = watched.ansible()
            return [playbook[0], *watched.ansible_server()] if playbook else []
        if victim == "engine":
            engine = watched.engine()
            return [engine] if engine and listens(engine) else []
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

    def _ended(self, watched: Watched, hits: Sequence[Kill]) -> int:
        try:
            return watched.process.wait(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"{_names(hits)}: no end after {LONGEST:.0f} s: {watched.said()[-500:]}")
            watched.process.kill()
            return watched.process.wait()
        finally:
            watched.close()

    def _after(self, watched: Watched, hits: Sequence[Kill], code: int) -> RunFolder | None:
        """The checks that hold right after a process has ended, resumed or not."""
        run = watched.found_run()
        when = _names(hits)
        said = Path(watched.log.name).read_text(encoding="utf-8", errors="replace")
        self.wrong += [f"{when}: {wrong}" for wrong in traceback_in(said)]
        allowed = _allowed(hits)
        if code not in allowed:
            self.wrong.append(f"{when}: exit code {code}, not one of {sorted(allowed)}: {said[-800:]}")
        if code > 128 and run is not None and watched.journal_at and not watched.events():
            self._collect(run, when)  # stopped before it had looked at what an earlier process was forced to leave
        elif code >= 0:
            self.leftover += [f"right after {when}: {item}" for item in left(run, self.token)]
        if run is None:
            return None
        self._compare(run, when)
        if code < 0 and self.rng.random() < 0.3:
            self._collect(run, when)
        if "steps" not in _text(run / "plan.json"):
            self._collect(run, when)
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
        collected = self._start("", "gc", "--on", "local", run=run)
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
        found, expected = answers(run), self.expected[kind]
        if found != expected or not all(found.values()):
            self.wrong.append(f"the measurements are {found}, not {expected}")
        names = [f"{r.point}/{r.name}" for r in run.journal.records() if r.event == "step done"]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            self.wrong.append(f"measured twice: {', '.join(twice)}")
        if not (run / "report" / "report.html").is_file():
            self.wrong.append("there is no report")
        self.leftover += left(run, self.token)
        self.wrong += [*self.neighbours.harmed(), *damaged_images(self.folder / "runs")]


def damaged_images(runs: Path) -> Iterator[str]:
    """Whatever was killed, an image that has its name is whole."""
    for kept in kept_images(runs):
        for file in kept.image.files if kept.image else ():
            if sha256(str(kept.path / "data" / file.path)) != file.sha256:
                yield f"{kept.path.name}: {file.path} is not what was kept"
        if kept.image is None:
            yield f"{kept.path.name} has no manifest"


def _names(hits: Sequence[Kill]) -> str:
    return ", ".join(map(str, hits)) or "nothing"


def _allowed(hits: Sequence[Kill]) -> set[int]:
    """The exit codes that may follow. Whatever else was hit, a signal that ends the runner is the last one."""
    last = hits[-1] if hits and hits[-1].victim == "runner" else None
    over = {0, 3} if last and last.stage in {"report", "any"} else set()  # it was over
    if last and last.signal in {signal.SIGTERM, signal.SIGINT}:
        return over | {128 + last.signal}
    if last and last.signal == signal.SIGKILL:
        return over | {-last.signal}
    return {0, 3}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def campaign(
    seed: int,
    folder: Path,
    seconds: float,
    most: int = 10**6,
    tell: Callable[[str], None] = lambda _: None,
    kinds: Sequence[str] = KINDS,
) -> list[Row]:
    """Kills for a while, in an order that the seed decides, upon runs of all these kinds.

    The kinds at the same time, each in a folder of its own: a command waits more than it computes, and so what is done
    to the runs of one kind, `gc` above all, must leave those of the other alone.
    """

    def lane(kind: str) -> list[Row]:
        rng = random.Random(f"{seed} {kind}")
        one = Campaign(folder / kind, rng, lambda what: tell(f"{kind}: {what}"))
        try:
            return one.execute(seconds, most // len(kinds), kind)
        finally:
            one.close()

    rows: dict[str, Row] = {}
    with ThreadPoolExecutor(len(kinds)) as pool:
        for row in itertools.chain.from_iterable(pool.map(lane, kinds)):
            rows.setdefault(row.fault, Row(row.fault, "")).add(row)
    return list(rows.values())
