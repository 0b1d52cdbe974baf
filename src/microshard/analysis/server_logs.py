"""Summaries of server logs: slow operations by shape, connections, elections, migrations, warnings.

mtools 1.7.2 (mloginfo, mlogfilter) was made for the text logs of MongoDB up to 4.2 and refuses the JSON logs of 6.0 as
no supported format; so the few things a report needs are read here. Lines that are no JSON are counted and passed over.
"""

import contextlib
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from microshard.analysis import ftdc
from microshard.model.run_records import LogSummary, SlowOperations

SUMMARY = "summary.json"
MOST_SHAPES = 20  # by process, the costliest first

# Names of messages, which have stayed while their numbers differ between versions (4.4 to 8.0).
_SLOW = "Slow query"
_INTERESTING = (
    "Slow query",
    "Connection accepted",
    "lection succeeded",
    "hunk migration donation",
    '"s":"W"',
    '"s":"E"',
    '"s":"F"',
)
_INTERNAL = {"admin", "config", "local"}


def summarise(lines: Iterable[str]) -> LogSummary:
    """The summary of one log."""
    shapes: dict[tuple[str, str, str, str], SlowOperations] = {}
    found = LogSummary()
    for line in lines:
        if line and not line.startswith("{"):
            found.unread += 1
        if not any(word in line for word in _INTERESTING):
            continue
        try:
            record = json.loads(line)
        except ValueError:
            found.unread += 1
            continue
        attributes = record.get("attr") or {}
        message = str(record.get("msg", ""))
        if message == _SLOW:
            found.slow += _slow(attributes, shapes)
        elif message == "Connection accepted":
            found.connections += 1
            found.connections_max = max(found.connections_max, int(attributes.get("connectionCount", 0)))
        elif message.startswith("Election succeeded"):
            found.elections += 1
        elif message.startswith("Starting chunk migration donation"):
            found.migrations += 1
        found.warnings += record.get("s") == "W"
        found.errors += record.get("s") in {"E", "F"}
    found.shapes = sorted(shapes.values(), key=lambda shape: -shape.milliseconds)[:MOST_SHAPES]
    return found


def _slow(attributes: Mapping[str, Any], shapes: dict[tuple[str, str, str, str], SlowOperations]) -> int:
    """Count a slow operation under its shape; 0 for what is not of the workload."""
    namespace = str(attributes.get("ns", ""))
    if namespace.split(".", 1)[0] in _INTERNAL or not namespace:
        return 0
    command = attributes.get("command") or {}
    kind = str(next(iter(command), attributes.get("type", "")))
    key = (kind, namespace, shape_of(command), str(attributes.get("planSummary", "")))
    known = shapes.setdefault(key, SlowOperations(*key))
    milliseconds = int(attributes.get("durationMillis", 0))
    known.count += 1
    known.milliseconds += milliseconds
    known.longest = max(known.longest, milliseconds)
    known.examined += int(attributes.get("docsExamined", 0))
    return 1


def shape_of(command: Mapping[str, Any]) -> str:
    """A command without its values: the stages of a pipeline, the fields of a filter."""
    if isinstance(command.get("pipeline"), list):
        return " → ".join(next(iter(stage), "?") for stage in command["pipeline"] if isinstance(stage, dict))
    query = command.get("filter") or command.get("query") or command.get("q")
    return "{" + ", ".join(f"{field}: {_operators(value)}" for field, value in query.items()) + "}" if query else ""


def _operators(value: object) -> str:
    if isinstance(value, dict) and value and all(str(key).startswith("$") for key in value):
        return " ".join(value)
    return "1"


def _lines(path: Path) -> Iterator[str]:
    """The lines of a compressed log; one that is cut ends where it is cut."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
            yield from file
    except (EOFError, OSError, zlib.error):
        return


def summarise_folder(folder: Path) -> dict[str, LogSummary]:
    """The summary of every NAME.log.gz in a folder, by name of the process, with that of its FTDC beside it."""
    found = {path.name.removesuffix(".log.gz"): summarise(_lines(path)) for path in sorted(folder.glob("*.log.gz"))}
    for name, summary in found.items():
        with contextlib.suppress(ftdc.FtdcError):
            summary.diagnostics = ftdc.summarise(ftdc.read_archive(folder / f"{name}{ftdc.SUFFIX}"))
    return found
