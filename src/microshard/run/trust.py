"""Experiments that came from somebody else: what they would execute is shown, and executed only when that is wanted."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from microshard.errors import EXIT_DEFINITION, MicroshardError
from microshard.experiment.load import load
from microshard.experiment.matrix import expand
from microshard.records.run_folder import MARKER, read_object


class UnaskedError(MicroshardError):
    """Programs of an imported experiment, and nobody who could be asked."""

    exit_code = EXIT_DEFINITION


def is_imported(path: Path) -> bool:
    """Whether a file lies in a run that was imported."""
    for folder in path.absolute().parents:
        marker = read_object(folder / MARKER)
        if marker:
            return "imported" in marker
    return False


def programs(value: Any) -> Iterator[str]:
    """What an experiment names to be executed, wherever it stands: commands, and binaries of MongoDB by their path."""
    if isinstance(value, Mapping):
        if value.get("engine") == "command":
            yield shlex.join(map(str, value.get("command", [])))
        if value.get("source") == "path" and value.get("path"):
            yield f"mongod and mongos from {value['path']}"
        for item in value.values():
            yield from programs(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from programs(item)


def ask(file: Path, scale: str | None, overrides: Mapping[str, Any], *, yes: bool) -> None:
    """Before anything of an imported experiment is executed: raises UnaskedError, or click.Abort after a no.

    One's own experiments are not asked about, and imported ones without programs neither.
    """
    if yes or not is_imported(file):
        return
    loaded = load(file, scale=scale, overrides=dict(overrides))
    everything = [loaded.experiment, *(point.experiment for point in expand(loaded))]  # an axis may bring others
    found = list(dict.fromkeys(programs([experiment.model_dump(mode="json") for experiment in everything])))
    if not found:
        return
    told = f"{file} was imported, and it executes on this machine or your hosts:\n  " + "\n  ".join(found)
    if not sys.stdin.isatty():
        raise UnaskedError(f"{told}\nLook at it; when you trust it: --yes")
    click.confirm(f"{told}\nExecute this?", abort=True)
