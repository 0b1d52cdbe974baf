from typing import Any

import pytest
from ansible.module_utils.common.yaml import yaml_load

from tests.cluster.ansible.points import Layout
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
    real = configs(Layout("sharded", shards=1), lambda v: v["microshard_run"]["bin"].update(embedded=False))
    assert "setParameter" not in real["mongos1"]


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


def test_another_engine_gets_no_wiredtiger_cache(configs: Render) -> None:
    config = configs(Layout(options={"storage": {"engine": "inMemory"}}))["mongod1"]
    assert "wiredTiger" not in config["storage"]


def test_the_passthrough_is_merged_last_and_section_by_section(configs: Render) -> None:
    options = {
        "storage": {"directoryPerDB": True},
        "systemLog": {"verbosity": 1, "logRotate": "rename"},
        "setParameter": {"ttlMonitorEnabled": False},
    }
    config = configs(Layout(options=options))["mongod1"]
    assert config["storage"]["directoryPerDB"] is True
    assert config["storage"]["dbPath"].endswith("/data")
    assert config["systemLog"]["verbosity"] == 1
    assert config["systemLog"]["logRotate"] == "rename"
    assert config["setParameter"] == {"shutdownTimeoutMillisForSignaledShutdown": 0, "ttlMonitorEnabled": False}


def test_a_parameter_old_servers_do_not_know_is_left_out_for_them(configs: Render) -> None:
    config = configs(Layout(), lambda v: v["microshard_run"]["bin"].update(version="4.4.29"))["mongod1"]
    assert "setParameter" not in config


def test_every_file_says_whose_it_is_and_why_it_is_so(texts: Texts) -> None:
    for name, text in texts(Layout("sharded", shards=1)).items():
        assert text.startswith(f"# {name} of point p01: a ")
        assert "\n# One address of the host and no unix socket" in text
        assert list(yaml_load(text))
        assert "\n\n\n" not in text
