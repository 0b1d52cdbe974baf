"""Reading a run's folder as it is: complete, failed half-way, still going, or damaged.

Nothing here raises for a missing or broken file; what could not be read is named in `RawRun.unreadable`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from microshard.records.codec import encode
from microshard.records.run_folder import JsonLines, RunFolder


@dataclass(frozen=True, slots=True)
class RawRun:
    """The files of a run, parsed."""

    marker: Mapping[str, Any]
    lock: Mapping[str, Any]
    plan: Mapping[str, Any]
    results: Mapping[tuple[str, str], Mapping[str, Any]]  # (point, step) → result file
    journal: tuple[Mapping[str, Any], ...]
    unreadable: tuple[str, ...]  # file: reason
    logs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # point → process → summary of its log


def read_run(folder: Path) -> RawRun:
    """Read a run's folder. Raises RunFolderError when it is not a run of ours."""
    run = RunFolder.open(Path(folder))
    unreadable: list[str] = []

    def load(path: Path) -> dict[str, Any]:
        try:
            content = from_json(path.read_bytes())  # twice as fast as json, and there are thousands
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            unreadable.append(f"{path.relative_to(run.path).as_posix()}: not a whole JSON file")
            return {}
        if not isinstance(content, dict):
            unreadable.append(f"{path.relative_to(run.path).as_posix()}: not a JSON object")
            return {}
        return content

    results = {}
    for path in sorted((run.path / "results").glob("*/*.json")):
        content = load(path)
        if content:
            results[path.parent.name, path.stem] = content
    logs = {path.parent.name: load(path) for path in sorted((run.path / "logs").glob("*/summary.json"))}
    unreadable += [f"{name}: not there" for name in ("plan.json", "lock.json") if not (run.path / name).exists()]
    journal = tuple(record for record in JsonLines(run.path / "journal.jsonl").records() if isinstance(record, dict))
    return RawRun(
        marker=encode(run.marker()),
        lock=load(run.path / "lock.json"),
        plan=load(run.path / "plan.json"),
        results=results,
        journal=journal,
        unreadable=tuple(unreadable),
        logs=logs,
    )


def mapping(value: object) -> dict[str, Any]:
    """`value` when it is an object with text keys, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """`value` when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def number(value: object) -> float | None:
    """`value` as a finite float; None for anything else, truth values included."""
    if type(value) is float:  # nearly always
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def text(value: object) -> str:
    """`value` as text; empty for None."""
    return "" if value is None else str(value)
