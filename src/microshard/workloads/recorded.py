"""Recorded queries as a mix of operations with their shares: from mongod's log (4.4 and later) or its profiler."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bson import json_util
from bson.errors import BSONError

from microshard.workloads.datasets.copied import APPLICATION, READ_MS, Hashing, SourceError, reading, without_login

MOST = 200  # operations of a mix: each form of a query has as many of its own as its share
_SLOW_QUERY = 51803  # the number of the log message
_REDACTED = "###"
_TAKEN = {"find": ("filter", "sort", "limit", "projection"), "aggregate": ("pipeline",), "count": ("query",)}


@dataclass(slots=True)
class Recorded:
    """The reads of a collection, and what else was recorded there."""

    operations: list[dict[str, Any]]  # as the engine `mix` takes them
    queries: int = 0
    forms: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # why → how many

    def summary(self) -> str:
        """What was found, for people."""
        out = ", ".join(f"{count:,} {why}" for why, count in self.left_out.most_common())
        return f"{self.queries:,} recorded queries in {self.forms} forms" + (f"; left out: {out}" if out else "")


def from_log(path: Path, namespace: str, hashing: Hashing, seed: int) -> Recorded:
    """The slow queries in a log. Raises SourceError."""
    return _mix(_logged(path, namespace), str(path), namespace, hashing, seed)


def from_profiler(uri: str, namespace: str, hashing: Hashing, seed: int) -> Recorded:
    """What the profiler of a deployment has recorded of a collection. Raises SourceError."""
    database = namespace.partition(".")[0]
    with reading(uri) as (client, _):
        wanted = {"ns": namespace, "appName": {"$ne": APPLICATION}}
        found = list(client[database]["system.profile"].find(wanted, max_time_ms=READ_MS))
    commands = (each.get("command", {}) | {"": each.get("op", "")} for each in found)
    return _mix(commands, f"{database}.system.profile of {without_login(uri)}", namespace, hashing, seed)


def _logged(path: Path, namespace: str) -> Iterator[Mapping[str, Any]]:
    """The commands of a collection."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip() or (str(_SLOW_QUERY) not in line and line.startswith("{")):
                    continue
                try:
                    entry = json_util.loads(line)
                except (ValueError, TypeError, BSONError) as error:
                    raise SourceError(f"{path}:{number}: {_not_json(line, error)}") from None
                if isinstance(entry, dict) and entry.get("id") == _SLOW_QUERY:
                    attributes = entry.get("attr", {})
                    if attributes.get("ns") == namespace and attributes.get("appName") != APPLICATION:
                        cut = {"": "too long for the log"} if "truncated" in entry else {"": attributes.get("type", "")}
                        yield attributes.get("command", {}) | cut
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from None


def _not_json(line: str, error: Exception) -> str:
    if not line.startswith("{"):
        return "not a line of JSON; MongoDB logs JSON from 4.4 on. Of an older server take --queries profiler"
    return f"a damaged line: {error}"


def _mix(commands: Iterable[Mapping[str, Any]], source: str, namespace: str, hashing: Hashing, seed: int) -> Recorded:
    found = Recorded([])
    forms: dict[str, list[dict[str, Any]]] = {}
    for command in commands:
        kind = next((name for name in _TAKEN if name in command), None)
        if kind is None or command[""] == "too long for the log":
            found.left_out[command[""] if kind else _other(command)] += 1
            continue
        operation = {name: command[name] for name in _TAKEN[kind] if command.get(name)}
        if kind == "count":
            operation = {"pipeline": [{"$match": operation.get("query", {})}, {"$count": "count"}]}
        elif kind == "find":
            operation.setdefault("filter", {})
        if any(name in str(operation) for name in ("'$out'", "'$merge'")):
            found.left_out["aggregations that write"] += 1
            continue
        forms.setdefault(json.dumps(form_of(operation)), []).append(hashing.query(operation))
    found.forms, found.queries = len(forms), sum(map(len, forms.values()))
    if not forms:
        raise SourceError(f"{source} has no read of {namespace}: {found.summary()}")
    if _REDACTED in str(forms.values()):
        raise SourceError(f'{source} is redacted: its values are "{_REDACTED}", so its queries would find nothing')
    rng = random.Random(seed)  # noqa: S311 - no secret
    for same in forms.values():
        drawn = rng.sample(same, min(len(same), max(1, round(MOST * len(same) / found.queries))))
        found.operations += [each | {"share": len(same) / found.queries / len(drawn)} for each in drawn]
    # Dates and ObjectIds as extended JSON: an experiment is YAML.
    found.operations = json.loads(json_util.dumps(found.operations, json_options=json_util.RELAXED_JSON_OPTIONS))
    return found


def _other(command: Mapping[str, Any]) -> str:
    """What a command is, that is not taken over."""
    return next((f"{name} commands" for name in command if name and not name.startswith(("$", "lsid"))), "others")


def form_of(operation: Any) -> Any:
    """An operation without its values: fields and operators stay, of a list of scalars only that it is one."""
    if isinstance(operation, Mapping):
        return {name: form_of(value) for name, value in operation.items() if name != "share"}
    if isinstance(operation, list):
        parts = [form_of(item) for item in operation]
        return parts if any(isinstance(part, dict | list) for part in parts) else ["?"]
    return "?"
