"""A server's words carry the names of those whose addresses it tells."""

from microshard.hostlib.acts.mongo_topology import named


def test_an_address_is_named_once_and_not_for_another_that_begins_like_it() -> None:
    processes = [
        {"name": "shard01-1", "host": "host1", "address": "10.0.0.1", "port": 2710},
        {"name": "shard02-1", "host": "local", "address": "127.0.0.1", "port": 27100},
    ]
    told = "110.0.0.1:2710, 10.0.0.1:27101 and 10.0.0.1:2710 failed, 10.0.0.1:2710 again; 127.0.0.1:27100 is there"
    assert named(told, processes) == (
        "110.0.0.1:2710, 10.0.0.1:27101 and 10.0.0.1:2710 (shard01-1 on host1) failed, 10.0.0.1:2710 again; "
        "127.0.0.1:27100 (shard02-1) is there"
    )
