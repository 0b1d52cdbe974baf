"""Commands by their names, their completion, and tables in narrow terminals."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from microshard.cli.group import microshard

ROOT = Path(__file__).parents[3]
COMMAND = "import sys; sys.argv[0] = 'microshard'; from microshard.cli import main; main()"


def start(*arguments: str, **options: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], stderr=subprocess.PIPE, cwd=ROOT, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(("width", "missing"), [(120, b""), (80, b"ports"), (40, b"repetition")])
def test_columns_that_a_narrow_terminal_lacks_are_named(width: int, missing: bytes) -> None:
    process = start("plan", "quickstart", stdout=subprocess.PIPE, env=os.environ | {"COLUMNS": str(width)})
    tables = process.communicate()[0].partition(b"Cache policy")[0]
    assert max(map(len, tables.decode().splitlines())) <= max(width, 66)  # the title is one line
    assert missing in tables.partition(b"not shown")[2] if missing else b"not shown" not in tables


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["stauts"], b"status"), (["plan", "quickstrat"], b"quickstart"), (["help", "stauts"], b"status")],
)
def test_a_command_or_an_experiment_that_does_not_exist_has_neighbours(words: list[str], meant: bytes) -> None:
    process = start(*words, stdout=subprocess.PIPE)
    assert b"did you mean " + meant in process.communicate()[1]
    assert process.returncode == 2


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ([], "Clusters that stay up:"),
        (["up"], "Usage: microshard up [OPTIONS] FILE"),
        (["topology.shards.count"], "whole number, 1 to 1024, default 1"),
    ],
)
def test_help_explains_commands_and_keys(topic: list[str], said: str) -> None:
    found = CliRunner().invoke(microshard, ["help", *topic], prog_name="microshard")
    assert found.exit_code == 0, found.output
    assert said in found.output


def test_a_place_that_does_not_exist_is_a_wrong_command_line_as_a_missing_file_is() -> None:
    for words in (["quickstart", "--on", "foo"], ["nofile.yml"]):
        process = start("run", *words, stdout=subprocess.PIPE)
        said = process.communicate()[1]
        assert (process.returncode, b"no such" in said) == (2, True), said


@pytest.mark.parametrize(("words", "found"), [("microshard re", "resume"), ("microshard plan quick", "quickstart")])
def test_completion(words: str, found: str) -> None:
    environment = os.environ | {"_MICROSHARD_COMPLETE": "bash_complete", "COMP_WORDS": words}
    process = start(stdout=subprocess.PIPE, env=environment | {"COMP_CWORD": str(words.count(" "))})
    assert f"plain,{found}" in process.communicate()[0].decode()
