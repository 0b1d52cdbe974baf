"""The same data in mongods that compress differently: the same documents, other sizes, every byte accounted for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest

from tests.cluster.workloads.mongods import Mongod, RunJob, load, start_job, start_mongod, stop_mongod

pytestmark = pytest.mark.cluster
NAMESPACE, DOCUMENTS = "lab.documents", 1_500
CASES = {"none": ("none", "false"), "snappy": ("snappy", "true"), "zstd": ("zstd", "true")}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Mongod, dict[str, Any]]]]:
    """By compressor: the mongod and the result of its load."""
    folder = tmp_path_factory.mktemp("compression")
    phase = load(dataset="mails", namespace=NAMESPACE, documents=DOCUMENTS, secondary_indexes=3)
    found, mongods = {}, []
    for name, (blocks, prefix) in CASES.items():
        options = ("--wiredTigerCollectionBlockCompressor", blocks, "--wiredTigerIndexPrefixCompression", prefix)
        mongod = start_mongod(folder / name, *options)
        mongods.append(mongod)
        code, result, errors = start_job(folder, [mongod], phase).finish()
        assert (code, errors) == (0, "")
        found[name] = (mongod, result["phases"][0])
    yield found
    for mongod in mongods:
        stop_mongod(mongod)


def figures(phase: dict[str, Any]) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in phase["figures"]}


def test_documents_and_their_bytes_are_the_same_whatever_the_compressor(loaded: Any) -> None:
    hashes, bytes_in = set(), set()
    for mongod, phase in loaded.values():
        assert phase["counters"]["documents"] == DOCUMENTS
        bytes_in.add(phase["counters"]["bytes"])
        with mongod.client() as client:
            hashes.add(client.lab.command("dbHash")["collections"]["documents"])
            assert client.lab.command("collStats", "documents")["size"] == phase["counters"]["bytes"]
    assert len(hashes) == len(bytes_in) == 1


def test_sizes_add_up_and_shrink_with_compression(loaded: Any) -> None:
    sizes = {name: figures(phase) for name, (_, phase) in loaded.items()}
    for name, (mongod, _) in loaded.items():
        assert sizes[name]["data and indexes"] == sizes[name]["data"] + sizes[name]["indexes"]
        with mongod.client() as client:
            stats = client.lab.command("dbStats")
            assert (stats["storageSize"], stats["indexSize"]) == (sizes[name]["data"], sizes[name]["indexes"])
    assert sizes["zstd"]["data"] < sizes["snappy"]["data"] < sizes["none"]["data"]
    # Prefixes are kept off the disk by the index option alone, the same with either block compressor.
    assert sizes["zstd"]["indexes"] == pytest.approx(sizes["snappy"]["indexes"], rel=0.1)
    assert sizes["snappy"]["indexes"] < sizes["none"]["indexes"]


def test_a_dump_of_ones_own_is_loaded_whole(loaded: Any, run_job: RunJob, tmp_path: Path) -> None:
    mongod, _ = loaded["snappy"]
    path = tmp_path / "own.bson"
    path.write_bytes(b"".join(bson.encode({"_id": f"k{n}", "text": "x" * n}) for n in range(700)))
    metadata = '{"indexes": [{"key": {"_id": 1}}, {"key": {"text": 1, "_id": -1}}]}'
    path.with_suffix(".metadata.json").write_text(metadata)
    phase = load(dataset="dump", file=str(path), namespace="lab.own", documents=None, secondary_indexes=1)
    code, result, errors = run_job([mongod], phase).finish()
    assert (code, errors) == (0, "")
    assert result["phases"][0]["counters"] == {"documents": 700, "bytes": path.stat().st_size, "errors": 0}
    with mongod.client() as client:
        assert list(client.lab.own.index_information()) == ["_id_", "text_1__id_-1"]


def test_a_malformed_dump_fails_with_its_place_and_inserts_nothing(
    loaded: Any, run_job: RunJob, tmp_path: Path
) -> None:
    mongod, _ = loaded["snappy"]
    path = tmp_path / "own.json"
    path.write_text('{"a": 1}\n{"a": 2\n')
    phase = load(dataset="dump", file=str(path), namespace="lab.broken", documents=None)
    code, result, _ = run_job([mongod], phase).finish()
    assert (code, result["phases"][0]["error"]["type"]) == (3, "NoData")
    assert f"{path}:2: " in result["phases"][0]["error"]["message"]
    with mongod.client() as client:
        assert "broken" not in client.lab.list_collection_names()
