"""How processes of ours end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from microshard.hostlib.lifetime import Terminated, orderly_end

CHILD = (
    "import os, sys, time\n"
    "from microshard.hostlib.lifetime import die_with_parent\n"
    "die_with_parent(int(sys.argv[1]))\n"
    "print(os.getpid(), flush=True)\n"
    "time.sleep(60)\n"
)
PARENT = (
    "import os, subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())])\n"
    "time.sleep(60)\n"
)


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_child_dies_when_its_parent_is_killed() -> None:
    """It writes to nobody and reads nothing: only the kernel can tell it."""
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        deadline = time.monotonic() + 60
        while not ended(child):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                pytest.fail("the child lives on")
            time.sleep(0.02)


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "1"], capture_output=True, check=False, timeout=30)
    assert done.returncode == -signal.SIGKILL


def test_only_the_first_signal_interrupts_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with orderly_end():
        with pytest.raises(Terminated) as caught:
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert caught.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_process_leaves_with_all_it_said_and_waits_for_nothing() -> None:
    leaving = (
        "import atexit, sys\n"
        "from microshard.hostlib.lifetime import leave\n"
        "atexit.register(print, 'waited')\n"
        "print('said', end='')\n"
        "print('complained', end='', file=sys.stderr)\n"
        "leave(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", leaving], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "said", "complained")


def test_a_process_whose_reader_is_gone_leaves_with_its_own_code() -> None:
    leaving = (
        "import sys\nfrom microshard.hostlib.lifetime import leave\nprint('said')\nsys.stdin.readline()\nleave(3)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", leaving], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait() == 3
