"""What all models of the experiment file share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator


@dataclass(frozen=True, slots=True)
class AllowedText:
    """What a pattern allows, in the words of error messages and the reference."""

    text: str


Name = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$"),
    AllowedText("a name of lower-case letters, digits and hyphens (a letter first, at most 63)"),
]
Namespace = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,62}\.[A-Za-z_][A-Za-z0-9_.-]{0,119}$"),
    AllowedText("a database and a collection such as vosa.mot_results"),
]
Port = Annotated[int, Field(ge=1024, le=65000)]


class Model(BaseModel):
    """A mapping of the experiment file. Unknown keys are errors, values never change their type silently."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=False, hide_input_in_errors=False
    )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Itself: it is frozen, and pydantic would copy every default of every point (a third of planning 10,000)."""
        return self

    def _contradictions(self) -> Iterable[str]:
        """Sentences "key: reason" about keys that cannot go together; the first one is the error."""
        return ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for sentence in self._contradictions():
            raise ValueError(sentence)
        return self


def first_duplicate(names: Sequence[str]) -> str | None:
    """The first name that occurs more than once."""
    if len(set(names)) == len(names):
        return None
    return next(name for number, name in enumerate(names) if name in names[:number])
