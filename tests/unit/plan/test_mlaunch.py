"""Experiments and mlaunch's environments, each from the other. tests/cluster/test_mlaunch.py has the real mlaunch."""

import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from microshard.plan.mlaunch import MlaunchError, import_mlaunch, mlaunch_commands
from tests.unit.plan.conftest import experiment

# What mlaunch 1.7.2 writes for `mlaunch init --single`, as far as it is read.
_ARGUMENTS: dict[str, Any] = {
    "single": True, "replicaset": False, "nodes": 3, "arbiter": False, "name": "replset", "sharded": None, "config": 1,
    "mongos": 1, "port": 27017, "binarypath": None, "dir": "data", "auth": False,
}  # fmt: skip
_SHARDED = {"single": False, "sharded": ["3"], "replicaset": True, "nodes": 2, "config": "3", "mongos": 2}


def environment(folder: Path, *passed: str, **arguments: Any) -> Path:
    startup = {"protocol_version": 2, "parsed_args": _ARGUMENTS | arguments, "unknown_args": list(passed)}
    (folder / ".mlaunch_startup").write_text(json.dumps(startup))
    return folder


@pytest.mark.parametrize(
    ("arguments", "passed", "says"),
    [
        ({}, [], {"kind": "standalone", "network": {"base_port": 27017}}),
        (
            _SHARDED,
            [],
            {"shards": {"count": 3, "members": 2}, "config_servers": {"members": 3}, "mongos": {"count": 2}},
        ),
        ({"sharded": ["hot", "cold"]}, [], {"shards": {"count": 2, "members": 1}}),
        (
            {"replicaset": True, "nodes": 2, "arbiter": True},
            [],
            {"kind": "replica_set", "replica_set": {"members": [{}, {}, {"arbiter": True}]}},
        ),
        ({"binarypath": "/opt/mongodb"}, [], {"mongodb": {"source": "path", "path": "/opt/mongodb"}}),
        ({"auth": True}, [], {"security": {"authorization": True, "tls": False}}),
        ({"tlsMode": "requireTLS"}, [], {"security": {"authorization": False, "tls": True}}),
        ({}, [], {"storage": {"cache": {"policy": "per_process_mb", "value": 1024}}}),
        (
            {},
            ["--wiredTigerCacheSizeGB", "0.5", "--wiredTigerCollectionBlockCompressor=zstd", "--oplogSize", "2000"],
            {
                "storage": {
                    "cache": {"policy": "per_process_mb", "value": 512},
                    "block_compressor": "zstd",
                    "oplog_size_mb": 2000,
                }
            },
        ),
        (
            {},
            ["--networkMessageCompressors", "zlib,snappy"],
            {"network": {"base_port": 27017, "compressors": ["zlib", "snappy"]}},
        ),
        (
            {},
            [
                "--setParameter",
                "ttlMonitorEnabled=false",
                "--slowms",
                "5",
                "--directoryperdb",
                "--bind_ip",
                "127.0.0.1",
            ],
            {
                "mongod": {
                    "setParameter": {"ttlMonitorEnabled": False},
                    "operationProfiling": {"slowOpThresholdMs": 5},
                    "storage": {"directoryPerDB": True},
                }
            },
        ),
    ],
)
def test_an_environment_of_mlaunch_is_a_topology(
    tmp_path: Path, arguments: dict[str, Any], passed: list[str], says: dict[str, Any]
) -> None:
    topology = import_mlaunch(environment(tmp_path, *passed, **arguments))
    assert {key: topology[key] for key in says} == says
    experiment(topology=topology)  # and an experiment takes it


@pytest.mark.parametrize(
    ("content", "word"),
    [(None, "--dir"), ("[]", "mlaunch 1.5"), ("{", "mlaunch 1.5"), ('{"port": 27017}', "mlaunch 1.5")],
)
def test_a_folder_that_is_none_of_mlaunch_is_named(tmp_path: Path, content: str | None, word: str) -> None:
    if content is not None:
        (tmp_path / ".mlaunch_startup").write_text(content)
    with pytest.raises(MlaunchError, match=word):
        import_mlaunch(tmp_path)


def test_an_option_without_counterpart_is_named(tmp_path: Path) -> None:
    with pytest.raises(MlaunchError, match="--notablescan"):
        import_mlaunch(environment(tmp_path, "--notablescan"))


def commands(plan: Any) -> list[list[str]]:
    return [shlex.split(command) for command, _ in mlaunch_commands(plan, Path("/bin dir"))]


def test_a_point_is_a_command_of_mlaunch(planned: Any) -> None:
    topology = {
        "shards": {"members": 3},
        "storage": {"cache": {"policy": "per_process_mb", "value": 256}},
        "mongod": {"setParameter": {"ttlMonitorEnabled": False}},
    }
    one, two = commands(planned([1, 2], topology=topology))
    assert one[:2] == ["mlaunch", "init"]
    given = dict(itertools.pairwise(two))
    assert given | {
        "--sharded": "2", "--nodes": "3", "--config": "1", "--mongos": "1", "--wiredTigerCacheSizeGB": "0.25",
        "--setParameter": "ttlMonitorEnabled=false", "--binarypath": "/bin dir", "--oplogSize": "990",
    } == given  # fmt: skip


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ({"kind": "standalone"}, ["--single"]),
        (
            {"kind": "replica_set", "replica_set": {"members": [{}, {}, {"arbiter": True}]}},
            ["--nodes", "2", "--arbiter"],
        ),
        ({"kind": "standalone", "storage": {"cache": {"policy": "per_process_mb", "value": 2}}}, ["cache_size=2048K"]),
    ],
)
def test_other_kinds_and_small_caches(planned: Any, topology: dict[str, Any], words: list[str]) -> None:
    (command,) = commands(planned([1], topology=topology))
    assert set(words) <= set(command)


@pytest.mark.parametrize(
    ("topology", "word"),
    [
        ({"kind": "replica_set", "replica_set": {"members": [{}, {"hidden": True}]}}, "hidden"),
        ({"kind": "replica_set", "replica_set": {"members": [{}, {"cache_mb": 300}]}}, "differ"),
        ({"kind": "standalone", "mongod": {"security": {"javascriptEnabled": False}}}, "security.javascriptEnabled"),
    ],
)
def test_what_mlaunch_cannot_start_is_refused_by_name(planned: Any, topology: dict[str, Any], word: str) -> None:
    with pytest.raises(MlaunchError, match=word):
        commands(planned([1], topology=topology))
