"""Ansible imported once and forked for each playbook: the real one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.backends import local_processes
from microshard.hostlib.proc import find
from microshard.records.run_folder import DiskError, RunFolder
from microshard.run.ansible_server import AnsibleProcess
from microshard.this_machine import project_root

ARGUMENTS = ["-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
CLIENT = """
import os, pathlib, sys, time
from microshard.run.ansible_server import AnsibleProcess
process = AnsibleProcess(pathlib.Path(sys.argv[1]), os.environ, pathlib.Path(sys.argv[2]), sys.argv[3])
process.begin("play", sys.argv[4:], os.open(os.devnull, os.O_WRONLY))
process.wait_started()
print(process.server.pid, process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[AnsibleProcess]:
    """A server with its temporary files in the test's folder."""
    environment = {**os.environ, "ANSIBLE_HOME": str(tmp_path), "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp")}
    environment |= {"ANSIBLE_CONFIG": str(project_root() / "ansible.cfg"), "PYTHONUNBUFFERED": "1"}
    environment |= {"TMPDIR": str(tmp_path)}  # a module that is killed leaves its archive
    made = AnsibleProcess(project_root(), environment, tmp_path / "log", "mark")
    yield made
    made.close()


def play(folder: Path, *commands: list[str], name: str = "play") -> Path:
    """A playbook with these commands."""
    tasks = [{"ansible.builtin.command": {"argv": argv}} for argv in commands]
    path = folder / f"{name}.json"
    path.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    return path


def begin(process: AnsibleProcess, playbook: Path) -> int:
    """Start a playbook; returns the descriptor its events can be read from."""
    read, write = os.pipe()
    process.begin("play", [*ARGUMENTS, str(playbook)], write)
    os.close(write)
    return read


def run(process: AnsibleProcess, playbook: Path) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and events of a playbook."""
    descriptor = begin(process, playbook)
    code = process.wait()
    with os.fdopen(descriptor, encoding="utf-8") as lines:
        return code, [json.loads(line) for line in lines]


def wait_gone(*pids: int) -> None:
    """Return when none of these processes exists."""
    until = time.monotonic() + 30
    while any(find(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.02)


def wait_for(path: Path) -> str:
    """The content of a file as soon as it has any."""
    until = time.monotonic() + 30
    while not path.exists() or not path.read_text(encoding="ascii").strip():
        assert time.monotonic() < until
        time.sleep(0.02)
    return path.read_text(encoding="ascii")


def test_playbooks_have_exit_codes_events_and_temporary_files_of_their_own(
    process: AnsibleProcess, tmp_path: Path
) -> None:
    pids = set()
    for number, (argv, code) in enumerate([(["true"], 0), (["false"], 2), (["true"], 0)]):
        found, events = run(process, play(tmp_path, ["touch", str(tmp_path / f"done-{number}")], argv))
        assert found == code
        assert [e for e in events if e["event"] == "playbook"] == [
            {"event": "playbook", "time": pytest.approx(time.time(), abs=60), "playbook": "play.json"}
        ]
        assert (tmp_path / f"done-{number}").exists()
        pids.add(process.pid)
    assert len(pids) == 3
    server = process.server
    assert server is not None
    process.close()
    assert server.returncode == 0
    assert not list((tmp_path / "tmp").iterdir())
    log = (tmp_path / "log").read_text(encoding="utf-8")
    assert log.count("$ ansible-playbook -i localhost, -c local") == 3
    assert "Traceback" not in log
    assert "warning" not in log.lower()  # of what is configured once more in each fork


@pytest.mark.parametrize(
    ("victim", "number"),
    [(victim, number) for victim in ("playbook", "server") for number in (signal.SIGKILL, signal.SIGINT)],
)
def test_a_signal_ends_the_playbook_without_a_traceback_and_the_next_one_runs(
    process: AnsibleProcess, tmp_path: Path, victim: str, number: signal.Signals
) -> None:
    descriptor = begin(process, play(tmp_path, ["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"]))
    process.wait_started()
    wait_for(tmp_path / "pid")
    assert process.server is not None
    os.kill(process.pid if victim == "playbook" else process.server.pid, number)
    code = process.wait()
    assert code == -signal.SIGKILL if number is signal.SIGKILL else code
    process.signal(signal.SIGKILL)  # as the runner does after every failure
    wait_gone(process.pid)
    os.close(descriptor)
    assert "Traceback" not in (tmp_path / "log").read_text(encoding="utf-8")
    assert run(process, play(tmp_path, ["true"]))[0] == 0


def test_a_playbook_that_is_ended_takes_its_workers_along(process: AnsibleProcess, tmp_path: Path) -> None:
    os.close(begin(process, play(tmp_path, ["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"])))
    child = int(wait_for(tmp_path / "pid"))
    with pytest.raises(TimeoutError):
        process.wait(0.1)
    process.end()
    wait_gone(child, process.pid)
    assert process.wait() != 0


def killed_client(folder: Path, mark: str, seconds: int) -> tuple[int, int]:
    """Server and playbook of a client that was killed while the playbook sleeps so long."""
    playbook = play(folder, ["sleep", str(seconds)])
    command = [sys.executable, "-c", CLIENT, str(project_root()), str(folder / "log"), mark, *ARGUMENTS, str(playbook)]
    environment = {**os.environ, "ANSIBLE_HOME": str(folder)}
    client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert client.stdout is not None
    server, running = (int(word) for word in client.stdout.readline().split())
    client.kill()
    client.wait()
    client.stdout.close()
    return server, running


def test_nothing_of_it_outlives_a_killed_client_but_the_playbook_that_runs(tmp_path: Path) -> None:
    server, running = killed_client(tmp_path, "mark", 2)
    assert b"mark" in Path(f"/proc/{running}/cmdline").read_bytes().split(b"\0")
    assert Path(f"/proc/{running}/comm").read_text(encoding="utf-8") == "play\n"
    wait_gone(running, server)


def test_and_that_can_be_found_and_ended(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "sample")
    server, running = killed_client(tmp_path, f"{folder / 'tmp'}/", 60)
    assert {process.pid for process in local_processes.running(folder)} >= {server, running}
    local_processes.end_playbooks(folder)
    wait_gone(running, server)


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    process = AnsibleProcess(project_root(), os.environ, tmp_path / "nowhere" / "log", "mark")
    with pytest.raises(DiskError, match="nowhere"):
        process.begin("play", [], 1)
    process.close()


def test_without_an_internal_name_of_ansible_each_playbook_is_a_program(
    process: AnsibleProcess, tmp_path: Path
) -> None:
    missing = (
        "import sys\nif 'microshard.run.ansible_server' in sys.orig_argv: sys.modules['ansible.cli.playbook'] = None"
    )
    (tmp_path / "sitecustomize.py").write_text(missing, encoding="utf-8")
    path = f"{tmp_path}{os.pathsep}{project_root() / 'src'}"
    process.environment = {**process.environment, "PYTHONPATH": path}
    for argv, code in ((["true"], 0), (["false"], 2)):
        found, events = run(process, play(tmp_path, argv))
        assert found == code
        assert "playbook" in [event["event"] for event in events]
    assert (tmp_path / "log").read_text(encoding="utf-8").count("starts ansible-playbook") == 1
