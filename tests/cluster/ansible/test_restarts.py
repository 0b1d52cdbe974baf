"""What an engine asks of the hosts is done by the play, as on hosts it must be; here the host is this machine."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from microshard.model.plan import PlannedPhase
from tests.cluster.ansible.lab import Lab, MakeLab
from tests.cluster.ansible.points import Layout
from tests.cluster.ansible.test_measure import COUNT, observers

pytestmark = [pytest.mark.cluster, pytest.mark.long]

COLD = PlannedPhase("cold", "measure", "aggregate", COUNT.parameters | {"cache": "cold", "iterations": 2}, restarts=2)


def asking(lab: MakeLab) -> Lab:
    """Two shards with a few documents, and a step whose engine will ask."""
    made = lab(Layout("sharded", shards=2, phases=(COLD,)))
    made.succeed("deploy")
    with made.client() as client:
        client["vosa"]["things"].insert_many([{"_id": n} for n in range(10)])
    made.variables["microshard_step"]["restarts"] = 2
    return made


def result(made: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(made.variables["microshard_step"]["results"]).read_text(encoding="utf-8"))
    return found


def test_mongods_are_restarted_as_often_as_the_engine_asks_and_recorded_anew(lab: MakeLab) -> None:
    made = asking(lab)
    made.succeed("measure")
    (phase,) = result(made)["phases"]
    dropped = "page cache dropped" if os.geteuid() == 0 else "page cache not dropped (not root)"
    assert phase["notes"]["cache"] == f"cold: mongods restarted, {dropped}"
    assert len(phase["samples"]) == 2
    assert phase["answer"] == [{"documents": {"$numberLong": "10"}}]
    for name, starts in {"shard01": 3, "shard02": 3, "config1": 1}.items():
        log = (made.deployment / name / "mongod.log").read_text(encoding="utf-8")
        assert log.count('"MongoDB starting"') == starts, "one start, and two restarts of what bears data"
        record = json.loads((made.folder / "points" / "p01" / "processes" / f"{name}.json").read_text(encoding="utf-8"))
        assert record["pid"] == int((made.deployment / name / "pid").read_text(encoding="utf-8"))
    assert set(made.alive().values()) == {"T"}, "they wait for their next turn"
    assert observers(made.folder) == []


def test_a_mongod_that_does_not_come_back_fails_the_phase_by_name_and_nothing_is_at_work(lab: MakeLab) -> None:
    made = asking(lab)
    made.variables["microshard_run"]["bin"]["mongod"] = "/bin/false"
    played = made.play("measure")
    assert played.code != 0
    assert "phase cold: DoesNotStart: " in played.failure
    assert "ended with exit code 1" in played.failure
    assert result(made)["phases"][0]["error"]["type"] == "DoesNotStart"
    assert not any("shard0" in command(pid) for pid in made.alive())
    assert set(made.alive().values()) == {"T"}
    assert not (made.folder / "points" / "p01" / "engine.pid").exists()
    assert observers(made.folder) == []


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
