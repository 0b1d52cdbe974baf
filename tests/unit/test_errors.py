"""Exit codes are those the documentation names, and whatever the runner raises ends in one of them."""

import ast
import builtins
import importlib
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from microshard import errors
from microshard.errors import MicroshardError
from microshard.experiment.errors import DefinitionError
from microshard.interrupts import SIGNALS, Stopped

ROOT = Path(__file__).parents[2]
RUN = sorted((ROOT / "src" / "microshard" / "run").glob("*.py"))
CODES = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
SHOWN = (MicroshardError, DefinitionError)  # as messages, by the command line


def documented() -> set[int]:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Exit codes")[2].partition("\n## ")[0]
    return {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")}


def test_the_documented_exit_codes_are_those_there_are() -> None:
    assert documented() == CODES | {Stopped(number).exit_code for number in SIGNALS}


def test_signals_end_in_the_codes_a_shell_gives_them() -> None:
    assert {Stopped(number).exit_code for number in SIGNALS} == {128 + n for n in SIGNALS}
    assert Stopped(signal.SIGINT).exit_code == errors.EXIT_INTERRUPTED


def subclasses(of: type[MicroshardError]) -> Iterator[type[MicroshardError]]:
    for one in of.__subclasses__():
        yield one
        yield from subclasses(one)


def test_every_error_for_people_has_a_documented_code() -> None:
    for path in (ROOT / "src" / "microshard").glob("*/*.py"):
        if path.stem != "__main__":
            importlib.import_module(f"microshard.{path.parent.name}.{path.stem}".removesuffix(".__init__"))
    found = [one for one in subclasses(MicroshardError) if one.__module__.startswith("microshard")]
    assert len(found) > 15
    assert {one.exit_code for one in found} <= CODES - {errors.EXIT_OK, errors.EXIT_BUG}


def raised(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of whatever is called to raise it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield node.lineno, ast.unparse(node.exc.func)


def found_in(module: ModuleType, name: str) -> object:
    value: object = module
    for part in name.split("."):
        value = getattr(value, part, None) or getattr(builtins, part, None)
    return value


@pytest.mark.parametrize("path", RUN, ids=lambda p: p.stem)
def test_what_the_runner_raises_is_reported_to_people(path: Path) -> None:
    module = importlib.import_module(f"microshard.run.{path.stem}".removesuffix(".__init__"))
    for line, name in raised(ast.parse(path.read_text(encoding="utf-8"))):
        what = found_in(module, name)
        known = isinstance(what, type) and issubclass(what, SHOWN)
        helper = callable(what) and not isinstance(what, type)  # `raise definition_error(…)`
        assert known or helper or name == "loaded.error", f"{path.name}:{line} raises {name}"
