from __future__ import annotations

import pytest

from tests.unit.experiment.lab import BASE, Lab

SHARDS = "shards: {count: 2}"
OLD = 'mongodb: {source: tarball, version: "%s"}'

# What stands in place of `shards: {count: 2}` (line 4), and the one headline that comes of it.
REFUSED = {
    "an engine gone from the embedded version": (
        "storage: {engine: mmapv1}",
        "x.yml:4:21: topology.storage.engine: mmapv1",
    ),
    "an engine gone from its version": (
        f"{OLD % '4.2.1'}\n  storage: {{engine: mmapv1}}",
        "x.yml:5:21: topology.storage.engine: mmapv1",
    ),
    "an engine before its time": (
        f"{OLD % '2.6'}\n  network: {{compressors: []}}\n  storage: {{engine: wiredTiger}}",
        "x.yml:6:21: topology.storage.engine: wiredTiger",
    ),
    "the default engine before its time": (
        f"{OLD % '2.6'}\n  network: {{compressors: []}}",
        "x.yml:4:39: topology.mongodb.version: wiredTiger",
    ),
    "rocksdb": (f"{OLD % '4.0'}\n  storage: {{engine: rocksdb}}", "x.yml:5:21: topology.storage.engine: rocksdb"),
    "tokumx": (f"{OLD % '5.0'}\n  storage: {{engine: tokumx}}", "x.yml:5:21: topology.storage.engine: tokumx"),
    "an engine of the Enterprise edition": (
        "storage: {engine: inMemory}",
        "x.yml:4:21: topology.storage.engine: inMemory is",
    ),
    "zstd before its time": (
        f"{OLD % '4.0'}\n  storage: {{block_compressor: zstd}}",
        "x.yml:5:31: topology.storage.block_compressor: zstd came",
    ),
    "zstd on the wire before its time": (
        f"{OLD % '4.0'}\n  network: {{compressors: [zlib, zstd]}}",
        "x.yml:5:33: topology.network.compressors.1: network",
    ),
    "zlib on the wire before its time": (
        f"{OLD % '3.4'}\n  network: {{compressors: [zlib]}}",
        "x.yml:5:27: topology.network.compressors.0: network",
    ),
    "the default on the wire before its time": (OLD % "3.2", "x.yml:4:39: topology.mongodb.version: network"),
    "none on the wire": ("network: {compressors: [none]}", "x.yml:4:27: topology.network.compressors.0: none is not"),
    "a compressor twice": (
        "network: {compressors: [zlib, zlib]}",
        "x.yml:4:33: topology.network.compressors.1: zlib is",
    ),
    "two config servers before replica sets of them": (
        f"{OLD % '3.0'}\n  network: {{compressors: []}}\n  config_servers: {{members: 2}}",
        "x.yml:6:29: topology.config_servers.members: config",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_version_that_lacks_something_is_refused(lab: Lab, case: str) -> None:
    new, expected = REFUSED[case]
    (found,) = lab.wrong(BASE.replace(SHARDS, new))
    assert found.startswith(expected)


@pytest.mark.parametrize(
    "new",
    [
        OLD % "3.4",
        OLD % "4.2" + "\n  storage: {block_compressor: zstd}\n  network: {compressors: [zstd, zlib, snappy]}",
        OLD % "3.6" + "\n  storage: {engine: rocksdb}\n  network: {compressors: [zlib]}",
        OLD % "4.0" + "\n  storage: {engine: mmapv1}",
        "mongodb: {source: path, path: /opt/x}\n  storage: {engine: mmapv1}",
    ],
)
def test_a_version_that_has_it_is_accepted(lab: Lab, new: str) -> None:
    assert lab.load(BASE.replace(SHARDS, new)).experiment.name == "base"


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("storage: {dbPath: /data}", "storage.dbPath cannot be set here: the plan chooses one for every process"),
        (
            "net: {port: 27017}",
            "net.port cannot be set here: the plan chooses one for every process; its first port is ",
        ),
        ("net: {bindIp: 0.0.0.0}", "net.bindIp cannot be set here: the plan chooses one for every process"),
        ("systemLog: {path: /x}", "systemLog.path cannot be set here: the plan chooses one for every process"),
        ("sharding: {clusterRole: shardsvr}", "sharding.clusterRole cannot be set here: the role follows from "),
        ("replication: {replSetName: rs}", "replication.replSetName cannot be set here: replica sets are named by "),
        ("processManagement: {fork: true}", "processManagement.fork cannot be set here: microshard starts, "),
        ("storage: {engine: mmapv1}", "storage.engine cannot be set here: use topology.storage.engine"),
        ("storage.dbPath: /data", "storage.dbPath cannot be set here: the plan chooses one for every process"),
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
        (
            "storage: 3",
            "topology.mongod.storage: storage is a section of mongod's configuration file: it needs a mapping",
        ),
        (
            "setParameter: {x: {__exec: ls}}",
            "topology.mongod.setParameter.x.__exec: __exec would let mongod run or fetch something while it reads its "
            "options",
        ),
        (
            "storage: {wiredTiger: {engineConfig: {configString: 'cache_size=2M'}}}",
            "topology.mongod.storage.wiredTiger.engineConfig.configString: the cache size cannot be set here: "
            "use topology.storage.cache",
        ),
    ],
)
def test_an_option_of_mongod_that_would_do_harm_is_refused(lab: Lab, option: str, problem: str) -> None:
    (found,) = lab.wrong(BASE.replace(SHARDS, f"mongod: {{{option}}}"))
    assert found.split(": ", 1)[1] == problem


