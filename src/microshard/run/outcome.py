"""What a run has achieved, taken and cost so far, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from microshard.errors import EXIT_FAILED, EXIT_LEFT, EXIT_OK, EXIT_PLACE
from microshard.interrupts import Stopped
from microshard.run.completed_steps import RunProgress


@dataclass(slots=True)
class Outcome:
    """How a run ended."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # point → message
    wrong: dict[str, str] = field(default_factory=dict)  # point → in what its answer differs
    invalid: dict[str, str] = field(default_factory=dict)  # "point step" → why no attempt at it was valid
    kept: dict[str, str] = field(default_factory=dict)  # point → connection string; left running as asked
    left: list[str] = field(default_factory=list)  # what could not be removed
    stopped_by: int | None = None  # number of the signal
    over_budget: str = ""  # which limit ended the run before its last step
    unprepared: str = ""  # why the hosts could not be prepared
    stages: dict[str, float] = field(default_factory=dict)  # seconds by stage
    seconds: float = 0.0  # of the whole run
    loading: float = 0.0  # seconds of it in load phases, their counting and checkpoint included
    measuring: float = 0.0  # seconds of it in warm_up and measure phases, warm-up queries included

    def add(self, other: Outcome) -> None:
        """Take over how a part of the run ended."""
        self.done += other.done
        self.failed |= other.failed
        self.wrong |= other.wrong
        self.invalid |= other.invalid
        self.kept |= other.kept
        self.left += other.left
        self.stopped_by = self.stopped_by if self.stopped_by is not None else other.stopped_by
        self.over_budget = self.over_budget or other.over_budget
        self.unprepared = self.unprepared or other.unprepared
        for stage, seconds in other.stages.items():
            self.stages[stage] = self.stages.get(stage, 0.0) + seconds
        self.loading += other.loading
        self.measuring += other.measuring

    def take_over(self, stocks: Sequence[RunProgress]) -> None:
        """What earlier parts of the run have measured; an invalid one that is taken again may still become valid."""
        for stock in stocks:
            self.done += len(stock.taken)
            again = {(step.point, step.purpose, step.repetition) for step in stock.left}
            last = {(t.step.point, t.step.purpose, t.step.repetition): t for t in stock.taken}
            for key, item in last.items():
                if key not in again and not item.result["valid"]:
                    why = "; ".join(item.result.get("problems", []))
                    self.invalid[f"{item.step.point} {item.step.name}"] = why

    @property
    def orchestration(self) -> float:
        """Seconds that were neither loading nor measuring: deploying, parking, collecting, tearing down."""
        return self.seconds - self.loading - self.measuring

    @property
    def exit_code(self) -> int:
        """The code the command ends with."""
        if self.stopped_by is not None:
            return Stopped(self.stopped_by).exit_code
        if self.left:
            return EXIT_LEFT
        if self.unprepared:
            return EXIT_PLACE
        return EXIT_FAILED if self.failed or self.wrong or self.invalid or self.over_budget else EXIT_OK


@dataclass(slots=True)
class Meter:
    """Counts from its making. Units: hours, US dollars, US dollars an hour; None: no limit, or no price."""

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
        """US dollars so far; None when what runs has no price."""
        if self.hourly_usd is None:
            return None
        return self.spent_usd + (self.now() - self._priced_from) / 3600 * self.hourly_usd

    def reprice(self, hourly_usd: float | None) -> None:
        """From now on other hosts run, or (0) none."""
        self.spent_usd = self.usd or self.spent_usd
        self._priced_from = self.now()
        self.hourly_usd = hourly_usd

    def spent(self, next_seconds: float = 0.0) -> str:
        """Why the run has to end before something that takes `next_seconds`; empty while it may go on.

        The hours end it when they are over; the money ends it before more would be spent than it may cost.
        """
        if self.max_hours is not None and self.hours >= self.max_hours:
            return f"budget.max_hours ({self.max_hours:g} h) was reached"
        usd = self.usd
        if self.max_usd is not None and usd is not None and self.hourly_usd is not None:
            after = usd + next_seconds / 3600 * self.hourly_usd
            if after >= self.max_usd:
                return f"budget.max_cost_usd ({self.max_usd:g} USD) would be exceeded: {usd:.2f} USD are spent"
        return ""
