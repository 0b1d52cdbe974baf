"""The highest rate that holds: a phase with `search` is measured at rising rates, each as a phase of its own.

A rung begins without a backlog of the one before, because each engine is started anew.
"""

from dataclasses import replace
from typing import Any

from microshard.model.pacing import HIGHEST_RATE, RateSearch, Searching
from microshard.model.plan import PlannedPhase
from microshard.model.result import INTENDED, Column, OpenLoop, PhaseResult, Table
from microshard.workloads import recording
from microshard.workloads.base import Context, Engine, PhaseError, find_engine

COLUMNS = Column.several("rate, 1/s; sent, 1/s; p50, ms; p95, ms; p99, ms; p99.9, ms; waiting at the end; held")


class RateSearchEngine(Engine[Searching]):
    """Runs the engine of a phase at one rate after the other."""

    def __init__(self, phase: PlannedPhase, context: Context) -> None:
        self.engine = find_engine(phase.engine)
        self.keys_model = self.engine.keys_model  # type: ignore[misc]  # that of whichever engine searches
        super().__init__(phase, context)

    def prepare(self) -> None:
        """Nothing: each rung prepares itself."""

    def run(self) -> None:
        """Measure rung by rung until one does not hold. Raises PhaseError when the first one does not."""
        search, rows = self.keys.search, list[list[Any]]()
        assert search is not None  # noqa: S101 - or this would not be the engine
        best: tuple[float, PhaseResult] | None = None
        why = "the highest rate that was tried held; raise search.last"
        for rate in search.rates():
            found = self._measure(rate, search)
            row, value, loop = _row(found, rate, search)
            rows.append(row)
            if row[-1] == "no":
                why = f"{rate:,.6g}/s did not hold: {search.metric} {value:,.4g}; {loop.sentence}"
                break
            best = rate, found
        if best is None:
            raise PhaseError("NoRateHeld", f"already {why}; lower search.first")
        rate, self.outcome = best
        if self.outcome.metric is not None:
            self.outcome.figures.insert(0, self.outcome.metric)
        self.set_metric(HIGHEST_RATE, "1/s", rate, "higher")
        self.outcome.table = Table(COLUMNS, rows)
        self.outcome.notes["search"] = why

    def _measure(self, rate: float, search: RateSearch) -> PhaseResult:
        """One rung."""
        folder = self.context.folder / f"{self.phase.name}-{rate:.6g}" if self.context.folder else None
        phase = replace(self.phase, parameters=self.phase.parameters | self.keys.rung(rate, search))
        engine = self.engine(phase, replace(self.context, folder=folder))
        self.on_close(engine.close)
        try:
            engine.prepare()
            engine.run()
        finally:
            self.outcome = engine.result()
            engine.close()
        return self.outcome


def _row(found: PhaseResult, rate: float, search: RateSearch) -> tuple[list[Any], float, OpenLoop]:
    """A row of the table, the percentile that is limited (ms), and how the rate was held."""
    every = [one.histogram or "" for name, one in found.latency.items() if name.startswith(INTENDED)]
    whole = recording.merge(map(recording.decode, every))
    values = {p: whole.get_value_at_percentile(float(p)) / 1000 for p in ("50", "90", "95", "99", "99.9")}
    value = values[search.metric.removeprefix("p").removesuffix("_ms")]
    loop = found.open_loop.get("ALL") or found.open_loop.get("READ") or next(iter(found.open_loop.values()))
    held = loop.reached and value <= search.at_most
    shown = [round(values[p], 3) for p in ("50", "95", "99", "99.9")]
    return [round(rate, 3), loop.achieved, *shown, loop.backlog, "yes" if held else "no"], value, loop


def engine_of(phase: PlannedPhase, context: Context) -> Engine[Any]:
    """The engine that runs a phase. Raises JobError."""
    searching = phase.parameters.get("search") is not None
    return (RateSearchEngine if searching else find_engine(phase.engine))(phase, context)
