"""How a run ends, and its hours and cost so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from microshard.errors import EXIT_FAILED, EXIT_LEFT, EXIT_OK, EXIT_PLACE
from microshard.interrupts import Stopped
from microshard.model.run_records import JournalEvent
from microshard.run.completed_steps import RunProgress


@dataclass(slots=True)
class Outcome:
    """How a run ended, or a part of it on EC2."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # point → message
    wrong: dict[str, str] = field(default_factory=dict)  # point → how its answer differs
    invalid: dict[str, str] = field(default_factory=dict)  # "point step" → why no attempt at it was valid
    kept: dict[str, str] = field(default_factory=dict)  # point → connection string; left running as planned
    left: list[str] = field(default_factory=list)  # what could not be removed
    stopped_by: int | None = None  # number of the signal
    over_budget: str = ""  # the limit that ended the run before its last step
    unprepared: str = ""  # why the hosts could not be prepared
    stages: dict[str, float] = field(default_factory=dict)  # seconds by stage
    seconds: float = 0.0  # of the whole run
    fleet_seconds: float = 0.0  # of all fleets together, where they existed side by side
    loading: float = 0.0  # seconds of it in load phases, their counting and checkpoint included
    measuring: float = 0.0  # seconds of it in warm_up and measure phases, warm-up queries included

    def add(self, other: Outcome) -> None:
        """Add how a part of the run ended; the times of the whole run are known at its end."""
        for name in ("done", "loading", "measuring", "left", "fleet_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("failed", "wrong", "invalid", "kept"):
            getattr(self, name).update(getattr(other, name))
        for name in ("stopped_by", "over_budget", "unprepared"):
            setattr(self, name, getattr(self, name) or getattr(other, name))
        for stage, seconds in other.stages.items():
            self.stages[stage] = self.stages.get(stage, 0.0) + seconds

    def add_completed(self, parts: Sequence[RunProgress]) -> None:
        """Add what the run has measured before it was resumed; an invalid step that is repeated may become valid."""
        for progress in parts:
            self.done += len(progress.completed)
            again = {(step.point, step.purpose, step.repetition) for step in progress.remaining}
            last = {(c.step.point, c.step.purpose, c.step.repetition): c for c in progress.completed}
            for key, item in last.items():
                if key not in again and not item.result.valid:
                    why = "; ".join(item.result.problems)
                    self.invalid[f"{item.step.point} {item.step.name}"] = why

    @property
    def orchestration(self) -> float:
        """Seconds that were neither loading nor measuring: deploying, pausing, collecting, tearing down."""
        return (self.fleet_seconds or self.seconds) - self.loading - self.measuring

    def ended(self) -> JournalEvent:
        """What the journal says at the end of the run."""
        return JournalEvent(
            "run ended",
            exit_code=self.exit_code,
            seconds=round(self.seconds, 3),
            loading=round(self.loading, 3),
            measuring=round(self.measuring, 3),
            orchestration=round(self.orchestration, 3),
            stages={name: round(seconds, 3) for name, seconds in self.stages.items()},
        )

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        if self.stopped_by is not None:
            return Stopped(self.stopped_by).exit_code
        if self.left:
            return EXIT_LEFT
        if self.unprepared:
            return EXIT_PLACE
        return EXIT_FAILED if self.failed or self.wrong or self.invalid or self.over_budget else EXIT_OK


@dataclass(slots=True)
class Meter:
    """The hours and US dollars of a run since the meter was created; None: no limit, or no price."""

    max_hours: float | None = None
    max_usd: float | None = None
    hourly_usd: float | None = None
    spent_usd: float = 0.0  # by hosts that are gone already
    now: Callable[[], float] = time.monotonic
    _started: float = field(init=False)
    _priced_from: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self._priced_from = self.now()

    @property
    def hours(self) -> float:
        """Hours so far."""
        return (self.now() - self._started) / 3600

    @property
    def usd(self) -> float | None:
        """US dollars so far; None when the hosts have no price."""
        if self.hourly_usd is None:
            return None
        return self.spent_usd + (self.now() - self._priced_from) / 3600 * self.hourly_usd

    def reprice(self, hourly_usd: float | None) -> None:
        """From now on other hosts run, or (0) none."""
        self.spent_usd = self.usd or self.spent_usd
        self._priced_from = self.now()
        self.hourly_usd = hourly_usd

    def exhausted(self, next_seconds: float = 0.0) -> str:
        """Why the run has to end before a step that takes `next_seconds`; empty while it may continue.

        The limit of hours ends a run when it is reached, that of dollars before it would be exceeded.
        """
        if self.max_hours is not None and self.hours >= self.max_hours:
            return f"budget.max_hours ({self.max_hours:g} h) was reached"
        usd = self.usd
        if self.max_usd is not None and usd is not None and self.hourly_usd is not None:
            after = usd + next_seconds / 3600 * self.hourly_usd
            if after >= self.max_usd:
                return f"budget.max_cost_usd ({self.max_usd:g} USD) would be exceeded: {usd:.2f} USD are spent"
        return ""
