"""What all models of the experiment file share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
Namespace = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,62}\.[A-Za-z_][A-Za-z0-9_.-]{0,119}$")]
Port = Annotated[int, Field(ge=1024, le=65000)]


class Model(BaseModel):
    """A mapping of the experiment file. Unknown keys are errors, values never change their type silently."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        validate_default=False,
        hide_input_in_errors=False,
    )
