import os
from pathlib import Path

import pytest

from microshard.experiment import yaml_reader
from microshard.experiment.errors import DefinitionError
from microshard.experiment.load import load
from tests.unit.experiment.lab import BASE, Lab

# Line 9 is the line after BASE. Each entry: what is added there, and how the one headline begins that comes of it.
TRAPS = {
    "a key given twice": ("title: a\ntitle: b", "10:1: title: the key is given"),
    "key given twice in braces": ("order: {seed: 1, seed: 2}", "9:18: order.seed: the key is given"),
    "a tag": ("title: !secret x", "9:8: title: the tag !secret is"),
    "tag that would run code": ("title: !!python/object/apply:os.system [ls]", "9:8: title: the tag"),
    "a merge key": ("order: {<<: {seed: 1}}", "9:9: order: merge keys (<<) are"),
    "a number as key": ("scales: {1: {}}", "9:10: scales: a key must be"),
    "a template": ("title: {{ name }}", "9:9: title: a key must be"),
    "an alias without anchor": ("title: *nobody", "9:8: title: there is no anchor"),
    "alias in its own anchor": ("scales: &s {a: *s}", "9:16: scales.a: the alias *s is"),
    "a tab": ("order:\n\tseed: 1", "10:1: a tab; YAML is"),
    "tab below a value": ("title: x\n\trepetitions: 1", "10:1: a tab; YAML is"),
    "key given twice, wrong the first time": ("title: 3\ntitle: b", "10:1: title: the key is given"),
    "octal": ("repetitions: 010", "9:14: repetitions: 010 may be octal"),
    "more than 64 bits": ("repetitions: 9223372036854775808", "9:14: repetitions: 9223372036854775808"),
    "more digits than Python converts": (f"repetitions: {'9' * 5000}", "9:14: repetitions"),
    "not a number": ("gates: {max_variation: .nan}", "9:24: gates.max_variation: .nan is not a"),
    "infinity": ("gates: {max_variation: -.inf}", "9:24: gates.max_variation: -.inf is not a"),
    "infinity by exponent": ("gates: {max_variation: 1e999}", "9:24: gates.max_variation: 1e999 is too"),
    "two documents": ("---\ntitle: x", "9:1: a second document begins"),
    "quotes left open": ('title: "x', "9:8: the quotes that begin"),
    "a file that ends too soon": ("scales: [1,", "10:1: the file ends inside"),
    "a value left out": ("scales: [,]", "9:10: a value is missing"),
    "a list left open": ("scales: [1", "9:9: the list in ["),
    "a mapping left open": ("order: {seed: 1", "9:8: the mapping in {"),
    "a colon too many": ("title: a: b", "9:9: a `:` where no"),
    "an @": ("title: @x", "9:8: text that begins with"),
    "a control character": ("title: \x07", "9:8: the character U+0007 is"),
    "indented otherwise": (" title: x", "9:2: is indented unlike its"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_of_yaml_is_named_at_its_place(lab: Lab, trap: str) -> None:
    text, expected = TRAPS[trap]
    (found,) = lab.wrong(f"{BASE}{text}\n")
    assert found.startswith(f"x.yml:{expected}")


def test_several_traps_are_reported_at_once_in_the_order_of_lines(lab: Lab) -> None:
    text = BASE.replace("count: 2", "count: 02").replace("name: base", "name: !x base") + "repetitions: 0\n"
    assert [f.split(": ")[0] for f in lab.wrong(text)] == ["x.yml:2:7", "x.yml:4:19", "x.yml:9:14"]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_an_empty_file_says_so(lab: Lab, text: str) -> None:
    (found,) = lab.wrong(text)
    assert "is empty; see `microshard schema`" in found


@pytest.mark.parametrize(
    ("text", "what"), [("- a\n", "a list of 1"), ("just text\n", 'the text "just text"'), ("--- 4\n", "the number 4")]
)
def test_a_file_that_is_no_mapping_says_what_it_is(lab: Lab, text: str, what: str) -> None:
    (found,) = lab.wrong(text)
    assert found.endswith(f"found {what}")


def test_the_yaml_1_1_directive_is_refused(lab: Lab) -> None:
    (found,) = lab.wrong(f"%YAML 1.1\n---\n{BASE}")
    assert found.startswith("x.yml:2:1: experiment files are YAML 1.2")


def test_bytes_that_are_not_utf_8_are_located(lab: Lab) -> None:
    text = BASE.encode() + "title: caf\u00e9".encode("latin-1")
    assert lab.wrong(text)[0].startswith(f"x.yml:9:11: byte {len(BASE) + 10} (0xe9) is not UTF-8")
    assert lab.wrong(BASE.encode("utf-16"))[0].startswith("x.yml:1:1: byte 0 (0xff) is not UTF-8")


def test_a_byte_order_mark_is_passed_over_and_moves_no_column(lab: Lab) -> None:
    lab.file.write_bytes(b"\xef\xbb\xbf" + BASE.encode())
    assert load(lab.file).experiment.name == "base"
    (problem,) = lab.problems(b"\xef\xbb\xbf" + BASE.replace("microshard: 1", "microshard: 2").encode())
    assert (problem.line, problem.column, problem.source_line) == (1, 13, "microshard: 2")
    assert lab.wrong(b"\xef\xbb\xbf" + BASE.replace("name: base", "nam: base").encode())[0].startswith(
        "x.yml:2:1: nam:"
    )


def test_windows_line_ends_move_no_line(lab: Lab) -> None:
    (found,) = lab.wrong(BASE.replace("documents: 100", "documents: x").replace("\n", "\r\n").encode())
    assert found.startswith("x.yml:7:39: workload.0.load.documents: found")


def test_a_file_larger_than_the_limit_is_refused_unread(lab: Lab) -> None:
    assert lab.wrong(BASE + "#" * yaml_reader.MAX_BYTES)[0].startswith("x.yml: larger than 512 KiB")


def test_what_is_nested_too_deeply_is_refused_at_the_level_too_many(lab: Lab) -> None:
    deep = yaml_reader.MAX_DEPTH - 1  # `title` is a level itself
    assert "nested deeper" not in lab.wrong(f"{BASE}title: {'[' * deep}{']' * deep}")[0]
    (found,) = lab.wrong(f"{BASE}title: {'[' * (deep + 1)}{']' * (deep + 1)}")
    assert found.startswith(f"x.yml:9:{8 + deep}: ")
    assert found.endswith("nested deeper than 64 levels")


def test_aliases_cannot_hide_levels(lab: Lab) -> None:
    lists = "".join(f"  - &l{i} {'[' * 9}{f'*l{i - 1}' if i else ''}{']' * 9}\n" for i in range(9))
    (found,) = lab.wrong(f"{BASE}title:\n{lists}")
    assert found.endswith("nested deeper than 64 levels once *l5 is expanded")


@pytest.mark.parametrize("opening", ["[", "{", "- ", "? ", "{a: ", "[{"])
def test_a_file_of_nothing_but_openings_ends_at_once(lab: Lab, opening: str) -> None:
    (found,) = lab.wrong(opening * 50_000)
    assert "nested deeper" in found or "a key must be text" in found


def test_an_alias_bomb_is_never_expanded(lab: Lab) -> None:
    lines = ["bomb0: &b0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"bomb{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 10)}]" for i in range(1, 20)]
    (found,) = lab.wrong("\n".join(lines))
    assert found.startswith("x.yml:5:28: bomb4.3: more than 50,000 values")


def test_anchors_and_aliases_are_read_as_what_they_stand_for(lab: Lab) -> None:
    text = BASE.replace("load: {", "load: &l {").replace("measure: {engine: aggregate, pipeline: p}", "warm_up: *l")
    loaded = lab.load(text + "  - measure: {engine: aggregate, pipeline: p}\n")
    assert loaded.experiment.workload[1].warm_up == loaded.experiment.workload[0].load


def test_a_wrong_value_behind_an_alias_is_shown_where_it_is_written(lab: Lab) -> None:
    text = BASE + "order: {seed: &n -1}\nrepetitions: *n\n"
    assert [f.split(": ")[0] for f in lab.wrong(text)] == ["x.yml:9:15", "x.yml:9:15"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("gone.yml", "no such file"), ("", "is a folder"), ("x" * 300, "cannot be read: File name too long")],
)
def test_what_is_no_file_or_cannot_be_read_is_named(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        load(tmp_path / name)
    assert str(raised.value).startswith(f"{tmp_path / name}: {reason}")


def test_a_file_that_may_not_be_read_says_so(lab: Lab) -> None:
    lab.file.write_text(BASE)
    lab.file.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # nobody: root may read everything
    try:
        with pytest.raises(DefinitionError, match="cannot be read: Permission denied"):
            load(lab.file)
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("null", None), ("~", None), ("", None), ("true", True), ("False", False), ("'true'", "true"), ("on", "on")),
        *(("12", 12), ("-3", -3), ("+3", 3), ("0", 0), ("0o17", 15), ("0x1F", 31), ("1_000", "1_000"), ("'4'", "4")),
        *(("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("0.10", 0.1), (".", "."), ("12:30:45", "12:30:45")),
        *(("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)), ("2015-07-03", "2015-07-03")),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    document, problems = yaml_reader.parse("x.yml", f"a: {text}\n")
    assert problems == []
    assert document.data == {"a": value}
    assert type(document.data["a"]) is type(value)
