"""Configuration files of engines and versions that are gone: nothing in them that the version does not know."""

from collections.abc import Callable
from typing import Any

import pytest
from ansible.module_utils.common.yaml import yaml_load

from microshard.experiment.mongod_options import listed_options, parse_release, tokumx_parameters
from microshard.hostlib import mongo_config
from microshard.hostlib.errors import HostError
from microshard.model.plan import Inputs
from microshard.plan.build import build_plan
from tests.cluster.ansible.points import Layout
from tests.unit.plan.conftest import experiment, points
from tests.unit.plan.test_checks import EC2
from tests.unit.plugins.conftest import Texts

Write = Callable[..., str]
SECTIONS = {
    "syncPeriodSecs": 60,
    "wiredTiger": {"engineConfig": {"journalCompressor": "none"}},
    "mmapv1": {"smallFiles": True},
    "rocksdb": {"maxWriteMBPerSec": 512},
    "tokumx": {"checkpointPeriod": 900, "expireOplogHours": 2, "setParameter": {"defaultFanout": 128}},
}


@pytest.fixture
def write(texts: Texts) -> Write:
    """The file of the one member of a replica set, as the planner lays it out for an engine and a version."""

    def file(engine: str, version: str, *, compressor: str = "zlib", cache: int = 32768, **mongod: Any) -> str:
        topology = {
            "kind": "replica_set",
            "replica_set": {"members": 1},
            "mongodb": {"source": "tarball", "version": version},
            "network": {"compressors": []},
            "storage": {
                "engine": engine,
                "block_compressor": compressor,
                "cache": {"policy": "per_process_mb", "value": cache},
            },
            "mongod": {"operationProfiling": {"slowOpThresholdMs": 2000}, **mongod},
        }
        base = experiment(**EC2, topology=topology)
        (point,) = build_plan(base, points(base, [1]), Inputs(cores=2, ram_mib=249_856, backend="ec2")).points

        return texts(Layout(), point.processes, version=version)["rs0-1"]

    return file


@pytest.mark.parametrize(
    ("engine", "version"),
    [
        ("mmapv1", "2.6"),
        ("mmapv1", "3.0"),
        ("mmapv1", "3.2"),
        ("mmapv1", "3.4"),
        ("rocksdb", "3.0"),
        ("rocksdb", "3.2"),
        ("rocksdb", "3.4"),
        ("wiredTiger", "3.0"),
        ("wiredTiger", "3.2"),
        ("wiredTiger", "3.4"),
    ],
)
def test_a_file_has_only_options_its_version_knows(write: Write, engine: str, version: str) -> None:
    storage = dict(SECTIONS)
    if version == "2.6":
        del storage["mmapv1"]  # its names were without the section then
    config = yaml_load(write(engine, version, storage=storage))
    names = {".".join(path) for path, _ in mongo_config.leaves(config)}
    assert names - listed_options(engine, parse_release(version)) == set()
    assert config["replication"] == {"replSetName": "rs0", "oplogSizeMB": 990}
    assert config["operationProfiling"] == {"slowOpThresholdMs": 2000}
    assert config["storage"].get("engine") == (None if version == "2.6" else engine)
    others = {"wiredTiger", "mmapv1", "rocksdb", "tokumx"} - {engine}
    assert not others & config["storage"].keys()


@pytest.mark.parametrize(
    ("version", "mib", "expected"),
    [
        ("3.0", 32768, {"cacheSizeGB": 32}),
        ("3.2", 512, {"configString": "cache_size=512M"}),
        ("3.2", 1536, {"configString": "cache_size=1536M"}),
        ("3.4", 512, {"cacheSizeGB": 0.5}),
    ],
)
def test_before_3_4_a_cache_is_a_whole_number_of_gib(
    write: Write, version: str, mib: int, expected: dict[str, Any]
) -> None:
    config = yaml_load(write("wiredTiger", version, cache=mib))
    assert config["storage"]["wiredTiger"]["engineConfig"] == expected


def test_rocksdb_has_its_own_cache_and_compressor(write: Write) -> None:
    storage = yaml_load(write("rocksdb", "3.0", compressor="snappy", storage=SECTIONS))["storage"]
    assert storage["rocksdb"] == {"cacheSizeGB": 32, "compression": "snappy", "maxWriteMBPerSec": 512}


def test_tokumx_has_flat_names_that_it_knows(write: Write) -> None:
    text = write("tokumx", "2.4", storage=SECTIONS)
    lines = [line.split(" = ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    assert {name for name, _ in lines} - listed_options("tokumx", (2, 4)) == set()
    given = dict(line for line in lines if line[0] != "setParameter")
    assert given["cacheSize"] == str(32 * 1024**3)
    assert (given["replSet"], given["slowms"], given["nounixsocket"]) == ("rs0", "2000", "true")
    assert (given["checkpointPeriod"], given["expireOplogHours"]) == ("900", "2")
    parameters = dict(value.split("=") for name, value in lines if name == "setParameter")
    assert parameters == {"defaultCompression": "zlib", "defaultFanout": "128"}
    assert parameters.keys() <= tokumx_parameters()
    assert not any(name.startswith(("storage", "net", "systemLog")) for name, _ in lines)


def test_what_tokumx_has_no_word_for_is_an_error_and_not_left_out() -> None:
    with pytest.raises(HostError, match=r"no option for net\.http\.enabled"):
        mongo_config.merged_tokumx("", {"net": {"http": {"enabled": True}}})
