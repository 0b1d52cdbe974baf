"""Keys of an open loop: operations at a rate, constant or Poisson, and the search for the highest rate that holds."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from microshard.model.base import Model
from microshard.model.phase import KeyFinding, PhaseKeys, PhaseKind

HIGHEST_RATE = "highest rate that held"


class RateSearch(Model):
    """A ladder of rates: each is held for a time, until a percentile exceeds its limit or the rate is not reached. The
    figure is the highest rate that held."""

    metric: Literal["p50_ms", "p90_ms", "p95_ms", "p99_ms", "p99.9_ms"] = "p99_ms"
    """What is limited: this percentile of the latency from the intended time, over all operations, in milliseconds."""
    at_most: Annotated[float, Field(gt=0, json_schema_extra={"unit": "ms"})]
    """Its limit."""
    first: Annotated[float, Field(gt=0, le=1e8, json_schema_extra={"unit": "1/s"})] = 100
    """Rate of the first rung."""
    factor: Annotated[float, Field(gt=1, le=16)] = 1.25
    """Rate of a rung over that of the rung before."""
    last: Annotated[float, Field(gt=0, le=1e8, json_schema_extra={"unit": "1/s"})] = 100_000
    """Highest rate that is tried."""
    rung_seconds: Annotated[int, Field(ge=2, le=86_400, json_schema_extra={"unit": "s"})] = 20
    """Measured time of a rung."""
    settle_seconds: Annotated[int, Field(ge=0, le=3600, json_schema_extra={"unit": "s"})] = 2
    """Time at a new rate that is left out."""

    def _contradictions(self) -> Iterator[str]:
        if self.last < self.first:
            yield f"last: {self.last:g} is below first, {self.first:g}"

    @property
    def step_seconds(self) -> int:
        """Time of a rung with its settling."""
        return self.rung_seconds + self.settle_seconds

    def rates(self) -> list[float]:
        """The rate of every rung, rising; none is above `last`."""
        found = [float(self.first)]
        while (following := found[-1] * self.factor) <= self.last * (1 + 1e-9):
            found.append(following)
        return found


class Paced(Model):
    """The keys of an open loop, for all that send operations at a rate."""

    rate: Annotated[float, Field(gt=0, le=1e8, json_schema_extra={"unit": "operations/s"})] | None = None
    """Open loop: operations a second of all clients together, sent when they are due, whatever the answers take; what
    is late is sent as soon as it can be, and its latency counts from when it was due. null: closed loop, each client
    sends when the last answer has come."""
    arrivals: Literal["constant", "poisson"] = "constant"
    """Open loop: equal gaps, or those of a Poisson process."""
    arrivals_seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Open loop: decides the gaps of a Poisson process."""

    def paced_findings(self, *path: str, used: bool = False) -> Iterator[KeyFinding]:
        """Arrivals of a closed loop. `path` is that of these keys; `used`: there is another rate that they are for."""
        if self.rate is None and not used:
            for key in ("arrivals", "arrivals_seed"):
                if getattr(self, key) != Paced.model_fields[key].default:
                    yield (*path, key), "has no effect: without rate the loop is closed", "warning"

    def schedule(self, rate: float | None, *, each: float = 1.0) -> dict[str, Any] | None:
        """The schedule of a rate as workers take it; None in a closed loop.

        `each`: how many of the rate's unit one operation does, such as the documents of a batch.
        """
        if rate is None:
            return None
        return {"rate": rate / each, "each": each, "arrivals": self.arrivals, "seed": self.arrivals_seed}


class Searching(PhaseKeys):
    """A phase that can look for the highest rate that holds."""

    search: RateSearch | None = None
    """Looks for the highest rate that keeps a percentile below a limit, instead of a measurement at one rate."""

    def rung(self, rate: float, search: RateSearch) -> dict[str, Any]:
        """The keys with which a rung of the search differs from these."""
        raise NotImplementedError

    def _contradictions(self) -> Iterator[str]:
        if self.search is not None and getattr(self, "rate", None) is not None:
            yield "rate: a search looks for the highest rate, so it is not given one"

    def reported(self, *names: str) -> tuple[str, ...]:
        """These figures of the phase; a search has its own before them."""
        return (HIGHEST_RATE, *names) if self.search is not None else names

    def search_findings(self, kind: PhaseKind) -> Iterator[KeyFinding]:
        """Keys that have no effect beside a search."""
        if self.search is None:
            return
        if kind != "measure":
            yield ("search",), "only a measurement searches", "error"
        for key in self.rung(self.search.first, self.search):
            field = type(self).model_fields[key]
            if key not in {"search", "rate", "load"} and getattr(self, key) != field.default:
                yield (key,), "has no effect: a search has rung_seconds and settle_seconds", "error"

    def search_seconds(self) -> float | None:
        """The longest time a search takes; None without one."""
        return len(self.search.rates()) * float(self.search.step_seconds) if self.search is not None else None
