"""The numbers of a run while it goes on, from the files it writes anyway: journal, results, progress and telemetry.

Nothing of the run is touched, and its servers are left alone. What lies on other hosts until a step has ended
(telemetry and progress of runs on hosts) is shown when it is there.
"""

import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

from rich.console import Console

from microshard.analysis.evidence import ROLES
from microshard.analysis.telemetry import parse
from microshard.errors import RunFolderError
from microshard.model.plan import Plan, Step
from microshard.model.result import ProgressLine
from microshard.model.run_records import JournalEvent
from microshard.model.telemetry import HostRecord, ServerRecord
from microshard.records.run_folder import PLAN, RunFolder
from microshard.report.table import LivePoint
from microshard.run.catalog import NOT_RUNNING, state
from microshard.run.progress import Progress

MOST = 120  # records kept of each file: two minutes
_ENDINGS = {
    "orphaned": "microshard was killed and processes of the run are left: microshard resume {0} continues it, "
    "microshard down {0} ends it, microshard gc removes what is left.",
    "aborted": "microshard was killed before the run had ended: microshard resume {0} continues it.",
    "up": "Its clusters stay up until microshard down {0}.",
    NOT_RUNNING: "None of its servers runs any more: microshard down {0} removes what is left.",
    "stopped": "It was stopped: microshard resume {0} continues it.",
}


@dataclasses.dataclass(slots=True)
class LivePhase:
    """The present phase, as its engine reports it."""

    name: str
    done: float
    of: float
    unit: str
    note: str
    rate: float | None  # units per s over the last lines


@dataclasses.dataclass(slots=True)
class ObservedProcess:
    """A process in the last second."""

    name: str
    host: str
    role: str
    cpu: float  # cores
    limit: float | None  # cores it may use
    rss: float  # bytes
    throttled: float | None


@dataclasses.dataclass(slots=True)
class LiveRun:
    """Everything the page and Prometheus show. Series are pairs of epoch seconds and value."""

    run: str
    experiment: str
    title: str
    state: str  # as `catalog.state` gives it
    sentence: str  # what to do about that state; empty while it goes on
    stage: str
    where: str  # point and step
    started: float | None  # epoch seconds
    now: float  # of the figures: the last event where the run has ended
    done: int
    planned: int
    share: float  # of the estimated time, 0 to 1
    seconds_left: float | None
    usd_per_hour: float | None
    usd_left: float | None
    report: bool  # whether it is written
    metric: str = ""  # of the points, with its unit
    unit: str = ""
    phase: LivePhase | None = None
    points: list[LivePoint] = dataclasses.field(default_factory=list)
    processes: list[ObservedProcess] = dataclasses.field(default_factory=list)
    hosts: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)  # cores, busy (share), available
    operations: dict[str, float] = dataclasses.field(default_factory=dict)  # reads, writes, commands per s
    latency: dict[str, float] = dataclasses.field(default_factory=dict)  # their mean time in the server, s
    series: dict[str, list[tuple[float, float]]] = dataclasses.field(default_factory=dict)


