"""Rates over windows of equal length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Windows:
    """Counts operations by the window in which word of them came; `seconds` is the length of a window."""

    seconds: float
    counts: list[int] = field(default_factory=list)

    def add(self, after: float, operations: int) -> None:
        """`operations` were reported `after` seconds from the start."""
        number = int(after / self.seconds)
        self.counts.extend([0] * (number + 1 - len(self.counts)))
        self.counts[number] += operations

    def whole(self, lasted: float) -> list[int]:
        """The windows that had passed entirely after `lasted` seconds; a part of one says nothing of a rate."""
        number = int(lasted / self.seconds)
        return [*self.counts[:number], *([0] * (number - len(self.counts)))]

    def as_json(self, start: float, lasted: float) -> dict[str, Any] | None:
        """`windows` of docs/contracts.md; None when none was whole."""
        values = self.whole(lasted)
        return {"start": start, "seconds": self.seconds, "values": values} if values else None

    def rate_reached_in(self, share: float, lasted: float) -> float | None:
        """The rate per second that at least this share of the whole windows reached."""
        values = sorted(self.whole(lasted), reverse=True)
        if not values:
            return None
        return values[min(-(-int(share * 1000) * len(values) // 1000), len(values)) - 1] / self.seconds
