"""Clocks of hosts, connections to them, and how a shell comes to a process."""

import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from microshard.backends.local import LocalBackend
from microshard.backends.ssh import SshBackend, clock_remarks, shifts
from microshard.errors import PlaceError
from microshard.records.run_folder import RunFolder
from microshard.run import remote_commands
from tests.cluster.ansible import points

CLOCKS = {
    "client": {"clock_offset": 0.0100, "clock_doubt": 0.0020},
    "near": {"clock_offset": 0.0130, "clock_doubt": 0.0020},
    "ahead": {"clock_offset": 2.5100, "clock_doubt": 0.0020},
    "behind": {"clock_offset": -1.4900, "clock_doubt": 0.0020},
}


def test_times_are_shifted_to_the_clients_clock_where_the_difference_is_one() -> None:
    assert shifts(CLOCKS, "client") == {"ahead": -2.5, "behind": 1.5}


def test_clocks_that_differ_are_reported_by_host() -> None:
    ahead, behind = clock_remarks(CLOCKS)
    assert ahead.startswith("ahead: its clock differs by +2.5 s")
    assert behind.startswith("behind: its clock differs by -1.5 s")


def run(folder: Path, backend: Any = None, **security: bool) -> remote_commands.RunningPoint:
    made = points.point(points.Layout("sharded", shards=1, first_port=27100), folder)
    mongos, _, shard = made.processes
    processes = (
        dataclasses.replace(shard, host="db1", address="192.0.2.7", port=27100),
        dataclasses.replace(mongos, host="client1", port=27101),
    )
    point = points.point_variables(dataclasses.replace(made, processes=processes, security=security))
    return remote_commands.RunningPoint(RunFolder(folder), point, backend or LocalBackend())


def test_mongosh_is_called_with_the_address_and_its_own_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "mongosh"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    monkeypatch.delenv(remote_commands.MONGOSH, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # The command hands its process over: a process of its own is needed to come back from that.
    script = (
        "import sys\nfrom microshard.run import remote_commands\n"
        "from tests.unit.backends.test_ssh import run\n"
        "from pathlib import Path\nremote_commands.find_running = lambda *_: run(Path('.'))\n"
        "from microshard.cli import main\nsys.argv[0] = 'microshard'\nmain()\n"
    )

    def said(*words: str) -> list[str]:
        command = [sys.executable, "-c", script, "mongosh", *words]
        root = Path(__file__).parents[3]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert said() == ["mongodb://127.0.0.1:27101/"]
    assert said("shard01", "--quiet", "--eval", "db.hello()") == [
        "mongodb://192.0.2.7:27100/?directConnection=true",
        "--quiet",
        "--eval",
        "db.hello()",
    ]
    assert said("--quiet") == ["mongodb://127.0.0.1:27101/", "--quiet"]


def test_without_mongosh_the_address_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(remote_commands.MONGOSH, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlaceError, match=r"the address is mongodb://127\.0\.0\.1:27101/"):
        remote_commands.mongosh(run(tmp_path), None)


def test_a_mongos_on_loopback_of_a_host_is_reached_from_there(tmp_path: Path) -> None:
    command = remote_commands.mongosh(run(tmp_path, SshBackend(tmp_path, {})), None, ["--eval", "db.hello()"])
    assert command == ["ssh", "-t", "client1", "mongosh mongodb://127.0.0.1:27101/ --eval 'db.hello()'"]


def test_where_servers_want_logins_mongosh_logs_in_and_no_password_is_on_its_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = {"hostvars": {"db1": {"microshard_process_manager": "systemd"}}}
    inventory = {"shard_hosts": {"hosts": ["db1"]}, "_meta": variables}
    backend = SshBackend(tmp_path, inventory)
    secured = run(tmp_path, backend, authorization=True, tls=True)
    monkeypatch.setenv(remote_commands.MONGOSH, "mongosh")
    program, nodb, evaluate, script, shell = remote_commands.mongosh(secured, "shard01")
    assert (program, nodb, evaluate, shell) == ("mongosh", "--nodb", "--eval", "--shell")
    assert f"tls=true&tlsCAFile={quote(str(tmp_path / 'secrets' / 'ca.pem'), safe='')}" in script
    assert f'"{tmp_path}/secrets/users.json"' in script
    assert remote_commands.mongosh(secured, "shard01", ["--eval", "1"])[3:] == [script, "--eval", "1"]
    # The files on a host are those of the servers' user.
    there = remote_commands.mongosh(secured, None)[-1]
    assert there.startswith("sudo -n mongosh --nodb --eval ")
    assert f"/var/lib/microshard/{tmp_path.name}/secrets/users.json" in there

    (_, address) = remote_commands.mongosh(run(tmp_path, backend, tls=True), "shard01")
    assert address.startswith("mongodb://192.0.2.7:27100/?directConnection=true&tls=true&tlsCAFile=")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SshBackend:
    """Hosts of an inventory nobody connects to; temporary files lie in the test's folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return SshBackend(tmp_path / "hosts.yml", {})


def test_sockets_of_killed_processes_are_removed_by_the_next_and_no_others(hosts: SshBackend, tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = [f"microshard-ssh-{ended.pid}-a", f"microshard-ssh-{os.getpid()}-b", "microshard-ssh-mine-c", "other"]
    for name in names:
        (tmp_path / name).mkdir()
    hosts.playbooks(RunFolder(tmp_path), lambda _: None)
    assert not (tmp_path / names[0]).exists()
    assert all((tmp_path / name).is_dir() for name in names[1:])


def test_a_command_that_becomes_ssh_leaves_no_sockets(
    hosts: SshBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # that of this process stays
    monkeypatch.setattr(os, "execvp", lambda *words: seen.append((words, list(tmp_path.glob("microshard-ssh-*")))))
    hosts.playbooks(RunFolder(tmp_path), lambda _: None)
    assert len(list(tmp_path.glob("microshard-ssh-*"))) == 1
    remote_commands.exec_command(run(tmp_path, hosts), ["ssh", "there"])
    assert seen == [(("ssh", ["ssh", "there"]), [])]


def test_a_command_that_takes_our_place_ends_with_the_pipe_it_writes_to() -> None:
    program = (
        "from unittest.mock import Mock; from microshard.run import remote_commands; "
        "remote_commands.exec_command(Mock(), ['sh', '-c', 'kill -PIPE $$; echo went on'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGPIPE, b"")
