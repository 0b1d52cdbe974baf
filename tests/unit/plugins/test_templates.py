import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.yaml import yaml_load

from microshard.embedded import options as mongos_options
from microshard.experiment.mongod_options import listed_options, parse_release, unknown_options
from microshard.experiment.server_versions import PACKAGED
from microshard.hostlib import mongo_config, wire
from microshard.hostlib.errors import HostError
from microshard.hostlib.process_checks import options_difference
from microshard.plan.topology import merge
from tests.cluster.ansible.points import Layout, free_ports
from tests.packaged import packaged
from tests.unit.plugins.conftest import Render, Texts


def test_a_standalone_listens_on_one_address_and_makes_no_socket_file(configs: Render) -> None:
    config = configs(Layout(first_port=27100))["mongod1"]
    assert config["net"] == {
        "port": 27100,
        "bindIp": "127.0.0.1",
        "unixDomainSocket": {"enabled": False},
        "compression": {"compressors": "snappy"},
    }
    assert config["storage"]["dbPath"] == "/run-folder/deployments/p01/mongod1/data"
    assert config["systemLog"] == {
        "destination": "file",
        "path": "/run-folder/deployments/p01/mongod1/mongod.log",
        "logAppend": True,
        "logRotate": "reopen",
    }
    assert config["processManagement"] == {"pidFilePath": "/run-folder/deployments/p01/mongod1/pid"}
    assert "replication" not in config
    assert "sharding" not in config


def test_a_member_has_its_set_and_no_cluster_role(configs: Render) -> None:
    config = configs(Layout("replica_set", members=2))["rs0-2"]
    assert config["replication"] == {"replSetName": "rs0"}
    assert "sharding" not in config


def test_every_part_of_a_cluster_has_its_role(configs: Render) -> None:
    found = configs(Layout("sharded", shards=1, first_port=27100))
    assert found["shard01"]["sharding"] == {"clusterRole": "shardsvr"}
    assert found["config1"]["sharding"] == {"clusterRole": "configsvr"}
    assert found["config1"]["replication"] == {"replSetName": "config"}
    assert found["mongos1"]["sharding"] == {"configDB": "config/127.0.0.1:27101"}
    assert "storage" not in found["mongos1"]


def test_only_the_embedded_mongos_is_reported_where_its_router_lives(configs: Render) -> None:
    path = configs(Layout("sharded", shards=1))["mongos1"]["setParameter"]["microshardRouterPath"]
    assert path == "/run-folder/deployments/p01/mongos1/router"
    assert "setParameter" not in configs(Layout("sharded", shards=1), embedded=False)["mongos1"]


@pytest.mark.parametrize(
    ("mib", "expected"),
    [
        (1024, {"cacheSizeGB": 1.0}),
        (256, {"cacheSizeGB": 0.25}),
        (255, {"configString": "cache_size=255M"}),
        (2, {"configString": "cache_size=2M"}),
        (62.5, {"configString": "cache_size=64000K"}),
    ],
)
def test_a_cache_below_the_smallest_option_goes_through_the_engines_own_text(
    configs: Render, mib: float, expected: dict[str, Any]
) -> None:
    config = configs(Layout(cache_mib=mib))["mongod1"]
    assert config["storage"]["wiredTiger"]["engineConfig"] == expected


def test_the_engines_text_of_the_passthrough_comes_after_ours(configs: Render) -> None:
    options = {"storage": {"wiredTiger": {"engineConfig": {"configString": "eviction=(threads_max=8)"}}}}
    config = configs(Layout(cache_mib=64, options=options))["mongod1"]
    text = config["storage"]["wiredTiger"]["engineConfig"]["configString"]
    assert text == "cache_size=64M,eviction=(threads_max=8)"


def test_a_cache_size_of_the_passthrough_replaces_the_planned_one(configs: Render) -> None:
    options = {"storage": {"wiredTiger": {"engineConfig": {"cacheSizeGB": 2}}}}
    config = configs(Layout(cache_mib=64, options=options))["mongod1"]
    assert config["storage"]["wiredTiger"]["engineConfig"] == {"cacheSizeGB": 2}


def test_a_config_shard_is_a_config_server_with_the_data_options_of_a_shard(configs: Render) -> None:
    topology = {"kind": "sharded", "shards": {"count": 2}, "config_servers": {"embedded": True}}
    topology["mongodb"] = {"source": "path", "path": "/opt/mongodb/bin", "version": "8.0"}
    found = configs(Layout("sharded", definition=topology, first_port=27100), version="8.0", embedded=False)
    assert list(found) == ["mongos1", "config", "shard02"]
    assert found["config"]["sharding"] == {"clusterRole": "configsvr"}
    assert found["config"]["replication"]["replSetName"] == "config"
    assert found["config"]["storage"]["wiredTiger"] == found["shard02"]["storage"]["wiredTiger"]
    assert found["shard02"]["sharding"] == {"clusterRole": "shardsvr"}
    assert found["mongos1"]["sharding"] == {"configDB": "config/127.0.0.1:27101"}


def test_another_engine_gets_no_wiredtiger_cache(configs: Render) -> None:
    config = configs(Layout(options={"storage": {"engine": "inMemory"}}))["mongod1"]
    assert "wiredTiger" not in config["storage"]


