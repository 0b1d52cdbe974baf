"""Which process a pid is, and how processes are signalled, ended and end themselves."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.hostlib import proc

Sleeper = subprocess.Popen[bytes]
SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


def live(pid: int) -> proc.LiveProcess:
    """The process, which must be there."""
    found = proc.find(pid)
    assert found is not None
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    process = subprocess.Popen([*SLEEPER, "/run/shard01/mongod.conf"])
    # Until exec has happened, the child's command line is its parent's.
    wait_until(lambda: "/run/shard01/mongod.conf" in live(process.pid).command)
    yield process
    process.kill()
    process.wait()


def test_a_process_is_ours_only_with_its_configuration_in_its_command_line(sleeper: Sleeper, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    pid_file.write_text(f"{sleeper.pid}\n")
    recorded = proc.from_pid_file(str(pid_file), "/run/shard01/mongod.conf")
    assert recorded is not None
    assert recorded.pid == sleeper.pid
    assert proc.from_pid_file(str(pid_file), "/run/shard02/mongod.conf") is None


@pytest.mark.parametrize("content", ["", "abc", "0", "1", "-1", "4194304999"])
def test_a_pid_file_that_names_nobody_finds_nobody(content: Any, tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(content)
    assert proc.from_pid_file(str(tmp_path / "pid"), "/run/shard01/mongod.conf") is None


def test_a_signal_does_not_reach_a_process_that_took_over_the_pid(sleeper: Sleeper) -> None:
    earlier = dataclasses.replace(live(sleeper.pid), started=live(sleeper.pid).started - 1)
    assert proc.send_signal(earlier, signal.SIGKILL) is False
    assert sleeper.poll() is None


def test_a_zombie_counts_as_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    before = proc.find(process.pid)
    assert before is None or proc.wait_until_gone(before, time.monotonic() + 60)
    assert proc.find(process.pid) is None
    process.wait()


def test_the_tree_has_children_and_orphans_of_the_session(tmp_path: Path) -> None:
    # The child starts a grandchild and ends: only the session still ties the grandchild to us.
    middle = "import subprocess, sys; subprocess.Popen(['sleep', '60'])"
    top = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {middle!r}]); time.sleep(60)"
    child = proc.spawn(
        [sys.executable, "-c", top], folder=str(tmp_path), output=str(tmp_path / "out"), pid_path=str(tmp_path / "pid")
    )
    try:

        def tree() -> list[str]:
            return [member.command[0] for member in proc.tree(live(child.pid)) if member.command]

        wait_until(lambda: tree() == [sys.executable, "sleep"] and not children(child.pid))
        orphan = proc.tree(live(child.pid))[1]
    finally:
        proc.terminate(live(child.pid), grace=0)
        child.wait()
    assert proc.find(orphan.pid) is None


def test_a_paused_process_reacts_to_sigterm(tmp_path: Path) -> None:
    child = proc.spawn(SLEEPER, folder=str(tmp_path), output=str(tmp_path / "out"), pid_path=str(tmp_path / "pid"))
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: live(child.pid).paused)
    assert proc.terminate(live(child.pid), grace=20) == "terminated"
    child.wait()


def children(pid: int) -> list[proc.LiveProcess]:
    """Direct children: the one in the middle, until it has ended."""
    return [process for process in proc.all_processes() if process.parent == pid]


CHILD = (
    "import os, sys, time\n"
    "from microshard.hostlib.proc import die_with_parent\n"
    "die_with_parent(int(sys.argv[1]))\n"
    "print(os.getpid(), flush=True)\n"
    "time.sleep(60)\n"
)
PARENT = (
    "import os, subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', sys.argv[1], str(os.getpid())])\n"
    "time.sleep(60)\n"
)


def test_a_child_dies_when_its_parent_is_killed() -> None:
    """It neither writes nor reads: only the kernel can end it."""
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        deadline = time.monotonic() + 60
        while proc.find(child) is not None:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                pytest.fail("the child lives on")
            time.sleep(0.02)


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "1"], capture_output=True, check=False, timeout=30)
    assert done.returncode == -signal.SIGKILL


def test_only_the_first_signal_interrupts_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with proc.orderly_end():
        with pytest.raises(proc.Terminated) as caught:
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert caught.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_process_leaves_with_all_it_said_and_waits_for_nothing() -> None:
    leaving = (
        "import atexit, sys\n"
        "from microshard.hostlib.proc import leave\n"
        "atexit.register(print, 'waited')\n"
        "print('said', end='')\n"
        "print('complained', end='', file=sys.stderr)\n"
        "leave(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", leaving], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "said", "complained")


def test_a_process_whose_reader_is_gone_leaves_with_its_own_code() -> None:
    leaving = "import sys\nfrom microshard.hostlib.proc import leave\nprint('said')\nsys.stdin.readline()\nleave(3)\n"
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
