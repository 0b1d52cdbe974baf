"""The command line, in this process or in one that gets a signal: its output and exit code."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from microshard import cli


@dataclass(frozen=True, slots=True)
class Said:
    """What a command has written, and its exit code."""

    code: int
    out: str
    err: str


def microshard(capsys: pytest.CaptureFixture[str], *words: object) -> Said:
    """Run a command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["microshard", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    code = ended.value.code
    return Said(code if isinstance(code, int) else 0, said.out, said.err)


def signalled(folder: Path, number: signal.Signals, when: Callable[[], bool], *words: str) -> tuple[int, str]:
    """Run a command line in a process and send it a signal as soon as `when` is true; return exit code and output.

    The output goes to a file: a playbook that outlives its run would keep a pipe open.
    """
    with (folder / "output").open("w") as output:
        command = [str(Path(sys.executable).with_name("microshard")), *words]
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while not when() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        code = process.wait()
    return code, (folder / "output").read_text()