OPTIONS = {
    "storage": {"engine": "wiredTiger", "wiredTiger": {"collectionConfig": {"blockCompressor": "zlib"}}},
    "systemLog": {"verbosity": 1, "logRotate": "rename", "component": {"query": {"verbosity": 2}}},
    "setParameter": {"ttlMonitorEnabled": False, "diagnosticDataCollectionPeriodMillis": 1000},
    "net": {"compression": {"compressors": "disabled"}, "maxIncomingConnections": 1000},
    "replication": {},
}


def test_the_options_of_an_experiment_are_merged_last_and_the_comments_stay(texts: Texts) -> None:
    plain, changed = (texts(Layout(options=options))["mongod1"] for options in ({}, OPTIONS))
    expected = merge(yaml_load(plain), OPTIONS)
    expected.pop("replication")
    assert yaml_load(changed) == expected
    comments = [line for line in plain.splitlines() if line.lstrip().startswith("#")]
    assert [line for line in changed.splitlines() if line.lstrip().startswith("#")] == comments
    assert '  logRotate: "rename"\n' in changed


@pytest.mark.parametrize("line", ["net: {port: 1}", "net:\n  port:\n    number: 1"])
def test_a_template_into_which_an_option_cannot_be_merged_is_refused(line: str) -> None:
    with pytest.raises(HostError, match=r"net\.port cannot be merged"):
        mongo_config.merged(f"{line}\n", {"net": {"port": 2}})


def test_every_file_says_whose_it_is_and_why_it_is_so(texts: Texts) -> None:
    for name, text in texts(Layout("sharded", shards=1)).items():
        assert text.startswith(f"# {name}: a ")
        assert "\n  # One address of the host and no unix socket" in text
        assert list(yaml_load(text))
        assert "\n\n\n" not in text


MONGOS_ALONE = {"sharding.configDB"}


@pytest.mark.parametrize("version", ["3.0", "3.4", "3.6", "4.0", "4.2", "4.4", "5.0", "6.0", "7.0", "8.0"])
@pytest.mark.parametrize(
    "layout", [Layout(), Layout("replica_set"), Layout("sharded", shards=1)], ids=lambda x: x.topology
)
def test_a_file_has_only_documented_options(configs: Render, layout: Layout, version: str) -> None:
    release = parse_release(version)
    known = listed_options("wiredTiger", release) | MONGOS_ALONE
    for name, config in configs(layout, version=version, tls=True, authorization=True, embedded=False).items():
        if release < (3, 4):
            del config["net"]["compression"]  # of the layout; the planner leaves it out
        names = {".".join(path) for path, _ in mongo_config.leaves(config)}
        parts = {name: {".".join(name.split(".")[:n]) for n in range(1, 9)} for name in names}
        assert {name for name in names if not parts[name] & known} == set(), name
        assert [*unknown_options(config, "wiredTiger", release)] == []
        assert any(option.startswith("net.ssl.") for option in names) == (release < (4, 2))


@pytest.mark.parametrize("version", PACKAGED)
@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize(
    "layout",
    [Layout(), Layout("replica_set", cache_mib=2), Layout("sharded", shards=1, cache_mib=512, options=OPTIONS)],
    ids=lambda x: x.topology,
)
def test_the_servers_here_read_every_file_as_it_is_meant(
    texts: Texts, tmp_path: Path, layout: Layout, secured: bool, version: str
) -> None:
    mongod = packaged(version)
    for name, text in texts(layout, tls=secured, authorization=secured, version=version).items():
        path = tmp_path / f"{name}.conf"
        path.write_text(text, encoding="utf-8")
        if name == "mongos1":
            options = mongos_options.parse(["--config", str(path)])
            assert options.given["sharding.configDB"].startswith("config/127.0.0.1:")
            continue
        command = [str(mongod), "--config", str(path), "--outputConfig"]  # what it has read, without starting
        read = subprocess.run(command, capture_output=True, text=True, check=False)
        assert read.returncode == 0, read.stdout + read.stderr
        assert options_difference(yaml_load(text), yaml_load(read.stdout)) == ""


def answer_of(port: int, command: dict[str, Any]) -> dict[str, Any]:
    """The answer of a server that is starting, without a driver: none speaks to all of these versions."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return wire.command("127.0.0.1", port, command, timeout=5)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.cluster
@pytest.mark.parametrize("version", PACKAGED)
def test_every_version_starts_with_the_files_of_every_role(texts: Texts, tmp_path: Path, version: str) -> None:
    mongod = packaged(version)
    layout = Layout("sharded", shards=1, first_port=free_ports(3))
    files = texts(layout, version=version) | texts(Layout(first_port=free_ports(1)), version=version)
    for name, text in files.items():
        if name == "mongos1":
            continue
        folder = tmp_path / "deployments" / "p01" / name
        (folder / "data").mkdir(parents=True)
        path = folder / "mongod.conf"
        path.write_text(text.replace("/run-folder", str(tmp_path)), encoding="utf-8")
        port = yaml_load(text)["net"]["port"]
        with subprocess.Popen([str(mongod), "--config", str(path)], stdout=subprocess.DEVNULL) as server:
            try:
                assert answer_of(port, {"buildInfo": 1, "$db": "admin"})["version"] == version
            finally:
                server.kill()
