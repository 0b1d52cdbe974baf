"""Right files made wrong, many times over: each loads or is refused with a place in the file, never anything else."""

import contextlib
import datetime
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microshard.experiment import yaml_reader
from microshard.experiment.document import KeyPath, dotted
from microshard.experiment.errors import DefinitionError, Problem
from microshard.experiment.load import build
from microshard.experiment.matrix import expand
from microshard.experiment.shape import EXPERIMENT, KeyShape
from tests.unit.experiment.lab import SAMPLES

SHIPPED = sorted((Path(__file__).parents[3] / "experiments").glob("*.yml"))
FILES = [*SAMPLES, *SHIPPED]
# Values of every type, each wrong in most places; the last three are right in some.
OTHER_VALUES: tuple[Any, ...] = (None, True, -1, 10**15, 1.5, "", "on", "4", [], {}, [None], {"x": 1}, 1, "none", 0)


@dataclass(frozen=True)
class Twice:
    """A value whose key is to be written twice."""

    value: Any


def written(value: Any, indent: int = 0) -> str:
    """As YAML in which every key and item has its own line, so that a place is known by its line."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        lines = []
        for key, inner in value.items():
            once = f"{pad}{json.dumps(key)}:{written_after_key(inner, indent)}"
            lines += [once, once] if isinstance(inner, Twice) else [once]
        return "\n".join(lines)
    if isinstance(value, list) and value:
        return "\n".join(f"{pad}-{written_after_key(inner, indent)}" for inner in value)
    return f"{pad}{json.dumps(value)}"


def written_after_key(value: Any, indent: int) -> str:
    value = value.value if isinstance(value, Twice) else value
    return f"\n{written(value, indent + 1)}" if isinstance(value, dict | list) and value else f" {json.dumps(value)}"


def places(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def replaced(value: Any, path: KeyPath, new: Any) -> Any:
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def at(value: Any, path: KeyPath) -> Any:
    for part in path:
        value = value[part]
    return value


def shape_at(value: Any, path: KeyPath) -> KeyShape | None:
    shape: KeyShape | None = EXPERIMENT
    for part in path:
        shape = shape.child(part, value) if shape else None
        value = value[part]
    return shape


def without(value: Any, path: KeyPath) -> Any:
    parent = at(value, path[:-1])
    rest = (
        [v for i, v in enumerate(parent) if i != path[-1]]
        if isinstance(parent, list)
        else {k: v for k, v in parent.items() if k != path[-1]}
    )
    return replaced(value, path[:-1], rest)


def renamed(value: Any, path: KeyPath, name: str) -> Any:
    parent = at(value, path[:-1])
    return replaced(value, path[:-1], {name if k == path[-1] else k: v for k, v in parent.items()})


def problems_of(text: str) -> list[Problem]:
    """What the loader says, after making sure that it says it properly."""
    try:
        expand(build(*yaml_reader.parse("x.yml", text)))
    except DefinitionError as error:
        problems, shown = error.problems, str(error)
    else:
        return []
    lines = yaml_reader.split_lines(text)
    assert problems
    assert shown
    for problem in problems:
        assert problem.file == "x.yml"
        assert problem.message
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        assert problem.source_line == lines[problem.line - 1]
        assert "pydantic" not in problem.message
    return problems


def read(file: Path) -> dict[str, Any]:
    return yaml_reader.read(file)[0].data


def some(file: Path, paths: list[KeyPath], count: int) -> list[KeyPath]:
    """The same few of many every time."""
    return random.Random(file.stem).sample(paths, min(count, len(paths)))


# A third of the files by date; all of them in the tests that take longer.
TODAY = FILES[datetime.datetime.now(datetime.UTC).toordinal() % 3 :: 3]
PARAMS = [pytest.param(path, marks=[] if path in TODAY else pytest.mark.long, id=path.stem) for path in FILES]


@pytest.fixture(params=PARAMS)
def file(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def is_in_types(path: KeyPath, data: Any) -> bool:
    """Whether the key is one of a model's, not a name of the user's."""
    parent = shape_at(data, path[:-1])
    return isinstance(path[-1], str) and parent is not None and parent.kind in {"mapping", "variants"}


@pytest.mark.parametrize("file", FILES, ids=lambda p: p.stem)
def test_written_anew_a_file_is_still_right(file: Path) -> None:
    assert problems_of(written(read(file))) == []


def test_a_mistyped_key_is_found_on_its_line_with_the_right_name(file: Path) -> None:
    data = read(file)
    keys = [p for p in places(data) if is_in_types(p, data) and "." not in str(p[-1])]
    for path in some(file, keys, 30):
        key = str(path[-1])
        text = written(renamed(data, path, f"{key}x"))
        (line,) = (n for n, shown in enumerate(text.split("\n"), 1) if shown.lstrip(" -").startswith(f'"{key}x":'))
        mistyped = dotted((*path[:-1], f"{key}x"))
        assert (line, mistyped, key) in {(p.line, p.key_path, p.nearest) for p in problems_of(text)}


def test_a_key_given_twice_is_found_on_its_second_line(file: Path) -> None:
    data = read(file)
    for path in some(file, [p for p in places(data) if isinstance(p[-1], str)], 15):
        text = written(replaced(data, path, Twice(at(data, path))))
        (problem,) = problems_of(text)
        assert problem.message.startswith("the key is given twice, first on line ")
        assert problem.key_path == dotted(path)
        first = int(problem.message.split("line ")[1].split(";")[0])
        assert text.split("\n")[first - 1].lstrip(" -") == problem.source_line.lstrip(" -")
        assert problem.line > first


def test_a_key_left_out_is_missed_or_has_a_default(file: Path) -> None:
    data = read(file)
    for path in some(file, list(places(data)), 30):
        found = problems_of(written(without(data, path)))
        if path in {("microshard",), ("name",), ("workload",)}:
            assert [(p.key_path, p.found) for p in found] == [(path[0], "nothing")]


def test_a_value_of_another_type_is_refused_or_allowed_there(file: Path) -> None:
    data = read(file)
    for number, path in enumerate(some(file, list(places(data)), 60)):
        shape = shape_at(data, path)
        new = OTHER_VALUES[number % len(OTHER_VALUES)]
        found = problems_of(written(replaced(data, path, new)))
        if shape is not None and shape.kind in {"whole", "number", "bool"} and isinstance(new, str | list | dict):
            assert any(p.key_path == dotted(path) and p.allowed for p in found), (path, new)


def test_the_corpus_is_not_small() -> None:
    per_file = [len(list(places(read(f)))) for f in FILES]
    assert sum(min(n, 30) + min(n, 15) + min(n, 30) + min(n, 60) for n in per_file) >= 300


@settings(max_examples=150)
@given(data=st.data())
def test_whatever_is_done_to_the_text_ends_in_points_or_in_problems(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(FILES)).read_text(encoding="utf-8")
    tokens = [*"{}[]:,#'|>\t\n%@", '"', "- ", "&a ", "*a", "!x ", "? "]
    tokens += ["---\n", "<<: *a", "010", ".nan", "1e999", "\x00", "\u2028", "\ufeff", "é", "null", "  "]
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 15)))
        text = text[:start] + data.draw(st.sampled_from(["", *tokens])) + text[end:]
    problems_of(text)


@settings(max_examples=100)
@given(data=st.data())
def test_several_mutations_at_once_end_in_points_or_in_problems(data: st.DataObject) -> None:
    value: Any = read(data.draw(st.sampled_from(FILES)))
    for _ in range(data.draw(st.integers(1, 4))):
        paths = list(places(value))
        if not paths:
            break
        path = data.draw(st.sampled_from(paths))
        match data.draw(st.sampled_from(["delete", "rename", "retype"])):
            case "delete":
                value = without(value, path)
            case "rename" if isinstance(path[-1], str):
                value = renamed(
                    value, path, data.draw(st.sampled_from(["x", "count", "a.b", "", "engine", "topology.kind"]))
                )
            case _:
                value = replaced(value, path, data.draw(st.sampled_from(OTHER_VALUES)))
    problems_of(written(value))


@settings(max_examples=100)
@given(raw=st.binary(max_size=60), cut=st.integers(0, 2000))
def test_whatever_bytes_follow_end_in_points_or_in_problems(
    raw: bytes, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.getbasetemp() / "bytes.yml"
    file.write_bytes(FILES[0].read_bytes()[:cut] + raw)
    with contextlib.suppress(DefinitionError):
        expand(build(*yaml_reader.read(file)))
