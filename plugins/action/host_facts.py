"""The facts of a host, and how far its clock is from the controller's."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.microshard.lab.plugins.action.in_process import ActionModule as InProcess

_SAMPLES = 3  # the first also makes the connection; the quickest counts


class ActionModule(InProcess):  # type: ignore[misc]  # ansible has no types
    """Asks for the time without a module, whose start would take longer than clocks may differ."""

    def execute(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """The module's facts with `clock_offset` (s the host is ahead) and `clock_doubt` (s, ±)."""
        result = dict(super().execute(arguments, variables))
        if not result.get("failed") and "facts" in result:
            samples = [sample for sample in (self._clock_offset() for _ in range(_SAMPLES)) if sample]
            if samples:
                doubt, offset = min(samples)
                result["facts"].update(clock_offset=round(offset, 4), clock_doubt=round(doubt, 4))
        return result

    def _clock_offset(self) -> tuple[float, float] | None:
        """Uncertainty and offset in s by Cristian's algorithm: the host's clock is read between two times here."""
        sent = time.time()
        answer = self._low_level_execute_command("date +%s.%N")
        received = time.time()
        try:
            host_time = float(str(answer.get("stdout", "")).strip().splitlines()[-1])
        except (ValueError, IndexError):
            return None
        return (received - sent) / 2, host_time - (sent + received) / 2
