"""What a run has cost so far in hours and money, and when it has to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


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