class Tail:
    """The last lines of a growing file: each look reads only what was added."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.lines: deque[str] = deque(maxlen=MOST)
        self._read, self._inode = 0, 0

    def follow(self, path: Path) -> list[str]:
        """The last whole lines of this file; of another or a new one from its beginning."""
        try:
            status = path.stat()
            if path != self.path or status.st_ino != self._inode or status.st_size < self._read:
                self.path, self._inode, self._read = path, status.st_ino, 0
                self.lines.clear()
            with path.open("rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")[0]
        except OSError:
            self.path, self._read = None, 0
            self.lines.clear()
            return []
        if whole:
            self._read += len(whole) + 1
            self.lines.extend(whole.decode(errors="replace").splitlines())
        return list(self.lines)


class Watch:
    """Follows one run."""

    def __init__(self, run: RunFolder, has_processes: Callable[[RunFolder], bool]) -> None:
        self.run = run
        self._has_processes = has_processes
        self._progress: Progress | None = None
        self._plan_version = self._journal_version = (0, 0)
        self._events: list[JournalEvent] = []
        self._taken = 0  # events that are in _progress
        self._at = time.time()
        self._step: Step | None = None
        self._tails: dict[str, Tail] = {}

    def look(self) -> LiveRun:
        """The run as it is now. Raises RunFolderError when its plan cannot be read."""
        self._replay()
        executed = self.run.is_executed()
        now_state = "running" if executed else state(self.run, processes=self._has_processes(self.run))
        goes_on = now_state == "running"
        self._at = time.time() if goes_on else self._events[-1].t if self._events else time.time()
        progress, backend = self._progress, self.run.backend()
        left = progress.clock.remaining if progress and goes_on else None
        hourly = backend.hourly_usd
        sentence = _ENDINGS.get(now_state, "").format(self.run.named)
        points = progress.points() if progress else []
        named = next((point for point in points if point.metric), None)
        found = LiveRun(
            run=self.run.run_id,
            experiment=progress.plan.name if progress else "",
            title=progress.plan.title if progress else self.run.run_id,
            state=now_state,
            sentence=sentence,
            stage=progress.now_stage if progress and goes_on else "",
            where=self._where() if goes_on else "",
            started=next((event.t for event in self._events if event.event == "run started"), None),
            now=self._at,
            done=len(progress.done) if progress else 0,
            planned=len(progress.plan.steps) if progress else 0,
            share=(progress.clock.share if goes_on else float(now_state == "done")) if progress else 0.0,
            seconds_left=left,
            usd_per_hour=hourly,
            usd_left=None if hourly is None or left is None else hourly * left / 3600,
            report=not goes_on and (self.run / "report" / "report.html").is_file(),
            metric=named.metric if named else "",
            unit=named.unit if named else "",
            points=points,
        )
        if progress is not None and self._step is not None:
            self._add_telemetry(found, progress, self._step)
        if goes_on:
            found.phase = self._phase(found)
        return found

    def _where(self) -> str:
        if self._step is None or self._progress is None:
            return ""
        return f"{self._progress.plan.point(self._step.point).label}, {self._step.name}"

    def _replay(self) -> None:
        """Take what was added to the journal; all of it again where the plan is another one."""
        plan_version, journal_version = (_version(path) for path in (self.run / PLAN, self.run.journal.path))
        if plan_version != self._plan_version:
            self._progress = Progress(self.run, self.run.plan(), Console(quiet=True), lambda: self._at)
            self._plan_version, self._taken = plan_version, 0
        if journal_version != self._journal_version:
            self._events, self._journal_version = list(self.run.journal.records()), journal_version
        if self._progress is not None:
            for event in self._events[self._taken :]:
                self._at = event.t
                self._take(self._progress, event)
            self._taken = len(self._events)

    def _take(self, progress: Progress, event: JournalEvent) -> None:
        """Show what the journal says as the runner shows it on a terminal. A stage is written when it has ended."""
        if event.event == "run started":
            progress.now_stage = "prepare"
        elif event.event == "step started" and (step := _step(progress.plan, event)) is not None:
            self._step = step
            if progress.current is not step:
                progress.current = step
                progress.clock.begin()
            progress.now_stage = "deploy" if step.deploy else "measure"
        elif event.event == "stage":
            after = {"prepare": "deploy", "deploy": "measure", "load": "deploy", "measure": "measure"}
            progress.now_stage = after.get(str(event.stage), str(event.stage))
        elif event.event == "step done" and (step := _step(progress.plan, event)) is not None:
            try:
                progress.step_done(step, self.run.result(step.point, step.name))
            except (OSError, RunFolderError):
                progress.clock.done(step)  # damaged: `report` names it
            progress.now_stage = "teardown" if step.undeploy else "next"
        elif event.event == "point failed" and event.point:
            progress.failed[event.point] = event.message or ""

    def _phase(self, found: LiveRun) -> LivePhase | None:
        text = "\n".join(self._tail("progress").follow(self.run / "tmp" / "progress.jsonl"))
        lines, _ = parse(ProgressLine, text, "progress.jsonl")
        if not lines:
            return None
        last = lines[-1]
        same = [line for line in lines if line.phase == last.phase]
        rates = [
            (b.time, max(b.done - a.done, 0) / (b.time - a.time))
            for a, b in itertools.pairwise(same)
            if b.time > a.time
        ]
        counted = last.unit not in {"s", ""}  # an engine that reports seconds counts no work
        if counted:
            found.series["rate"] = rates
        recent = [rate for _, rate in rates[-4:]]
        rate = sum(recent) / len(recent) if counted and recent else None
        return LivePhase(last.phase, last.done, last.of, last.unit, last.note, rate)

    def _add_telemetry(self, found: LiveRun, progress: Progress, step: Step) -> None:
        point = progress.plan.point(step.point)
        roles = {process.name: ROLES[process.role] for process in point.processes}
        folder = self.run / "telemetry" / step.point / step.name
        busy: dict[float, float] = {}
        for path in sorted(folder.glob("host-*.jsonl")):
            text = "\n".join(self._tail(path.name).follow(path))
            host, (records, _) = path.stem.removeprefix("host-"), parse(HostRecord, text, path.name)
            for record in records:
                second = float(round(record.t))
                busy[second] = busy.get(second, 0.0) + sum(record.cpu.get(kind, 0.0) for kind in ("user", "sys")) * (
                    record.cores
                )
            if records:
                last = records[-1]
                share = sum(last.cpu.get(kind, 0.0) for kind in ("user", "sys"))
                found.hosts[host] = {"cores": last.cores, "busy": share, "available": last.mem.get("available", 0.0)}
                found.processes += [
                    ObservedProcess(
                        name, host, _role(name, roles), use.get("cpu") or 0.0, use.get("limit"), use.get("rss") or 0.0,
                        use.get("throttled"),
                    )
                    for name, use in sorted(last.proc.items())
                ]  # fmt: skip
        found.series["cpu"] = sorted(busy.items())
        text = "\n".join(self._tail("server").follow(folder / "server.jsonl"))
        data_bearing = {name for name, role in roles.items() if role == "shards"}
        records_, _ = parse(ServerRecord, text, "server.jsonl")
        _add_servers(found, [record for record in records_ if record.process in data_bearing])

    def _tail(self, name: str) -> Tail:
        return self._tails.setdefault(name, Tail())


def _add_servers(found: LiveRun, records: Iterable[ServerRecord]) -> None:
    """Operations a second and their mean time in the server, of all mongods with data together."""
    served: dict[float, dict[str, float]] = {}
    serving: dict[float, dict[str, float]] = {}
    for record in records:
        second = float(round(record.t))
        for sums, part in ((served, record.served), (serving, record.serving)):
            for kind, value in part.items():
                into = sums.setdefault(second, {})
                into[kind] = into.get(kind, 0.0) + value
    work = ("reads", "writes")  # commands are mostly microshard's own questions
    seconds = sorted(served)[:-1]  # the last one may lack some mongods still
    found.series["operations"] = [(t, sum(served[t].get(kind, 0.0) for kind in work)) for t in seconds]
    found.series["latency"] = [
        (t, sum(serving[t].get(kind, 0.0) for kind in work) / count) for t, count in found.series["operations"] if count
    ]
    if seconds:
        found.operations = served[seconds[-1]]
        found.latency = {
            kind: serving[seconds[-1]].get(kind, 0.0) / count for kind, count in found.operations.items() if count
        }


def _role(name: str, roles: Mapping[str, str]) -> str:
    owner = name.split("/", 1)[0]
    return "client" if owner == "client" else roles.get(owner, "others")


def _step(plan: Plan, event: JournalEvent) -> Step | None:
    """The attempt an event is about: resumed runs count their steps anew, point and name stay."""
    first, _, attempt = str(event.name).partition("-")
    for step in plan.steps:
        if step.point == event.point and step.name == first:
            return dataclasses.replace(step, attempt=int(attempt)) if attempt.isdigit() else step
    return None


def _version(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def prometheus(run: LiveRun) -> str:
    """The numbers in Prometheus' text format (version 0.0.4)."""
    own = {"run": run.run}
    lines: list[str] = []

    def add(name: str, help_: str, samples: Iterable[tuple[Mapping[str, str], float | None]]) -> None:
        found = [(labels, value) for labels, value in samples if value is not None]
        if found:
            lines.extend((f"# HELP microshard_{name} {help_}", f"# TYPE microshard_{name} gauge"))
            lines.extend(f"microshard_{name}{{{_labels({**own, **labels})}}} {value!r}" for labels, value in found)

    add("run", "The state of the run, as microshard list shows it.", [
        ({"experiment": run.experiment, "state": run.state}, 1)
    ])  # fmt: skip
    add("progress_ratio", "Share of the estimated time that is done.", [({}, run.share)])
    add("seconds_left", "Estimated seconds to go.", [({}, run.seconds_left)])
    add("usd_left", "Estimated cost to go at on-demand prices.", [({}, run.usd_left)])
    add("measurements_done", "Measurements that are done.", [({}, run.done)])
    add("measurements_planned", "Measurements of the plan.", [({}, run.planned)])
    if run.phase is not None:
        labels = {"phase": run.phase.name, "unit": run.phase.unit}
        add("phase_done", "Units of the present phase that are done.", [(labels, run.phase.done)])
        add("phase_planned", "Units of the present phase.", [(labels, run.phase.of)])
        add("phase_rate", "Units a second.", [(labels, run.phase.rate)])
    kinds = sorted(run.operations)
    add(
        "operations", "Operations a second of all mongods with data.", [({"kind": k}, run.operations[k]) for k in kinds]
    )
    add("operation_seconds", "Mean time of an operation in the server.", [
        ({"kind": kind}, seconds) for kind, seconds in run.latency.items()
    ])  # fmt: skip
    add(
        "host_cpu_ratio", "Share of the cores that were busy.", [({"host": n}, h["busy"]) for n, h in run.hosts.items()]
    )
    each = [({"process": p.name, "host": p.host, "role": p.role}, p) for p in run.processes]
    add("process_cpu_cores", "Cores the process used.", [(labels, p.cpu) for labels, p in each])
    add("process_resident_bytes", "Resident memory.", [(labels, p.rss) for labels, p in each])
    add("point_measurements", "Valid measurements of the point.", _of_points(run, lambda p: p.done))
    add(
        "point_value",
        "Median of its valid measurements.",
        _of_points(run, lambda p: median(p.values or [float("nan")])),
    )
    return "\n".join(lines) + "\n"


def _of_points(run: LiveRun, value: Callable[[LivePoint], float]) -> Iterator[tuple[dict[str, str], float]]:
    for point in run.points:
        if (number := value(point)) == number:
            yield {"point": point.label, "state": point.state, "metric": point.metric, "unit": point.unit}, number


def _labels(labels: Mapping[str, str]) -> str:
    quoted = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for name, value in labels.items()
    )
    return ",".join(f'{name}="{value}"' for name, value in quoted)
