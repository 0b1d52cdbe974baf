import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.experiment.lab import BASE, Lab

EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"
SHARDS = "shards: {count: 2}"
OLD = 'mongodb: {source: tarball, version: "%s"}'

# What stands in place of `shards: {count: 2}` (line 4), and the one headline that comes of it.
REFUSED = {
    "engine gone from the embedded version": ("storage: {engine: mmapv1}", "4:21: topology.storage.engine: mmapv1"),
    "engine gone from its version": ("MongoDB 4.2.1\n  storage: {engine: mmapv1}", "5:21: topology.storage.engine"),
    "engine before its time": (
        "MongoDB 2.6\n  network: {compressors: []}\n  storage: {engine: wiredTiger}",
        "6:21: topology.storage.engine",
    ),
    "default engine before its time": ("MongoDB 2.6\n  network: {compressors: []}", "4:39: topology.mongodb.version"),
    "rocksdb": ("MongoDB 4.0\n  storage: {engine: rocksdb}", "5:21: topology.storage.engine"),
    "tokumx": ("MongoDB 5.0\n  storage: {engine: tokumx}", "5:21: topology.storage.engine"),
    "engine of the Enterprise edition": ("storage: {engine: inMemory}", "4:21: topology.storage.engine: inMemory is"),
    "zstd before its time": (
        "MongoDB 4.0\n  storage: {block_compressor: zstd}",
        "5:31: topology.storage.block_compressor",
    ),
    "zstd on the wire before its time": (
        "MongoDB 4.0\n  network: {compressors: [zlib, zstd]}",
        "5:33: topology.network.compressors.1",
    ),
    "zlib on the wire before its time": (
        "MongoDB 3.4\n  network: {compressors: [zlib]}",
        "5:27: topology.network.compressors.0",
    ),
    "default on the wire before its time": ("MongoDB 3.2", "4:39: topology.mongodb.version"),
    "none on the wire": ("network: {compressors: [none]}", "4:27: topology.network.compressors.0: none is not"),
    "compressor twice": ("network: {compressors: [zlib, zlib]}", "4:33: topology.network.compressors.1: zlib is"),
    "a version no package carries": (
        'mongodb: {version: "7.0"}',
        "4:22: topology.mongodb.version: no Python package carries MongoDB 7.0",
    ),
    "sharded before the embedded mongos": (
        'mongodb: {version: "5.0"}',
        "4:22: topology.mongodb.version: the embedded mongos needs",
    ),
    "a config shard before 8.0": (
        "MongoDB 7.0\n  config_servers: {embedded: true}",
        "5:30: topology.config_servers.embedded: an embedded config server (config shard) came with MongoDB 8.0",
    ),
    "an option of a later range deleter": (
        "MongoDB 6.0\n  mongod: {setParameter: {rangeDeleterHighPriority: true}}",
        "5:53: topology.mongod.setParameter.rangeDeleterHighPriority: setParameter.rangeDeleterHighPriority came with",
    ),
    "two config servers before replica sets of them": (
        "MongoDB 3.0\n  network: {compressors: []}\n  config_servers: {members: 2}",
        "6:29: topology.config_servers.members",
    ),
}


def with_versions(text: str) -> str:
    """`MongoDB 3.4` as the experiment file says it."""
    return re.sub(r"MongoDB ([0-9.]+)", lambda found: OLD % found[1], text)


@pytest.mark.parametrize("case", REFUSED)
def test_a_version_that_lacks_something_is_refused(lab: Lab, case: str) -> None:
    new, expected = with_versions(REFUSED[case][0]), REFUSED[case][1]
    (found,) = lab.wrong(BASE.replace(SHARDS, new))
    assert found.startswith(f"x.yml:{expected}")


