"""docs/tutorial.md, command by command, in an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
LONGEST = 240  # s for one command


def _steps() -> list[tuple[str, list[str]]]:
    """Every command of the page with the lines it is said to print."""
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif line.startswith("> ") and not found[-1][1]:
                found[-1] = (f"{found[-1][0]}\n{line.removeprefix('> ')}", [])
            else:
                found[-1][1].append(line)
    return found


def _pattern(lines: list[str]) -> re.Pattern[str]:
    """Of what a command prints: a line of nothing but … stands for any lines, … in a line for anything in it."""
    parts = ["(?:.*\\n)*" if line == "…" else f"{re.escape(line).replace('…', '.*')}\\n" for line in lines]
    return re.compile("".join(parts))


@pytest.mark.long
def test_every_command_prints_what_the_tutorial_says(tmp_path: Path) -> None:
    steps = _steps()
    assert len(steps) > 15
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for command, said in steps:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{{ {command}\n}} 2>&1"], cwd=tmp_path, env=os.environ | {"PATH": path},
            capture_output=True, text=True, timeout=LONGEST, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        assert _pattern(said).fullmatch(done.stdout), f"{command}\nprinted\n{done.stdout}\nsaid\n{chr(10).join(said)}"
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout
    assert not left, left


@pytest.mark.parametrize(
    ("said", "printed", "same"),
    [
        (["a … c"], "a b c\n", True), (["a"], "b\n", False), (["a"], "a\nb\n", False),
        (["a", "…"], "a\n", True), (["…", "c"], "a\nb\nc\n", True), (["…", "c"], "a\nb\n", False), ([], "a\n", False),
    ],
)  # fmt: skip
def test_what_was_printed_is_compared_line_by_line(said: list[str], printed: str, *, same: bool) -> None:
    assert bool(_pattern(said).fullmatch(printed)) == same
