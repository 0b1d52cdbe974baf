"""Keys of the engine `command`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from microshard.model.base import Namespace
from microshard.model.phase import EstimateBasis, PhaseContext, PhaseKeys


class CommandPhase(PhaseKeys):
    """Run a program that measures by itself and prints what it finds."""

    changes_data: ClassVar[bool] = True

    engine: Literal["command"]
    """command: any program; it prints JSON lines."""
    command: Annotated[list[str], Field(min_length=1, max_length=1000)]
    """The program and its arguments, no shell between. A program with a / is relative to the experiment file."""
    input: dict[str, Any] = Field(default={})
    """Handed to the program as it is; a place for axes: workload.1.measure.input.clients."""
    namespace: Namespace | None = None
    """The collection it works on, if it is one; handed to the program and used in checks."""
    documents: Annotated[int, Field(ge=0)] = 0
    """Documents it adds, for estimates."""
    expected_seconds: Annotated[float, Field(ge=0, json_schema_extra={"unit": "s"})] = 10.0
    """How long it takes, for estimates."""
    max_seconds: Annotated[float, Field(gt=0, json_schema_extra={"unit": "s"})] = 3600.0
    """Longest time; the program is then ended and the phase fails."""

    def parameters(self, context: PhaseContext) -> dict[str, Any]:
        """All keys; a program given by a relative path gets its whole path."""
        given = super().parameters(context)
        return given | {"command": [self._program(context.folder), *self.command[1:]]}

    def _program(self, folder: Path | None) -> str:
        program = self.command[0]
        return str((folder / program).resolve()) if folder is not None and "/" in program else program

    def problems(self, context: PhaseContext) -> Iterator[tuple[str, str]]:
        """A program that does not exist."""
        program = self._program(context.folder)
        if "/" in program and not os.access(program, os.X_OK):
            what = "may not be executed" if Path(program).exists() else "does not exist"
            yield "command", f"{program} {what}"

    def adds(self) -> int:
        """As the keys say."""
        return self.documents

    def seconds(self, expected: EstimateBasis) -> float:  # noqa: ARG002
        """As the keys say."""
        return self.expected_seconds

    def question(self) -> Any:
        """The program and what it is given: the same must be answered the same."""
        return {"command": self.command, "input": self.input}


KEYS = CommandPhase
