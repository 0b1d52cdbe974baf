"""What is done to the deployment: phases and the engines that execute them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints

from microshard.model.base import AllowedText, Model
from microshard.model.phase import PhaseKeys
from microshard.model.phases import all_keys

PhaseName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,40}$"),
    AllowedText("a name of lower-case letters, digits, _ and - (a letter first, at most 41)"),
]

if TYPE_CHECKING:
    AnyPhase = PhaseKeys
else:
    # The modules of model/phases decide what a phase may be.
    AnyPhase = Annotated[functools.reduce(operator.or_, all_keys()), Field(discriminator="engine")]


class WorkloadStep(Model):
    """One phase: exactly one of load, warm_up and measure."""

    load: AnyPhase | None = None
    """Brings data in; done once for every deployment."""
    warm_up: AnyPhase | None = None
    """Done before every measurement, never reported."""
    measure: AnyPhase | None = None
    """The measurement; done once in every repetition."""
    name: PhaseName | None = None
    """Name of the phase in results; its kind when left out."""

    def _contradictions(self) -> Iterator[str]:
        given = [k for k in ("load", "warm_up", "measure") if getattr(self, k) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            yield f"exactly one of load, warm_up and measure, found {found}"

    @functools.cached_property
    def kind(self) -> Literal["load", "warm_up", "measure"]:
        """Which of the three it is."""
        if self.load is not None:
            return "load"
        return "warm_up" if self.warm_up is not None else "measure"

    @functools.cached_property
    def phase(self) -> PhaseKeys:
        """The phase itself."""
        phase = self.load or self.warm_up or self.measure
        assert phase is not None  # noqa: S101 - ensured by the validator, here for the type checker
        return phase.of_kind(self.kind)
