"""The roles of a point without a run: the examples of their READMEs, by plain ansible-playbook, on this machine."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from microshard.embedded.binary import find_mongod
from microshard.hostlib.emulated_volumes import loop_devices, mounts_below, why_not
from tests.cluster.ansible.lab import BIN, ROOT
from tests.cluster.ansible.points import free_ports
from tests.hosts.readme_examples import Here, converge, play, succeed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SERVERS = ["mongos1", "config1", "shard01", "shard02", "shard03", "shard04", "mongod1"]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[tuple[Here, dict[str, Any]]]:
    """This machine, and what stands for what a user has of their own; the servers are removed."""
    roles = ("mongo_processes", "mongo_topology", "workload", "telemetry", "collect", "data_images")
    variables: dict[str, Any] = {f"{role}_run_folder": str(tmp_path / "run") for role in roles}
    variables |= {"mongo_processes_mongod": str(find_mongod(None)), "mongo_processes_mongos": str(BIN / "mongos")}
    variables |= {"mongo_processes_embedded": True, "workload_python": sys.executable, "ansible_become": False}
    machine = Here(ROOT / "inventories" / "local", free_ports(len(SERVERS)))
    yield machine, variables
    listed = [{"name": name, "port": 1, "role": "mongos" if name == "mongos1" else "shard"} for name in SERVERS]
    ended = {"mongo_processes_processes": listed, "mongo_processes_state": "absent", "mongo_processes_numa": {}}
    succeed(machine, "mongo_processes", tmp_path, **variables, **ended)
    assert not (tmp_path / "run" / "deployments" / "by-hand").exists()


@pytest.mark.long
def test_a_cluster_of_four_shards_is_made_measured_and_observed(
    here: tuple[Here, dict[str, Any]], tmp_path: Path
) -> None:
    machine, variables = here
    converge(machine, "mongo_topology", tmp_path, **variables)
    uri = f"mongodb://127.0.0.1:{machine.first_port}/"
    with MongoClient[dict[str, Any]](uri) as client:
        shards = client.admin.command("listShards")["shards"]
        assert [shard["_id"] for shard in shards] == SERVERS[2:6]
        client["db"]["things"].insert_many([{"_id": n} for n in range(10)])

    succeed(machine, "workload", tmp_path, **variables)
    result = json.loads((tmp_path / "run/results/by-hand/r1.json").read_text(encoding="utf-8"))
    assert result["phases"][0]["answer"] == [{"n": {"$numberLong": "10"}}]

    folder = tmp_path / "run" / "deployments" / "by-hand" / "shard01"
    observed = [{"name": "shard01", "pid_path": str(folder / "pid"), "db_path": str(folder / "data")}]
    succeed(machine, "telemetry", tmp_path, **variables, telemetry_processes=observed)
    records = (tmp_path / "run/telemetry/by-hand/r1/host-local.jsonl").read_text(encoding="utf-8").splitlines()
    assert 4 <= len(records) <= 8
    assert "shard01" in records[-1]

    kept = [{"name": name, "port": 1} for name in SERVERS[2:6]]
    collected = tmp_path / "collected"
    succeed(machine, "collect", tmp_path, **variables, collect_processes=kept)
    logs = {f"{name}.{kind}.gz" for name in SERVERS[2:6] for kind in ("log", "diagnostic.tar")}
    assert {file.name for file in (collected / "logs" / "by-hand").iterdir()} == logs


def test_a_loaded_mongod_becomes_an_image_and_starts_from_it(here: tuple[Here, dict[str, Any]], tmp_path: Path) -> None:
    machine, variables = here
    processes = [{"name": "mongod1", "port": machine.first_port, "cache_mib": 64}]
    succeed(machine, "mongo_processes", tmp_path, **variables, mongo_processes_processes=processes)
    with MongoClient[dict[str, Any]](f"mongodb://127.0.0.1:{machine.first_port}/") as client:
        client["db"]["mails"].insert_many([{"_id": n} for n in range(10)])
        succeed(machine, "data_images", tmp_path, **variables, state="kept")
        assert (tmp_path / "images" / "mails-500000" / "manifest.json").is_file()
        assert not (tmp_path / "run" / "deployments" / "by-hand" / "mongod1" / "data").exists()
        succeed(machine, "data_images", tmp_path, **variables)
        assert client["db"]["mails"].count_documents({}) == 10


@pytest.mark.skipif(why_not(["ext4"]) is not None, reason=str(why_not(["ext4"])))
def test_emulated_volumes_are_limited_and_nothing_is_left_of_them(tmp_path: Path) -> None:
    machine, run = Here(ROOT / "inventories" / "local", 0), tmp_path / "run"
    variables = {"emulated_volumes_run_folder": str(run), "ansible_become": False}
    try:
        converge(machine, "emulated_volumes", tmp_path, **variables)
        data, journal = json.loads((run / "points" / "by-hand" / "volumes.json").read_text(encoding="utf-8"))
        assert (data["mount"], data["readahead_sectors"]) == (str(run / "deployments" / "by-hand"), 32)
        assert [volume["limits"]["riops"] for volume in (data, journal)] == [3000, 150]
        link = run / "deployments" / "by-hand" / "shard02" / "data" / "journal"
        assert str(link.resolve()) == f"{journal['mount']}/shard02"
    finally:
        succeed(machine, "emulated_volumes", tmp_path, **variables, state="absent")
    assert (mounts_below(run), loop_devices(run)) == ({}, [])


@pytest.mark.parametrize(
    ("role", "wrong", "message"),
    [
        ("mongo_processes", {"mongo_processes_processes": [{"name": "mongod1"}]}, "required arguments: port"),
        ("mongo_processes", {"mongo_processes_processes": [{"name": "a", "port": "b"}]}, "unable to convert to int"),
        ("mongo_processes", {"mongo_processes_numa": {"policy": "some"}}, "policy must be one of"),
        ("emulated_volumes", {"emulated_volumes_volumes": [{"name": "data"}]}, "required arguments: size_gib"),
        ("mongo_topology", {"mongo_topology_timeout": "soon"}, "float"),
        ("workload", {"workload_phases": [{"name": "count", "kind": "guess"}]}, "kind must be one of"),
        ("telemetry", {"telemetry_interval": "often"}, "float"),
        ("collect", {"collect_processes": ["mongod1"]}, "unable to convert to dict"),
        ("data_images", {"data_images_state": "lost"}, "state must be one of"),
    ],
)
def test_a_wrong_variable_is_named_with_its_role_before_anything_is_changed(
    tmp_path: Path, role: str, wrong: dict[str, Any], message: str
) -> None:
    machine = Here(ROOT / "inventories" / "local", 20000)
    # Of the topology's example the processes come first: none of its own here.
    none = {"mongo_processes_processes": [], "mongo_processes_mongod": "/bin/false"} if role == "mongo_topology" else {}
    variables = {f"{role}_run_folder": str(tmp_path / "run"), "ansible_become": False, **none, **wrong}
    variables["mongo_processes_run_folder"] = str(tmp_path / "marked")
    (tmp_path / "marked").mkdir()
    (tmp_path / "marked" / "run.json").write_text('{"microshard": "x", "run_id": "x"}', encoding="utf-8")
    done = play(machine, role, tmp_path, **variables)
    assert done.returncode != 0
    assert "arg spec 'main'" in done.stdout
    assert role in done.stdout
    assert message in done.stdout, done.stdout
    assert not (tmp_path / "run").exists()
    assert [file.name for file in (tmp_path / "marked").iterdir()] == ["run.json"]
