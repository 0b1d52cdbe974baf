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

from microshard.hostlib import daemon, proc, run_folder
from tests.cluster.ansible.points import write

Sleeper = subprocess.Popen[bytes]
SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


def seen(pid: int) -> proc.Seen:
    """The process, which must be there."""
    found = proc.look(pid)
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
    wait_until(lambda: "/run/shard01/mongod.conf" in seen(process.pid).command)
    yield process
    process.kill()
    process.wait()


def test_a_process_is_ours_only_with_its_configuration_in_its_command_line(sleeper: Sleeper, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    pid_file.write_text(f"{sleeper.pid}\n")
    recorded = proc.recorded(str(pid_file), "/run/shard01/mongod.conf")
    assert recorded is not None
    assert recorded.pid == sleeper.pid
    assert proc.recorded(str(pid_file), "/run/shard02/mongod.conf") is None


@pytest.mark.parametrize("content", ["", "abc", "0", "1", "-1", "4194304999"])
def test_a_pid_file_that_names_nobody_finds_nobody(content: Any, tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(content)
    assert proc.recorded(str(tmp_path / "pid"), "/run/shard01/mongod.conf") is None


def test_a_signal_does_not_reach_a_process_that_took_over_the_pid(sleeper: Sleeper) -> None:
    earlier = dataclasses.replace(seen(sleeper.pid), started=seen(sleeper.pid).started - 1)
    assert proc.send(earlier, signal.SIGKILL) is False
    assert sleeper.poll() is None


def test_a_zombie_counts_as_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    before = proc.look(process.pid)
    assert before is None or proc.wait_gone(before, time.monotonic() + 60)
    assert proc.look(process.pid) is None
    process.wait()


def test_the_family_holds_children_and_orphans_of_the_session(tmp_path: Path) -> None:
    # The child starts a grandchild and ends: only the session still ties the grandchild to us.
    middle = "import subprocess, sys; subprocess.Popen(['sleep', '60'])"
    top = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {middle!r}]); time.sleep(60)"
    child = daemon.spawn(
        [sys.executable, "-c", top], folder=str(tmp_path), output=str(tmp_path / "out"), pid_path=str(tmp_path / "pid")
    )
    try:

        def family() -> list[str]:
            return [member.command[0] for member in proc.family(seen(child.pid))]

        wait_until(lambda: family() == [sys.executable, "sleep"] and not _children(child.pid))
        orphan = proc.family(seen(child.pid))[1]
    finally:
        daemon.end(seen(child.pid), grace=0)
        child.wait()
    assert proc.look(orphan.pid) is None


def test_a_process_that_is_held_hears_the_request_to_end(tmp_path: Path) -> None:
    child = daemon.spawn(SLEEPER, folder=str(tmp_path), output=str(tmp_path / "out"), pid_path=str(tmp_path / "pid"))
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: seen(child.pid).stopped)
    assert daemon.end(seen(child.pid), grace=20) == "terminated"
    child.wait()


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"microshard": "0.1.0"}', '{"run_id": "x"}'])
def test_a_folder_without_a_whole_marker_is_nobodys_run(content: Any, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(run_folder.NotOurs, match="is not a folder of a run"):
        run_folder.require_run_folder(str(tmp_path))


def test_a_path_that_leaves_the_run_by_a_link_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run / "run.json", {"microshard": "0.1.0", "run_id": "x"})
    (tmp_path / "elsewhere").mkdir()
    (run / "link").symlink_to(tmp_path / "elsewhere")
    root = run_folder.require_run_folder(str(run))
    assert run_folder.require_below(root, str(run / "a" / "b")) == str(run / "a" / "b")
    for path in (run, run / "..", run / "link" / "x", tmp_path / "runner"):
        with pytest.raises(run_folder.NotOurs, match="is not below the run's folder"):
            run_folder.require_below(root, str(path))


def _children(pid: int) -> list[proc.Seen]:
    """Direct children: the one in the middle, until it has ended."""
    return [process for process in proc.everyone() if process.parent == pid]