# What stands in place of `shards: {count: 2}`, and the one warning that comes of it.
DOUBTFUL = {
    "shards of a standalone": (
        "kind: standalone\n  shards: {count: 2}",
        "x.yml:5:11: warning: topology.shards: has no",
    ),
    "a replica set and shards": ("replica_set: {members: 3}", "x.yml:4:16: warning: topology.replica_set: has no"),
    "a compressor for mmapv1": (
        f"{OLD % '3.4'}\n  storage: {{engine: mmapv1, block_compressor: zlib}}",
        "x.yml:5:47: warning: topology.storage.block_compressor: has no",
    ),
    "a cache for mmapv1": (
        f"{OLD % '3.4'}\n  storage: {{engine: mmapv1, cache: {{value: 10}}}}",
        "x.yml:5:36: warning: topology.storage.cache: has no",
    ),
    "an unknown section of mongod's": (
        "mongod: {storag: {x: 1}}",
        "x.yml:4:20: warning: topology.mongod.storag: no section",
    ),
}


@pytest.mark.parametrize("case", DOUBTFUL)
def test_what_has_no_effect_is_a_warning(lab: Lab, case: str) -> None:
    new, expected = DOUBTFUL[case]
    text = BASE.replace(SHARDS, new)
    if "standalone" in new:
        text = text.replace("  collections: [{namespace: vosa.mot_results, shard_key: {_id: 1}}]\n", "")
    (found,) = lab.warned(text)
    assert found.startswith(expected)


def test_more_loaders_than_key_ranges_is_a_warning(lab: Lab) -> None:
    text = BASE.replace("{_id: 1}}", "{_id: 1}, presplit: {policy: key_ranges, ranges_per_shard: 2}}")
    assert lab.warned(text.replace("documents: 100", "documents: 100, processes: 4")) == []
    assert lab.warned(text.replace("documents: 100", "documents: 100, processes: 6")) == [
        "x.yml:7:55: warning: workload.0.load.processes: 6 loaders for 4 key ranges: 2 have nothing to do"
    ]


def test_a_balancer_with_pre_split_chunks_is_a_warning(lab: Lab) -> None:
    text = BASE.replace("{_id: 1}}", "{_id: hashed}, presplit: {policy: hashed}}")
    assert lab.warned(text) == []
    assert lab.warned(text.replace(SHARDS, "balancer: {enabled: true}")) == [
        "x.yml:5:83: warning: topology.collections.0.presplit: "
        "the balancer is enabled and may move what is pre-split here"
    ]


def test_key_ranges_without_that_policy_are_a_warning(lab: Lab) -> None:
    assert lab.warned(BASE.replace("{_id: 1}}", "{_id: 1}, presplit: {ranges_per_shard: 2}}")) == [
        "x.yml:5:97: warning: topology.collections.0.presplit.ranges_per_shard: "
        "has no effect: it belongs to policy key_ranges, not to none"
    ]


def test_a_collection_that_is_not_sharded_is_a_warning(lab: Lab) -> None:
    assert lab.warned(BASE.replace("pipeline: p", "pipeline: p, namespace: a.b")) == [
        "x.yml:8:58: warning: workload.1.measure.namespace: "
        "a.b is not among topology.collections, so it is unsharded, on one shard"
    ]


@pytest.mark.parametrize(
    ("concern", "message"),
    [
        ("{w: 2}", "waits for 2 members where there is one member, so no insert would end"),
        ("{w: 0}", "w 0 is not acknowledged, so nothing could be counted"),
        ("{w: true}", 'needs a number of members or "majority"'),
        ("{w: -1}", 'needs a number of members or "majority"'),
    ],
)
def test_a_write_concern_that_cannot_be_met_is_refused(lab: Lab, concern: str, message: str) -> None:
    (found,) = lab.wrong(BASE.replace("documents: 100", f"documents: 100, write_concern: {concern}"))
    assert found == f"x.yml:7:63: workload.0.load.write_concern.w: {message}"


def test_a_reference_without_its_axis_is_a_warning(lab: Lab) -> None:
    reference = "reference: {axis: topology.mongos.count, points: [{at: 1}]}\n"
    assert lab.warned(BASE + reference) == [
        "x.yml:9:19: warning: reference.axis: topology.mongos.count is no axis of the matrix, "
        "so the published values match no point"
    ]
    for matrix in ("{topology.mongos.count: [1]}", "{zip: {topology.mongos.count: [1]}}"):
        assert lab.warned(f"{BASE}{reference}matrix: {matrix}\n") == []


def test_the_default_axis_of_a_reference_is_checked_too(lab: Lab) -> None:
    (found,) = lab.warned(BASE + "reference: {points: [{at: 1}]}\n")
    assert found.startswith("x.yml:9:12: warning: reference: topology.shards.count is no axis")
