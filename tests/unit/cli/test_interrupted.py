"""Ctrl-C while the command line is still importing: the exit code of an interruption, and no words of Python's own."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from microshard.cli import group, main
from microshard.interrupts import SIGNALS, Stopped, raise_if_interrupted, signals

MICROSHARD = str(Path(sys.executable).with_name("microshard"))
QUICKSTART = Path(__file__).parents[3] / "experiments" / "quickstart.yml"
MARK = "import time:"  # of every line Python writes when it has imported a module
# From the first module after the handler is set to the last ones `plan` needs, over about the first second.
MOMENTS = ("gc", "click", "pydantic", "ruamel.yaml", "rich.console", "microshard.run.prepare")


def stopped_at(module: str, number: signal.Signals) -> tuple[int, list[str]]:
    """Send a signal when Python says that it has imported a module. Returns the exit code and what was said."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)  # on a busy machine it would be at its end before this reads
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    command = [MICROSHARD, "plan", str(QUICKSTART)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=writer, env=environment)
    os.close(writer)
    with process, os.fdopen(reader, encoding="utf-8") as written:
        for line in written:
            if line.startswith(MARK) and line.rpartition("|")[2].strip() == module:
                process.send_signal(number)
                break
        else:
            pytest.fail(f"{module} is not imported")
        said = [line for line in written if not line.startswith(MARK)]
    return process.wait(), said


@pytest.mark.parametrize("module", MOMENTS)
def test_ctrl_c_while_importing_ends_at_once_and_without_a_traceback(module: str) -> None:
    assert stopped_at(module, signal.SIGINT) == (130, [])


def test_sigterm_while_importing_has_its_own_exit_code() -> None:
    assert stopped_at("click", signal.SIGTERM) == (143, [])


def test_a_signal_whose_exception_the_interpreter_drops_comes_again(capfd: pytest.CaptureFixture[str]) -> None:
    class Dropping:
        """Python drops whatever is raised while it ends an object."""

        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            sum(range(100))

    def dropped() -> None:
        with signals():
            Dropping()
            signal.pause()

    with pytest.raises(Stopped) as stopped:
        dropped()
    assert stopped.value.exit_code == 130
    assert capfd.readouterr() == ("", "")


def test_a_signal_whose_exception_was_dropped_without_a_word_is_honoured_before_anything_new_begins() -> None:
    with signals():
        with contextlib.suppress(Stopped):  # as C code does it
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Stopped) as stopped:
            raise_if_interrupted()
    assert stopped.value.exit_code == 143
    raise_if_interrupted()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_a_process_that_only_ends_does_not_change_how_the_work_ended(number: signal.Signals) -> None:
    late = (
        "import atexit, os, sys; from microshard.cli import main; sys.argv[1:] = ['--version'];"
        f"atexit.register(lambda: os.kill(os.getpid(), {number.value})); main()"
    )
    done = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interruption_that_was_dropped_without_a_word_is_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it happens to one in twenty while Python compiles what has no .pyc yet, on a busy machine."""

    def deaf() -> int:
        with contextlib.suppress(Stopped):
            signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr(group, "execute", deaf)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def test_what_python_makes_of_an_interruption_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its compiler turns whatever stops it from importing unicodedata into an error of syntax."""

    def converted() -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except Stopped:
            raise SyntaxError("unicode error") from None
        return 0

    monkeypatch.setattr(group, "execute", converted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