@pytest.mark.parametrize(
    "new",
    [
        OLD % "3.4",
        OLD % "4.2" + "\n  storage: {block_compressor: zstd}\n  network: {compressors: [zstd, zlib, snappy]}",
        OLD % "3.6" + "\n  storage: {engine: rocksdb}\n  network: {compressors: [zlib]}",
        OLD % "4.0" + "\n  storage: {engine: mmapv1}",
        OLD % "8.0" + "\n  config_servers: {embedded: true}",
        "mongodb: {source: path, path: /opt/x}\n  storage: {engine: mmapv1}",
    ],
)
def test_a_version_that_has_it_is_accepted(lab: Lab, new: str) -> None:
    assert lab.load(BASE.replace(SHARDS, new)).experiment.name == "base"


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("storage: {dbPath: /data}", "storage.dbPath cannot be set here: the plan chooses"),
        ("net: {port: 27017}", "net.port cannot be set here: the plan chooses"),
        ("net: {bindIp: 0.0.0.0}", "net.bindIp cannot be set here: the plan chooses"),
        ("systemLog: {path: /x}", "systemLog.path cannot be set here: the plan chooses"),
        ("sharding: {clusterRole: shardsvr}", "sharding.clusterRole cannot be set here: the role"),
        ("replication: {replSetName: rs}", "replication.replSetName cannot be set here: replica sets"),
        ("processManagement: {fork: true}", "processManagement.fork cannot be set here: microshard starts"),
        ("storage: {engine: mmapv1}", "storage.engine cannot be set here: use topology.storage.engine"),
        ("storage.dbPath: /data", "storage.dbPath cannot be set here: the plan chooses"),
        ("storage: {wiredTiger.engineConfig: {cacheSizeGB: 1}}", "storage.wiredTiger.engineConfig.cacheSizeGB cannot"),
    ],
)
def test_an_option_of_mongod_that_the_tool_decides_is_refused_with_the_reason(
    lab: Lab, option: str, reason: str
) -> None:
    (found,) = lab.wrong(BASE.replace(SHARDS, f"mongod: {{{option}}}"))
    value_column = len("  mongod: {") + option.rindex(": ") + len(": ") + 1
    assert found.startswith(f"x.yml:4:{value_column}: topology.mongod.")
    assert f": mongod's {reason}" in found


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("storage: 3", "storage: storage is a section"),
        ("setParameter: {x: {__exec: ls}}", "setParameter.x.__exec: __exec would let mongod run"),
        (
            "storage: {wiredTiger: {engineConfig: {configString: 'cache_size=2M'}}}",
            "storage.wiredTiger.engineConfig.configString: the cache size",
        ),
    ],
)
def test_an_option_of_mongod_that_would_do_harm_is_refused(lab: Lab, option: str, problem: str) -> None:
    (found,) = lab.wrong(BASE.replace(SHARDS, f"mongod: {{{option}}}"))
    assert found.split(": ", 1)[1].startswith(f"topology.mongod.{problem}")


# What stands in place of `shards: {count: 2}`, and the one warning that comes of it.
DOUBTFUL = {
    "shards of a standalone": ("kind: standalone\n  shards: {count: 2}", "5:11: warning: topology.shards: has no"),
    "replica set and shards": ("replica_set: {members: 3}", "4:16: warning: topology.replica_set: has no"),
    "compressor for mmapv1": (
        "MongoDB 3.4\n  storage: {engine: mmapv1, block_compressor: zlib}",
        "5:47: warning: topology.storage.block_compressor",
    ),
    "cache for mmapv1": (
        "MongoDB 3.4\n  storage: {engine: mmapv1, cache: {value: 10}}",
        "5:36: warning: topology.storage.cache",
    ),
    "unknown section of mongod's": ("mongod: {storag: {x: 1}}", "4:20: warning: topology.mongod.storag: no section"),
}


@pytest.mark.parametrize("case", DOUBTFUL)
def test_what_has_no_effect_is_a_warning(lab: Lab, case: str) -> None:
    new, expected = with_versions(DOUBTFUL[case][0]), DOUBTFUL[case][1]
    text = BASE.replace(SHARDS, new)
    if "standalone" in new:
        text = text.replace("  collections: [{namespace: vosa.mot_results, shard_key: {_id: 1}}]\n", "")
    (found,) = lab.warned(text)
    assert found.startswith(f"x.yml:{expected}")


