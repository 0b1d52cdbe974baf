"""Where output goes must not decide whether a command works."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = "import sys; sys.argv[0] = 'microshard'; from microshard.cli import main; main()"


def start(*arguments: str, **options: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], stderr=subprocess.PIPE, cwd=ROOT, **options)  # type: ignore[call-overload,no-any-return]


def test_a_reader_that_leaves_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = start("reference", stdout=writing)
    os.close(writing)
    assert process.communicate()[1] == b""
    assert process.returncode == 0


def test_a_full_disk_below_standard_output_is_said() -> None:
    with Path("/dev/full").open("wb") as full:
        process = start("reference", stdout=full)
    assert b"No space left on device" in process.communicate()[1]
    assert process.returncode == 1


def test_a_terminal_without_unicode_gets_ascii() -> None:
    environment = os.environ | {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    process = start("plan", "quickstart", stdout=subprocess.PIPE, env=environment)
    out, error = process.communicate()
    assert (process.returncode, error) == (0, b"")
    assert b"4 x 256 = 1,024" in out
