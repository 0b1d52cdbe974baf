"""Engines by name."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from microshard.model.job import JobError
from microshard.model.phases import engine_names

if TYPE_CHECKING:
    from microshard.workloads.base import Engine


def find(name: str) -> type[Engine]:
    """The class `ENGINE` of workloads/NAME.py. Raises JobError with the nearest name when there is no such engine."""
    known = engine_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise JobError(f"there is no engine {name!r}{hint} (there are: {', '.join(known)})")
    engine: type[Engine] = importlib.import_module(f"microshard.workloads.{name}").ENGINE
    return engine
