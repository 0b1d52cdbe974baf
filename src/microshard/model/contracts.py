"""Print docs/contracts.md with tables made from the types: `python -m microshard.model.contracts docs/contracts.md`.

The part above the marker is written by hand.
"""

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

from microshard.model import advice, data_images, job, plan, result, run_records, telemetry, variables

MARKER = "<!-- From here on made from the types in src/microshard/model by `make generate`. -->\n"

# Heading, what it is about, and the type it begins with; the types that this one names follow it.
FILES: tuple[tuple[str, str, type], ...] = (
    ("run.json", "Marks the folder as a run.", run_records.RunMarker),
    ("lock.json", "What the run resolved.", run_records.RunLock),
    ("plan.json", "The plan; paths are relative to the run's folder.", plan.Plan),
    ("points/POINT/vars.json", "What the playbooks are given; paths are absolute.", variables.Variables),
    ("backend.json", "Where the run was executed.", run_records.BackendRecord),
    ("journal.jsonl", "One line an event. Fields that an event does not have are left out.", run_records.JournalEvent),
    (
        "ledger.jsonl",
        "One line for each thing outside of the folder, written before it is made.",
        run_records.LedgerRecord,
    ),
    (
        "job.json",
        "What an engine is given, as it is after reading: with logins, which the file does not have.",
        job.Job,
    ),
    ("tmp/progress.jsonl", "One line now and then while an engine works.", result.ProgressLine),
    ("results/POINT/STEP.json", "The result of an attempt at a step.", result.StepResult),
    ("telemetry/POINT/STEP/host-HOST.jsonl", "One line a second from each host.", telemetry.HostRecord),
    ("telemetry/POINT/STEP/server.jsonl", "One line a second from each mongod and mongos.", telemetry.ServerRecord),
    ("advice.json", "The answer of `microshard advise`.", advice.Advice),
    ("logs/POINT/summary.json", "An object of these by process.", run_records.LogSummary),
    ("manifest.json", "The first member of a bundle.", run_records.BundleManifest),
    ("images/NAME/manifest.json", "A data image, beside the folders of runs.", data_images.DataImage),
)


def tables() -> str:
    """The generated part of the page."""
    parts = [
        "A field with a default may be missing: it is then read as that default. Unknown fields are ignored. A file\n"
        "whose `format` is newer than the version of microshard that reads it is refused.\n"
    ]
    seen: set[type] = set()
    for name, about, kind in FILES:
        parts.append(f"\n## {name}\n\n{about}\n")
        parts += [
            f"\n### {each.__name__}\n\n{inspect.cleandoc(each.__doc__ or '')}\n\n{_table(each)}"
            for each in _with_parts(kind, seen)
        ]
    return "".join(parts)


def _with_parts(kind: type, seen: set[type]) -> Iterator[type]:
    """A type and those its fields name, each once on the page."""
    if kind in seen:
        return
    seen.add(kind)
    yield kind
    for hint in get_type_hints(kind).values():
        for part in _named(hint):
            yield from _with_parts(part, seen)


def _named(hint: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for argument in get_args(hint):
        yield from _named(argument)


def _table(kind: Any) -> str:
    written = {name: entry for base in reversed(kind.__mro__[:-1]) for name, entry in _written(base).items()}
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        annotation, comment = written[field.name]
        cells = (f"`{field.name}`", f"`{annotation}`", _default(field), comment)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "empty"
    if field.default is dataclasses.MISSING:
        return "required"
    return (
        "none"
        if field.default is None
        else f"`{field.default!r}`"
        if isinstance(field.default, str | int | float)
        else ""
    )


def _written(kind: type) -> dict[str, tuple[str, str]]:
    """Field → its type as the source has it, and the comment behind it or the lines of comment above it."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    (tree,) = ast.parse(source).body
    found = {}
    for node in tree.body if isinstance(tree, ast.ClassDef) else ():
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above: list[str] = []
            number = node.lineno - 2
            while lines[number].strip().startswith("#"):
                above.insert(0, lines[number].strip().removeprefix("#").strip())
                number -= 1
            behind = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :].strip().removeprefix("#")
            found[node.target.id] = ast.unparse(node.annotation), " ".join([*above, behind.strip()]).strip()
    return found


def main() -> None:
    """Print the page with its generated part made anew."""
    page = Path(sys.argv[1]).read_text(encoding="utf-8")
    print(page.partition(MARKER)[0] + MARKER + "\n" + tables(), end="")


if __name__ == "__main__":
    main()
