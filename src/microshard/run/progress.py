"""The display of a run while it goes on: current stage, remaining time, figures so far."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from microshard.analysis.verdict import main_bottleneck, most_frequent
from microshard.model.plan import Plan, Point, Step
from microshard.model.result import ProgressLine, StepResult
from microshard.plan.render import duration
from microshard.records.codec import decode
from microshard.records.run_folder import RunFolder
from microshard.report.format import number
from microshard.report.table import LivePoint, LiveState, live


@dataclass(slots=True)
class Clock:
    """Remaining time: the plan's estimate, corrected by the measured time of the steps so far."""

    plan: Plan
    now: Callable[[], float] = time.monotonic
    finished_estimate: float = 0.0
    finished_seconds: float = 0.0
    step_started: float | None = None
    side_by_side: float = 1.0  # time of all steps one after the other / the plan's estimate

    def begin(self) -> None:
        """A step begins."""
        self.step_started = self.now()

    def done(self, step: Step) -> None:
        """A step ended, well or not."""
        self.finished_seconds += self.running
        if step.attempt == 1:  # the plan has no time for repetitions of invalid measurements
            point = self.plan.point(step.point)
            seconds = point.measure_seconds + (point.deploy_seconds + point.load_seconds if step.deploy else 0.0)
            self.finished_estimate += seconds / self.side_by_side
        self.step_started = None

    @property
    def running(self) -> float:
        """Seconds since the current step began."""
        return 0.0 if self.step_started is None else self.now() - self.step_started

    @property
    def share(self) -> float:
        """Share of the estimated time that is done, 0 to 1."""
        total = self.plan.estimate_seconds or 1.0
        return min((self.finished_estimate + self.running / self.factor) / total, 0.99)

    @property
    def factor(self) -> float:
        """PointProgress over estimated time so far."""
        return (self.finished_seconds / self.finished_estimate if self.finished_estimate else 0.0) or 1.0

    @property
    def remaining(self) -> float:
        """Seconds still to go."""
        return max((self.plan.estimate_seconds - self.finished_estimate) * self.factor - self.running, 0.0)


@dataclass(slots=True)
class PointProgress:
    """The valid measurements of a point, as far as they are shown; thousands of whole results stay on disk."""

    metric: str = ""
    unit: str = ""
    values: list[float] = field(default_factory=list)  # of each result's first measured phase
    limits: list[str] = field(default_factory=list)

    def add(self, result: StepResult) -> None:
        """Add a result of the point."""
        metric = next((p.metric for p in result.phases if p.kind == "measure" and p.metric is not None), None)
        if metric is not None:
            self.metric, self.unit = metric.name, metric.unit
            self.values.append(metric.value)
        if limit := main_bottleneck(result):
            self.limits.append(limit)


class Progress:
    """Shows a run on a terminal (live) or in a log (a line for each step)."""

    def __init__(
        self, folder: RunFolder, plan: Plan, console: Console, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.console = console
        self.clock = Clock(plan, now)
        self.now = self.now_stage = "starting"
        self.current: Step | None = None
        self.failed: dict[str, str] = {}
        self.measured: dict[str, PointProgress] = {}  # by point
        self.done: set[tuple[str, str]] = set()  # points and repetitions
        self.live = (
            Live(get_renderable=self.render, console=console, refresh_per_second=4, transient=True)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Progress:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def stage(self, step: Step | None, stage: str) -> None:
        """A stage begins."""
        with contextlib.suppress(OSError):  # for display only: what must be written reports a failing disk
            (self.folder / "tmp" / "progress.jsonl").unlink(missing_ok=True)
        if step is not None and step is not self.current:
            self.current = step
            self.clock.begin()
        self.now = self.now_stage = stage

    def event(self, event: dict[str, Any]) -> None:
        """Show the name of the task Ansible begins."""
        if event.get("event") == "task" and event.get("task"):
            self.now = str(event["task"])

    def step_done(self, step: Step, result: StepResult) -> None:
        """A step ended with a result."""
        self.clock.done(step)
        self.done.add((step.point, step.name.partition("-")[0]))
        if step.purpose == "measure" and result.valid:
            self.measured.setdefault(step.point, PointProgress()).add(result)
        say = partial(self.console.print, highlight=False, soft_wrap=True)
        name = f"{self.plan.point(step.point).label}, {step.name}"
        if not self.live:
            limit = f", bottleneck: {main_bottleneck(result)}" if main_bottleneck(result) else ""
            remaining = duration(self.clock.remaining)
            say(f"[{step.index + 1}/{len(self.plan.steps)}] {name}: {figures(result)}{limit} · {remaining} left")
        if not result.valid:
            say(f"[yellow]not valid:[/yellow] {name}: {'; '.join(result.problems)}")

    def point_failed(self, point: Point, message: str) -> None:
        """A point failed."""
        if self.current is not None:
            self.clock.done(self.current)
        self.failed[point.id] = message
        self.console.print(f"[red]{point.label} failed:[/red]", highlight=False)
        self.console.print(message, markup=False, highlight=False)

    def render(self) -> RenderableType:
        """The live display."""
        step = self.current
        where = "" if step is None else f"{self.plan.point(step.point).label}, {step.name} · "
        head = Table.grid(padding=(0, 1), expand=True)
        head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        head.add_column(justify="right", no_wrap=True)
        head.add_row(Text(f"{where}{self.now}"), f"{duration(self.clock.remaining)} left")
        return Group(
            live(self.points(), self.console.width),
            head,
            Padding(ProgressBar(total=1.0, completed=self.clock.share), 0),  # for the line's end
            Text(
                f"{len(self.done)} of {len(self.plan.steps)} measurements · {self.folder.path}",
                style="dim",
                overflow="ellipsis",
                no_wrap=True,
            ),
        )

    def points(self) -> list[LivePoint]:
        """Every point with its state and the values measured so far."""
        return [self._point(point) for point in self.plan.points]

    def _point(self, point: Point) -> LivePoint:
        measured = self.measured.get(point.id, PointProgress())
        current = self.current is not None and self.current.point == point.id and point.id not in self.failed
        state: LiveState = "waiting"
        if point.id in self.failed:
            state = "failed"
        elif len(measured.values) == self.plan.repetitions:
            state = "done"
        elif current:
            state = "deploying" if self.now_stage == "deploy" else "measuring"
        elif measured.values:
            state = "partial"
        return LivePoint(
            label=point.label,
            state=state,
            done=len(measured.values),
            planned=self.plan.repetitions,
            values=tuple(measured.values),
            metric=measured.metric,
            unit=measured.unit,
            bottleneck=most_frequent(measured.limits),
            note=self._phase() if current else "",
        )

    def _phase(self) -> str:
        line = last_line(self.folder / "tmp" / "progress.jsonl")
        if line is None:
            return ""
        share = f"{line.done / line.of:.0%}" if line.of else ""
        return " ".join(part for part in (line.phase, share, line.note) if part)


def last_line(path: Path) -> ProgressLine | None:
    """The last whole line of an engine's progress, or None."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - 4096, 0))
            lines = file.read().split(b"\n")
        return decode(ProgressLine, json.loads(lines[-2])) if len(lines) > 1 else None
    except (OSError, ValueError):
        return None


def figures(result: StepResult) -> str:
    """The metrics of a result in one line."""
    found = [
        f"{phase.name} {number(phase.metric.value)} {phase.metric.unit}"
        for phase in result.phases
        if phase.metric is not None and phase.kind != "warm_up"
    ]
    return ", ".join(found) or "no figure"
