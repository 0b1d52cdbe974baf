"""Points that are restored from a data image: the same answers, and never a cluster that half works."""

import json

import pytest
from pymongo import MongoClient

from microshard.records.data_images import kept_images
from tests.cluster.ansible.points import free_ports
from tests.cluster.run.conftest import STANDALONE, Cli

pytestmark = pytest.mark.cluster


def _run(cli: Cli, path, *more):
    known = {folder.path for folder in cli.folders}
    code, output = cli.run("run", path, *more)
    (folder,) = [folder for folder in cli.folders if folder.path not in known]
    results = {
        f"{file.parent.name}/{file.stem}": json.loads(file.read_text()) for file in folder.path.glob("results/*/*.json")
    }
    return code, output, {event.event: event for event in folder.journal.records()}, results


def _loaded(cli: Cli):
    """The images of loaded data; the others are those of empty clusters."""
    return [kept for kept in kept_images(cli.runs) if kept.image and kept.image.documents]


def _answers(results):
    """Of every step: the answers of its measurements. A step that was repeated (r1-2) counts as itself."""
    return {
        (name.partition("-")[0], p["name"]): p["answer_sha256"]
        for name, r in results.items() for p in r["phases"] if p["kind"] == "measure"
    }  # fmt: skip


@pytest.mark.long
def test_a_sharded_cluster_is_restored_and_answers_the_same_warm_and_cold(cli: Cli) -> None:
    phases = [{"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 2, "cache": cache},
               "name": cache} for cache in ("warm", "cold")]  # fmt: skip
    load = {"load": {"engine": "insert", "documents": 20000, "seed": 7}}
    gates = {"max_shard_skew": 3, "initial_sync": "allow"}
    matrix = {"topology.shards.count": [2]}
    path = cli.write(workload=[load, *phases], load={"image": "use"}, gates=gates, matrix=matrix, repetitions=1)
    code, output, _, loaded = _run(cli, path)
    assert code == 0, output
    (kept,) = _loaded(cli)
    assert kept.image is not None
    assert kept.image.documents == {"vosa.mot_results": 20000}
    assert {path.name for path in (kept.path / "data").iterdir()} == {"config1", "shard01", "shard02"}
    assert not [*kept.path.glob("data/*/journal"), *kept.path.glob("data/*/mongod.lock")]
    # Other ports: those in the data are changed.
    moved = f"topology.network.base_port={free_ports(5)}"
    code, output, events, restored = _run(cli, path, "--set", "load.image=only", "--set", moved)
    assert code == 0, output
    assert "data restored" in events
    assert _answers(restored) == _answers(loaded)
    assert {r["data"] for r in loaded.values()} == {"loaded"}
    assert {r["data"] for r in restored.values()} == {"restored"}
    assert not [p for r in restored.values() for p in r["phases"] if p["kind"] == "load"]
    assert "restored from data images" in (cli.folders[-1] / "report" / "report.html").read_text()
    skews = [
        c["value"] for r in (*loaded.values(), *restored.values()) for c in r["gates"] if c["gate"] == "max_shard_skew"
    ]
    assert None not in skews
    assert cli.running() == []


@pytest.mark.long
@pytest.mark.parametrize("damage", ["byte", "documents"])
def test_a_damaged_image_is_loaded_anew_and_replaced(cli: Cli, damage: str) -> None:
    path = cli.write(topology=STANDALONE, matrix={}, repetitions=1, load={"image": "use"})
    code, output, events, loaded = _run(cli, path)
    assert code == 0, output
    (kept,) = _loaded(cli)
    if damage == "byte":
        file = max((kept.path / "data").rglob("*.wt"), key=lambda each: each.stat().st_size)
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    else:
        manifest = kept.path / "manifest.json"
        manifest.write_text(manifest.read_text().replace("20000", "20001"))
    code, output, events, again = _run(cli, path)
    assert code == 0, output
    assert ("is damaged" if damage == "byte" else "has 20,000 documents") in events["data image refused"].message
    assert {r["data"] for r in again.values()} == {"loaded"}
    assert _answers(again) == _answers(loaded)
    code, output, events, restored = _run(cli, path)
    assert {r["data"] for r in restored.values()} == {"restored"}
    assert _answers(restored) == _answers(loaded)
    code, output = cli.run("images")
    assert "20,000 vosa.mot_results" in output
    code, output = cli.run("images", "rm", "--all")
    assert (code, kept_images(cli.runs)) == (0, []), output
    code, output, events, _ = _run(cli, path, "--set", "load.image=never")
    assert "data restored" not in events


@pytest.mark.long
def test_a_point_whose_measurement_writes_is_loaded_once(cli: Cli) -> None:
    insert = {"engine": "insert", "documents": 1000, "namespace": "vosa.more"}
    query = {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 1}
    workload = [{"load": {"engine": "insert", "documents": 20000, "seed": 7}}, {"measure": query}]
    path = cli.write(topology=STANDALONE, matrix={}, workload=[*workload, {"measure": insert, "name": "write"}],
                     load={"image": "use"}, order={"seed": 1})  # fmt: skip
    code, output, _, results = _run(cli, path)
    assert code == 0, output
    events = [event.event for event in cli.folders[-1].journal.records()]
    assert (events.count("data restored"), events.count("data kept")) == (2, 2), "an empty one, and the loaded one"
    assert {r["data"] for r in results.values()} == {"restored"}
    assert not [p for r in results.values() for p in r["phases"] if p["kind"] == "load"]
    assert len(_answers(results)) >= 2
    assert [kept.image.documents for kept in _loaded(cli)] == [{"vosa.mot_results": 20000}]


@pytest.mark.long
@pytest.mark.parametrize("members", [1, 3])
def test_up_starts_from_the_image_of_an_empty_cluster(cli: Cli, members: int) -> None:
    topology = {"kind": "sharded", "shards": {"count": 2, "members": members},
                "storage": {"cache": {"policy": "per_process_mb", "value": 256}}}  # fmt: skip
    path = cli.write(topology=topology, matrix={}, load={"image": "use"})
    for expected in ("data kept", "empty cluster restored"):
        moved = ["--set", f"topology.network.base_port={free_ports(4 + 2 * members)}"]
        code, output = cli.run("up", path, *moved)
        assert code == 0, output
        assert expected in [event.event for event in cli.folders[-1].journal.records()]
        with MongoClient[dict[str, object]](output.strip().splitlines()[-1]) as client:
            shards = {shard["_id"]: shard["host"] for shard in client.admin.command("listShards")["shards"]}
            assert [host.count(":") for host in shards.values()] == [members, members]
            client.lab.things.insert_one({"a": 1})
            assert client.lab.things.count_documents({}) == 1
        assert cli.run("down")[0] == 0
