"""Measuring a step, and what the runner learns about it."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from microshard.model.plan import PlannedPhase
from tests.cluster.ansible.lab import MakeLab
from tests.cluster.ansible.points import Layout

pytestmark = pytest.mark.cluster

LONG = {"iterations": 1_000_000}
COUNT = PlannedPhase(
    "count",
    "measure",
    "aggregate",
    {
        "namespace": "vosa.things",
        "pipeline": [{"$count": "documents"}],
        "pipeline_name": None,
        "iterations": 1,
        "warm_up_iterations": 0,
        "connections": 1,
        "cache": "warm",
        "allow_disk_use": False,
    },
)


def test_a_step_leaves_results_and_telemetry_and_everything_held(lab: MakeLab) -> None:
    made = lab(Layout(phases=(COUNT,)))
    made.succeed("deploy")
    with made.client() as client:
        client["vosa"]["things"].insert_many([{"_id": n} for n in range(10)])
    made.succeed("pause")

    played = made.succeed("measure")
    result = json.loads(Path(made.variables["microshard_step"]["results"]).read_text(encoding="utf-8"))
    assert result["phases"][0]["answer"] == [{"documents": {"$numberLong": "10"}}]
    result = next(event for event in played.events if event.get("role") == "workload" and "phases" in event)
    assert result["phases"][0]["name"] == "count"
    telemetry = Path(made.variables["microshard_step"]["telemetry"])
    assert {file.name for file in telemetry.iterdir()} == {"host-local.jsonl", "server.jsonl"}
    assert list(made.alive().values()) == ["T"]
    assert observers(made.folder) == []


def test_a_failed_phase_fails_the_play_and_leaves_nothing_at_work(lab: MakeLab) -> None:
    broken = PlannedPhase("count", "measure", "aggregate", COUNT.parameters | {"pipeline": [{"$noSuchStage": {}}]})
    made = lab(Layout(phases=(broken,)))
    made.succeed("deploy")
    played = made.play("measure")
    assert played.code != 0
    assert "phase count: " in played.failure
    assert "$noSuchStage" in played.failure
    assert list(made.alive().values()) == ["T"]
    assert observers(made.folder) == []


def test_a_mongod_that_died_is_named_and_the_others_are_held(lab: MakeLab) -> None:
    made = lab(Layout("replica_set", members=2))
    made.succeed("deploy")
    os.kill(int((made.deployment / "rs0-2" / "pid").read_text(encoding="utf-8")), 9)
    played = made.play("measure")
    assert played.code != 0
    assert "rs0-2 (mongod, 127.0.0.1:" in played.failure
    assert "does not run any more" in played.failure
    assert list(made.alive().values()) == ["T"]


@pytest.mark.long
def test_an_engine_that_outlived_its_killed_play_is_ended_by_the_teardown(lab: MakeLab) -> None:
    busy = {"$reduce": {"input": {"$range": [0, 300_000]}, "initialValue": 0, "in": {"$add": ["$$value", 1]}}}
    pipeline = [{"$match": {"_id": 0}}, {"$project": {"n": busy}}]
    made = lab(
        Layout(phases=(PlannedPhase("busy", "measure", "aggregate", COUNT.parameters | LONG | {"pipeline": pipeline}),))
    )
    made.succeed("deploy")
    with made.client() as client:
        client["vosa"]["things"].insert_one({"_id": 0})
    play = made.begin("measure")
    pid_path = made.folder / "points" / "p01" / "engine.pid"
    while not pid_path.exists():
        assert play.poll() is None
        time.sleep(0.05)
    engine = Path("/proc", pid_path.read_text(encoding="utf-8").strip())
    os.killpg(play.pid, signal.SIGKILL)
    play.communicate()
    assert engine.exists()
    made.succeed("teardown")
    assert not engine.exists() or (engine / "cmdline").read_bytes() == b""
    assert made.alive() == {}
    assert observers(made.folder) == []


def test_events_say_what_happens_but_nothing_of_a_secret(lab: MakeLab, tmp_path: Path) -> None:
    made = lab(Layout())
    playbook = tmp_path / "secret.yml"
    playbook.write_text(
        """
- name: A play
  hosts: local
  tasks:
    - name: A secret is handled
      ansible.builtin.debug:
        msg: geheim
      no_log: true
    - name: Something is said
      ansible.builtin.debug:
        msg: aloud
    - name: A command fails
      ansible.builtin.command: cat /nowhere
      ignore_errors: true
""",
        encoding="utf-8",
    )
    played = made.succeed(str(playbook))
    kinds = [(event["event"], event.get("status")) for event in played.events]
    assert kinds == [
        ("playbook", None),
        ("play", None),
        ("task", None),
        ("result", "ok"),
        ("task", None),
        ("result", "ok"),
        ("task", None),
        ("result", "failed"),
        ("stats", None),
    ]
    assert "geheim" not in json.dumps(played.events)
    assert played.events[5]["message"] == "aloud"
    assert played.events[7]["ignored"] is True
    assert "/nowhere" in played.events[7]["message"]
    assert played.events[7]["duration"] > 0


def observers(folder: Path) -> list[str]:
    """Command lines of telemetry that still runs for this run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_text(encoding="utf-8", errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if "telemetry" in words and str(folder) in words:
            found.append(words)
    return found
