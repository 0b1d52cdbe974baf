"""Experiment files made wrong: each must load or be refused by file, line and key, soon and without a traceback."""

import random
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from microshard.experiment import yaml_reader
from microshard.experiment.document import KeyPath, dotted
from microshard.experiment.errors import DefinitionError
from microshard.experiment.load import build
from microshard.experiment.matrix import expand
from tests.faults.table import Row
from tests.unit.experiment.test_mutations import (
    OTHER_VALUES,
    Twice,
    at,
    is_in_types,
    places,
    renamed,
    replaced,
    without,
    written,
)

SHIPPED = sorted((Path(__file__).parents[2] / "experiments").glob("*.yml"))
SECONDS = 2.0  # of processor time: no definition may take longer, whatever is in it


@dataclass(frozen=True, slots=True)
class Case:
    """A wrong file."""

    kind: str
    text: str
    must_fail: bool = False
    key: str = ""  # dotted, of what was changed


# Some 47,000 can be made of the shipped files, and few are tried in one run: each is made when its turn comes.
Maker = Callable[[], Case]


def _texts(file: Path) -> Iterator[Maker]:
    """The file with its text broken at every line in turn."""
    text = file.read_text(encoding="utf-8")
    lines = text.split("\n")
    for number, line in enumerate(lines):
        for kind, new in (
            ("tab", "\t" + line),
            ("indent", " " + line),
            ("cut line", line[: len(line) // 2]),
            ("no colon", line.replace(":", " ", 1)),
            ("open bracket", line + " ["),
            ("line twice", line + "\n" + line),
        ):
            if new != line:
                yield partial(_with_line, kind, lines, number, new)
    yield partial(Case, "cut file", text[: len(text) // 3])


def _with_line(kind: str, lines: list[str], number: int, new: str) -> Case:
    return Case(kind, "\n".join([*lines[:number], new, *lines[number + 1 :]]))


def _values(file: Path) -> Iterator[Maker]:
    """The file with every key left out, mistyped, doubled, and given other values, in turn."""
    data = yaml_reader.read(file)[0].data
    for path in places(data):
        yield partial(_left_out, data, path)
        if isinstance(path[-1], str):
            yield partial(_mistyped, data, path)
            yield partial(_with_value, "key twice", data, path, Twice(at(data, path)), must_fail=True)
        for value in OTHER_VALUES:
            yield partial(_with_value, "other value", data, path, value)


def _left_out(data: Any, path: KeyPath) -> Case:
    return Case("key left out", written(without(data, path)), key=dotted(path))


def _mistyped(data: Any, path: KeyPath) -> Case:
    known = is_in_types(path, data)  # else a name of the user's, of MongoDB's or of YCSB's
    return Case("key mistyped", written(renamed(data, path, f"{path[-1]}x")), known, dotted(path))


def _with_value(kind: str, data: Any, path: KeyPath, value: Any, *, must_fail: bool = False) -> Case:
    return Case(kind, written(replaced(data, path, value)), must_fail, dotted(path))


# Each trap of YAML has a case of its own.
_HEAD = "microshard: 1\nname: x\n"
_TAIL = "workload:\n  - measure: {engine: aggregate, pipeline: mot_greenness}\n"
TRAPS: dict[str, str | bytes] = {
    "exploding anchors": "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)),
    "anchor of itself": _HEAD + "topology: &t {mongod: *t}\n" + _TAIL,
    "on and off": _HEAD + "topology: {balancer: {enabled: on}}\n" + _TAIL,
    "yes as a name": "microshard: 1\nname: yes\n" + _TAIL,
    "octal": _HEAD + "repetitions: 010\n" + _TAIL,
    "sexagesimal": _HEAD + "repetitions: 1:30\n" + _TAIL,
    "huge number": _HEAD + f"repetitions: {'9' * 5000}\n" + _TAIL,
    "huge exponent": _HEAD + "repetitions: 1e999999\n" + _TAIL,
    "not a number": _HEAD + "budget: {max_hours: .nan}\n" + _TAIL,
    "infinity": _HEAD + "budget: {max_hours: .inf}\n" + _TAIL,
    "tab": _HEAD + "topology:\n\tkind: sharded\n" + _TAIL,
    "not UTF-8": _HEAD.encode() + b"title: caf\xe9\n" + _TAIL.encode(),
    "UTF-16": (_HEAD + _TAIL).encode("utf-16"),
    "null byte": _HEAD + "title: a\x00b\n" + _TAIL,
    "merge key": "base: &b {repetitions: 2}\n<<: *b\n" + _HEAD + _TAIL,
    "tag of Python": _HEAD + "title: !!python/object/apply:os.system [true]\n" + _TAIL,
    "own tag": _HEAD + "title: !secret x\n" + _TAIL,
    "two documents": _HEAD + _TAIL + "---\n" + _HEAD + _TAIL,
    "nothing": "",
    "only a comment": "# nothing\n",
    "a list": "- microshard: 1\n",
    "deep nesting": _HEAD + "title: " + "[" * 3000 + "]" * 3000 + "\n",
    "deep mapping": _HEAD + "title: " + "{a: " * 2000 + "1" + "}" * 2000 + "\n",
    "a long line": _HEAD + "title: " + "x" * 3_000_000 + "\n" + _TAIL,
    "many keys": _HEAD + "".join(f"k{n}: 1\n" for n in range(5000)) + _TAIL,
    "many points": _HEAD + "matrix: {topology.shards.count: [" + ", ".join(map(str, range(1, 1025))) + "], "
    "repetitions: [1, 2], topology.storage.oplog_size_mb: [" + ", ".join(map(str, range(990, 2000))) + "]}\n" + _TAIL,
    "key of a number": _HEAD + "1: 2\n" + _TAIL,
    "key of a list": _HEAD + "? [a, b]\n: 1\n" + _TAIL,
    "date": _HEAD + "title: 2015-07-03\n" + _TAIL,
    "template": _HEAD + 'title: \'{{ lookup("pipe", "touch evil") }}\'\n' + _TAIL,
}
# Right after all: in YAML 1.2 these are texts, and a template in a text is only text.
HARMLESS = {"template", "date", "yes as a name"}


def check(case: Case, folder: Path) -> str | None:
    """What is wrong with how the loader took it; None when nothing is."""
    began = time.process_time()
    try:
        expand(build(*yaml_reader.parse("x.yml", case.text)))
    except DefinitionError as error:
        wrong = unclear_error(error, case.text)
    except Exception:  # noqa: BLE001 - that is what is looked for
        return "traceback: " + traceback.format_exc().strip().splitlines()[-1]
    else:
        wrong = "accepted" if case.must_fail else None
    seconds = time.process_time() - began
    return f"took {seconds:.1f} s" if seconds > SECONDS else wrong


def unclear_error(error: DefinitionError, text: str) -> str | None:
    """What is wrong with an error for people; None when it names file, line and reason."""
    lines = max(1, len(text.splitlines()))
    for problem in error.problems:
        if problem.file != "x.yml" or not problem.message.strip():
            return f"no file or no message: {problem}"
        if not 1 <= problem.line <= lines + 1:
            return f"line {problem.line} of {lines}: {problem}"
        if "Traceback" in problem.message or "pydantic" in problem.message:
            return f"not for people: {problem}"
    return None if error.problems else "no problem in the error"


def cases(seed: int, most: int | None = None) -> Iterator[Case]:
    """Every mutation of every shipped file, or `most` of them in an order the seed decides."""
    found = [maker for file in SHIPPED for makers in (_texts, _values) for maker in makers(file)]
    random.Random(seed).shuffle(found)
    for maker in found[:most]:
        yield maker()


def campaign(seed: int, most: int | None, folder: Path, tell: Callable[[str], None] = lambda _: None) -> list[Row]:
    """Try them, and every trap; rows by kind of mutation."""
    rows: dict[str, Row] = {}
    for number, case in enumerate(cases(seed, most)):
        row = rows.setdefault(case.kind, Row(case.kind, "experiment file"))
        row.times += 1
        if wrong := check(case, folder):
            row.lost.append(f"{case.key} {wrong}: {_shortest(case.text)}")
        if number % 500 == 0:
            tell(f"{number:,} experiment files")
    for name, trap in TRAPS.items():
        row = rows.setdefault("YAML trap", Row("YAML trap", "experiment file"))
        row.times += 1
        if wrong := trapped(name, trap, folder):
            row.lost.append(f"{name}: {wrong}")
    return list(rows.values())


def trapped(name: str, trap: str | bytes, folder: Path) -> str | None:
    """As `check`, from a file, as a user has it."""
    path = folder / "trap.yml"
    path.write_bytes(trap if isinstance(trap, bytes) else trap.encode())
    began = time.process_time()
    loaded: Any = None
    try:
        loaded = build(*yaml_reader.read(path))
        expand(loaded)
    except DefinitionError as error:
        if not error.problems or any(not p.message or p.file != str(path) for p in error.problems):
            return f"unclear: {error.problems}"
        if name in HARMLESS:
            return f"refused: {error.problems[0].message}"
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        return f"traceback: {type(error).__name__}: {str(error)[:100]}"
    else:
        if name not in HARMLESS:
            return "accepted"
    seconds = time.process_time() - began
    return f"took {seconds:.1f} s" if seconds > SECONDS else None


def _shortest(text: str) -> str:
    return repr(text if len(text) < 300 else text[:300] + "…")
