"""Imports inside functions are those that docs/architecture.md lists, with what they save, and no others."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "microshard"


def listed() -> list[tuple[str, str]]:
    """(imported module or package, file or folder below src/microshard) for every row of the table."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("| imported inside functions |")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    return [(name, place) for row in rows for name in quoted(row[1]) for place in quoted(row[2])]


def quoted(cell: str) -> list[str]:
    return cell.split("`")[1::2]


def deferred() -> Iterator[tuple[str, str]]:
    """(imported module, file below src/microshard) for every import inside a function."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom):
                        yield "." * node.level + (node.module or ""), name
                    elif isinstance(node, ast.Import):
                        yield from ((alias.name, name) for alias in node.names)


def allows(row: tuple[str, str], found: tuple[str, str]) -> bool:
    (module, place), (imported, file) = row, found
    within = file == place or (place.endswith("/") and file.startswith(place))
    return within and (imported == module or imported.startswith(f"{module}."))


def test_every_import_inside_a_function_is_listed() -> None:
    rows = listed()
    assert not [found for found in deferred() if not any(allows(row, found) for row in rows)]


def test_every_row_of_the_list_is_needed() -> None:
    every = list(deferred())
    assert not [row for row in listed() if not any(allows(row, found) for found in every)]
