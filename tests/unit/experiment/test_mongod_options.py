"""Options of mongod against the version of the experiment."""

from typing import Any

import pytest

from microshard.experiment.rules import topology_violations
from microshard.model.experiment import Experiment

OLD: dict[str, Any] = {"kind": "standalone", "network": {"compressors": []}}


def errors(engine: str, version: str, source: str = "tarball", **topology: Any) -> list[str]:
    storage = {"engine": engine, "block_compressor": "zlib", **topology.pop("storage", {})}
    experiment = Experiment.model_validate(
        {
            "microshard": 1,
            "name": "x",
            "topology": {**OLD, "mongodb": {"source": source, "version": version}, "storage": storage, **topology},
            "workload": [{"measure": {"engine": "insert", "documents": 10}}],
        }
    )
    found = [f for f in topology_violations(experiment.topology) if f.severity == "error"]
    return [f"{'.'.join(map(str, f.path))}: {f.message}" for f in found]


@pytest.mark.parametrize(
    ("engine", "version", "mongod", "expected"),
    [
        ("mmapv1", "2.6", {"storage": {"mmapv1": {"nsSize": 32}}}, "storage.mmapv1.nsSize came with MongoDB 3.0"),
        ("mmapv1", "2.6", {"systemLog": {"logRotate": "reopen"}}, "systemLog.logRotate came with MongoDB 3.0"),
        ("wiredTiger", "4.2", {"setParameter": {"initialSyncMethod": "logical"}}, "came with MongoDB 6.0"),
        ("wiredTiger", "7.0", {"storage": {"journal": {"enabled": True}}}, "is gone since MongoDB 6.1"),
        ("wiredTiger", "4.4", {"storage": {"indexBuildRetry": True}}, "is gone since MongoDB 4.4"),
        ("wiredTiger", "5.0", {"net": {"serviceExecutor": "adaptive"}}, "is gone since MongoDB 5.0"),
        ("wiredTiger", "4.2", {"net": {"http": {"enabled": False}}}, "is gone since MongoDB 3.6"),
        ("wiredTiger", "3.0", {"replication": {"enableMajorityReadConcern": True}}, "came with MongoDB 3.2"),
        (
            "rocksdb",
            "3.0",
            {"storage": {"rocksdb": {"counters": True}}},
            "storage.rocksdb.counters came with MongoDB 3.4",
        ),
        ("tokumx", "2.4", {"storage": {"tokumx": {"cachesize": "1G"}}}, "TokuMX 2.0 has no option cachesize"),
        (
            "tokumx",
            "2.4",
            {"storage": {"tokumx": {"setParameter": {"fanout": 9}}}},
            "TokuMX 2.0 has no parameter fanout",
        ),
    ],
)
def test_an_option_the_version_has_not_got_is_refused_by_name(
    engine: str, version: str, mongod: dict[str, Any], expected: str
) -> None:
    (error,) = errors(engine, version, mongod=mongod)
    assert error.startswith("topology.mongod.")
    assert expected in error


@pytest.mark.parametrize(
    ("engine", "version", "mongod"),
    [
        ("mmapv1", "3.0", {"storage": {"mmapv1": {"nsSize": 32}}}),
        ("mmapv1", "2.6", {"storage": {"nsSize": 32, "rocksdb": {"counters": True}}}),
        ("wiredTiger", "3.0", {"systemLog": {"component": {"query": {"verbosity": 1}}}, "setParameter": {"any": 1}}),
        ("tokumx", "2.4", {"storage": {"tokumx": {"setParameter": {"defaultFanout": 9}}}}),
    ],
)
def test_an_option_it_has_is_taken_and_those_of_other_engines_are_not_looked_at(
    engine: str, version: str, mongod: dict[str, Any]
) -> None:
    assert errors(engine, version, mongod=mongod) == []


def test_engines_that_compress_otherwise_are_reported_so() -> None:
    (error,) = errors("tokumx", "2.4", storage={"block_compressor": "snappy"})
    assert "tokumx does not compress with snappy, but with none or zlib" in error
    quicklz = {"storage": {"tokumx": {"setParameter": {"defaultCompression": "quicklz"}}}}
    assert errors("tokumx", "2.4", storage={"block_compressor": "snappy"}, mongod=quicklz) == []
    (error,) = errors("rocksdb", "3.2", storage={"cache": {"policy": "per_process_mb", "value": 1500}})
    assert "whole GiB" in error


def test_mongodbs_packages_have_no_engines_of_others() -> None:
    (error,) = errors("rocksdb", "3.2", source="packages")
    assert error == "topology.mongodb.source: MongoDB's packages have no rocksdb; use a tarball, or path"
    assert errors("mmapv1", "3.2", source="packages") == []