KEY = "{_id: 1}}"
HASHED = "{_id: hashed}, presplit: {policy: hashed}}"
RANGES = "{_id: 1}, presplit: {policy: key_ranges, ranges_per_shard: 2}}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({KEY: RANGES, "documents: 100": "documents: 100, processes: 4"}, None),
        (
            {KEY: RANGES, "documents: 100": "documents: 100, processes: 6"},
            "7:55: warning: workload.0.load.processes: 6 loaders for 4 key ranges",
        ),
        ({KEY: HASHED}, None),
        ({KEY: HASHED, SHARDS: "balancer: {enabled: true}"}, "5:83: warning: topology.collections.0.presplit: the bal"),
        ({KEY: "{_id: 1}, presplit: {ranges_per_shard: 2}}"}, "5:97: warning: topology.collections.0.presplit.ranges_"),
        ({"pipeline: p": "pipeline: p, namespace: a.b"}, "8:58: warning: workload.1.measure.namespace: a.b is not"),
    ],
)
def test_where_the_data_goes_is_a_warning_when_it_is_in_doubt(
    lab: Lab, changes: dict[str, str], expected: str | None
) -> None:
    text = BASE
    for old, new in changes.items():
        text = text.replace(old, new)
    assert [w[: len(f"x.yml:{expected}")] for w in lab.warned(text)] == ([f"x.yml:{expected}"] if expected else [])


@pytest.mark.parametrize(
    ("concern", "message"),
    [
        ("{w: 2}", "waits for 2 members where there is one"),
        ("{w: 0}", "w 0 is not acknowledged"),
        ("{w: true}", "needs a number of members"),
        ("{w: -1}", "needs a number of members"),
    ],
)
def test_a_write_concern_that_cannot_be_met_is_refused(lab: Lab, concern: str, message: str) -> None:
    (found,) = lab.wrong(BASE.replace("documents: 100", f"documents: 100, write_concern: {concern}"))
    assert found.startswith(f"x.yml:7:63: workload.0.load.write_concern.w: {message}")


def test_a_compressor_without_its_package_is_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (EXPERIMENTS / "wire-compression.yml").read_text(encoding="utf-8")
    both: dict[str, Any] = {"matrix": {}, "question": None, "topology.network.compressors": ["zlib", "zstd"],
            "workload.0.measure.client_compressors": ["zlib", "zstd"]}  # fmt: skip
    assert lab.load(text, overrides=both)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    (found,) = lab.wrong(text, overrides=both)
    assert "workload.0.measure.client_compressors.1: for zstd the embedded mongos needs another package" in found


def test_a_reference_without_its_axis_is_a_warning(lab: Lab) -> None:
    reference = "reference: {axis: topology.mongos.count, points: [{at: 1}]}\n"
    (found,) = lab.warned(BASE + reference)
    assert found.startswith("x.yml:9:19: warning: reference.axis: topology.mongos.count is no axis")
    for matrix in ("{topology.mongos.count: [1]}", "{zip: {topology.mongos.count: [1]}}"):
        assert lab.warned(f"{BASE}{reference}matrix: {matrix}\n") == []
    (found,) = lab.warned(BASE + "reference: {points: [{at: 1}]}\n")  # the default axis
    assert found.startswith("x.yml:9:12: warning: reference: topology.shards.count is no axis")


def test_initial_chunks_are_refused_where_the_server_ignores_them(lab: Lab) -> None:
    hashed = "shard_key: {_id: hashed}, presplit: {policy: hashed, chunks_per_shard: 2}}"
    text = BASE.replace("shard_key: {_id: 1}}", hashed)
    assert lab.load(text.replace(SHARDS, with_versions("MongoDB 7.0\n  " + SHARDS))).experiment.name == "base"
    (found,) = lab.wrong(text.replace(SHARDS, with_versions("MongoDB 8.0\n  " + SHARDS)))
    assert "presplit.chunks_per_shard: the server ignores numInitialChunks since MongoDB 7.2" in found


def test_a_driver_of_its_own_is_refused_beside_the_embedded_mongos(lab: Lab) -> None:
    (found,) = lab.wrong(BASE.replace("workload:", 'client: {driver: "pymongo==3.13"}\nworkload:'))
    assert "client.driver: the embedded mongos runs with the driver of microshard" in found
