"""Which processes are selected, and which cores each is bound to."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from microshard.hostlib import mongo_processes, numa
from tests.cluster.ansible import points


def test_one_of_several_is_bound_to_the_cores_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/usr/bin/numactl")
    monkeypatch.setattr(numa, "host_cores", lambda: numa.Cores({0: [0, 1, 2, 3]}))
    points.write(tmp_path / "run.json", {"microshard": "0.1.0", "run_id": tmp_path.name})
    made = points.point(points.Layout("replica_set", members=4, first_port=21000), tmp_path)
    parameters: dict[str, Any] = {
        "run_folder": str(tmp_path),
        "processes": json.loads(json.dumps([dataclasses.asdict(process) for process in made.processes])),
        "names": ["rs0-3"],
        "state": "restarted",
        "mongod": "/bin/mongod",
        "mongos": "",
        "concurrency": 0,
        "process_manager": "direct",
        "numa": {"policy": "cores_per_shard", "nodes": None, "reserved_cores": 1},
        "security": {},
        "files": {"start": "exec @COMMAND@"},
    }
    (process,) = mongo_processes.process_group(parameters, str(tmp_path), check=False).processes
    assert process.name == "rs0-3"
    assert process.command[:2] == ["numactl", "--physcpubind=2"]
    assert process.start_script.startswith("exec numactl --physcpubind=2 ")
    everyone = mongo_processes.process_group({**parameters, "names": []}, str(tmp_path), check=False).processes
    assert [p.name for p in everyone] == ["rs0-1", "rs0-2", "rs0-3", "rs0-4"]
