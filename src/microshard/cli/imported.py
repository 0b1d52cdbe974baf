"""Experiments that were imported: the programs they would execute are shown, and executed only when the user agrees."""

import contextlib
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from microshard.errors import EXIT_DEFINITION, MicroshardError, RunFolderError
from microshard.records.run_folder import RunFolder


class UnconfirmedError(MicroshardError):
    """An imported experiment executes programs, and there is no terminal to confirm them."""

    exit_code = EXIT_DEFINITION


def confirm_programs(file: Path, scale: str | None, overrides: Mapping[str, Any], *, yes: bool) -> None:
    """Ask before programs of an imported experiment are executed; other experiments need no confirmation.

    Raises UnconfirmedError without a terminal, click.Abort when the answer is no.
    """
    if yes or not _is_imported(file):
        return
    from microshard.experiment.load import load
    from microshard.experiment.matrix import expand

    loaded = load(file, scale=scale, overrides=dict(overrides))
    everything = [loaded.experiment, *(point.experiment for point in expand(loaded))]  # an axis may bring others
    found = list(dict.fromkeys(_programs([experiment.model_dump(mode="json") for experiment in everything])))
    if not found:
        return
    text = f"{file} was imported, and it executes on this machine or your hosts:\n  " + "\n  ".join(found)
    if not sys.stdin.isatty():
        raise UnconfirmedError(f"{text}\nLook at it; if you trust it: --yes")
    click.confirm(f"{text}\nExecute this?", abort=True)


def _is_imported(path: Path) -> bool:
    """Whether a file belongs to an imported run."""
    for folder in path.absolute().parents:
        with contextlib.suppress(OSError, RunFolderError):
            return RunFolder(folder).marker().imported is not None
    return False


def _programs(value: Any) -> Iterator[str]:
    """The programs a value of an experiment names at any depth: commands, and MongoDB's binaries by path."""
    if isinstance(value, Mapping):
        if value.get("engine") == "command":
            yield shlex.join(map(str, value.get("command", [])))
        if value.get("source") == "path" and value.get("path"):
            yield f"mongod and mongos from {value['path']}"
        for item in value.values():
            yield from _programs(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _programs(item)
