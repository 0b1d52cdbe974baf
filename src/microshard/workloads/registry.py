"""Engines by name: a module of this package that defines `ENGINE` and `KEYS` is an engine."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

from microshard import workloads as engines
from microshard.model.job import JobError

if TYPE_CHECKING:
    from microshard.model.phase import PhaseKeys
    from microshard.workloads.base import Engine


def names() -> list[str]:
    """The engines there are. Reads the sources instead of importing them: listing must not cost their imports."""
    folder = Path(engines.__path__[0])
    found = []
    for module in pkgutil.iter_modules(engines.__path__):
        source = folder / module.name / "__init__.py" if module.ispkg else folder / f"{module.name}.py"
        if any(line.startswith("ENGINE") for line in source.read_text(encoding="utf-8").splitlines()):
            found.append(module.name)
    return found


def find(name: str) -> type[Engine]:
    """The engine of this name. Raises JobError with the nearest name there is."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise JobError(f"there is no engine {name!r}{hint} (there are: {', '.join(known)})")
    engine: type[Engine] = importlib.import_module(f"microshard.workloads.{name}").ENGINE
    return engine


def keys() -> list[type[PhaseKeys]]:
    """The keys of every engine, as the experiment file knows them."""
    return [importlib.import_module(f"microshard.workloads.{name}").KEYS for name in names()]
