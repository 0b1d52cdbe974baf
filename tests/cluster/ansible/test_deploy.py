"""Deploying and tearing down with real mongods through real plays."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cluster.ansible.lab import BIN, Lab, MakeLab
from tests.cluster.ansible.points import Layout, free_ports

pytestmark = pytest.mark.cluster


def test_a_standalone_is_deployed_once_and_removed_beside_a_neighbour(lab: MakeLab, tmp_path: Path) -> None:
    made = lab(Layout())
    neighbour = start_neighbour(made.mongod, tmp_path / "neighbour")
    try:
        checked = made.succeed("deploy", "--check", "--diff")
        assert checked.changed == 1
        assert "+  port: " in checked.output
        assert not made.deployment.exists()

        assert made.succeed("deploy").changed == 1
        with made.client() as client:
            client["db"]["things"].insert_one({"_id": 1})
            status = client.admin.command("serverStatus")
        assert status["wiredTiger"]["cache"]["maximum bytes configured"] == 64 << 20
        pids = set(made.alive())

        assert made.succeed("deploy").changed == 0
        assert made.succeed("deploy", "--check").changed == 0
        assert set(made.alive()) == pids

        torn = made.succeed("teardown")
        assert torn.changed == 2  # the logs were kept, the processes ended
        assert made.alive() == {}
        assert not made.deployment.exists()
        assert (made.folder / "logs" / "p01" / "mongod1.log.gz").stat().st_size > 0
        assert made.succeed("teardown").changed == 0
        assert neighbour.poll() is None
    finally:
        neighbour.kill()
        neighbour.wait()


def test_three_members_become_a_replica_set_and_survive_being_paused(lab: MakeLab) -> None:
    made = lab(Layout("replica_set", members=3))
    made.succeed("deploy")
    assert sorted(state(made, name) for name in ("rs0-1", "rs0-2", "rs0-3")) == ["primary", "secondary", "secondary"]
    assert made.succeed("deploy").changed == 0

    with made.client("rs0-2") as client:  # as an election may end after a long time in the park
        client.admin.command("replSetStepUp")
    assert made.succeed("pause").changed == 1
    assert set(made.alive().values()) == {"T"}
    assert made.succeed("pause").changed == 0
    assert made.succeed("resume").changed == 1
    assert state(made, "rs0-1") == "primary"
    with made.client() as client:
        client["db"]["things"].insert_one({"_id": 1})
    made.succeed("teardown")
    assert made.alive() == {}


def test_a_changed_configuration_restarts_only_its_process(lab: MakeLab) -> None:
    made = lab(Layout("replica_set", members=2))
    made.succeed("deploy")
    before = made.alive()
    made.variables["microshard_point"]["processes"][1]["options"]["operationProfiling"] = {"slowOpThresholdMs": 50}
    changed = made.succeed("deploy", "--diff")
    assert "+  slowOpThresholdMs: 50" in changed.output
    after = made.alive()
    assert len(after) == 2
    assert len(set(before) & set(after)) == 1
    with made.client("rs0-2") as client:
        assert client.admin.command("getCmdLineOpts")["parsed"]["operationProfiling"]["slowOpThresholdMs"] == 50


@pytest.mark.long
def test_a_host_that_is_not_this_interpreters_gets_the_module_sent(lab: MakeLab) -> None:
    made = lab(Layout())
    # The same Python by another name.
    elsewhere = ("-e", f"ansible_python_interpreter={BIN}/../{BIN.name}/python3")
    checked = made.succeed("deploy", "--check", "--diff", *elsewhere)
    assert "+  port: " in checked.output
    assert made.succeed("deploy", *elsewhere).changed == 1
    assert made.succeed("deploy", *elsewhere).changed == 0
    made.succeed("teardown", *elsewhere)
    assert made.alive() == {}


def test_the_holder_of_a_taken_port_is_named_and_left_alone(lab: MakeLab) -> None:
    port = free_ports(1)
    made = lab(Layout(first_port=port))
    with socket.create_server(("127.0.0.1", port)):
        played = made.play("deploy")
    assert played.code != 0
    assert f"its port is held by pid {os.getpid()}" in played.failure
    assert made.alive() == {}


def test_a_mongod_that_does_not_start_shows_its_exit_code_and_log(lab: MakeLab) -> None:
    made = lab(Layout(options={"storage": {"engine": "wiredTiger", "directoryPerDB": True}}))
    # A file where WiredTiger wants a folder: known only to the server, after it has opened its log.
    folder = made.deployment / "mongod1" / "data" / "journal"
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way", encoding="utf-8")
    played = made.play("deploy")
    assert played.code != 0
    assert "mongod1 (mongod, 127.0.0.1:" in played.failure
    assert "ended with exit code" in played.failure
    assert "Last lines of its log:" in played.failure
    assert "journal" in played.failure


def test_an_option_mongod_does_not_know_is_shown_in_its_own_words(lab: MakeLab) -> None:
    made = lab(Layout(options={"storage": {"engine": "wiredTiger"}, "setParameter": {"noSuchParameter": 1}}))
    played = made.play("deploy")
    assert played.code != 0
    assert "noSuchParameter" in played.failure


def test_a_folder_without_the_marker_is_refused(lab: MakeLab) -> None:
    made = lab(Layout())
    (made.folder / "run.json").write_text("{}", encoding="utf-8")
    played = made.play("deploy")
    assert played.code != 0
    assert "is not a folder of a run" in played.failure
    assert not made.deployment.exists()


@pytest.mark.long
def test_a_binary_that_is_missing_or_of_another_version_is_named(lab: MakeLab, tmp_path: Path) -> None:
    made = lab(Layout())
    assert "is MongoDB 6.0.5" in "".join(str(event.get("message")) for event in made.succeed("prepare").events)
    made.variables["microshard_run"]["bin"]["version"] = "4.4"
    assert "is MongoDB 6.0.5, not 4.4" in made.play("prepare").failure
    made.variables["microshard_run"]["bin"]["mongod"] = str(tmp_path / "nothing")
    assert f"{tmp_path}/nothing does not exist" in made.play("prepare").failure


def state(made: Lab, process: str) -> str:
    with made.client(process) as client:
        hello = client.admin.command("hello")
    return "primary" if hello["isWritablePrimary"] else "secondary" if hello["secondary"] else "neither"


def start_neighbour(mongod: Path, folder: Path) -> subprocess.Popen[bytes]:
    """A mongod that is not ours."""
    folder.mkdir()
    port = free_ports(1) + 50
    command = [mongod, "--dbpath", folder, "--port", str(port), "--bind_ip", "127.0.0.1", "--nounixsocket"]
    return subprocess.Popen([*map(str, command), "--logpath", str(folder / "log")], stdout=subprocess.DEVNULL)


def test_a_stale_pid_file_harms_nobody(lab: MakeLab) -> None:
    made = lab(Layout())
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        folder = made.deployment / "mongod1"
        folder.mkdir(parents=True)
        (folder / "pid").write_text(f"{stranger.pid}\n", encoding="utf-8")
        made.succeed("teardown")
        assert stranger.poll() is None
        assert not made.deployment.exists()
    finally:
        stranger.send_signal(signal.SIGTERM)
        stranger.wait()
