"""Messages of servers have the names of the processes."""

from microshard.hostlib.mongo_topology import name_processes


def test_an_address_is_named_once_and_not_for_another_that_begins_like_it() -> None:
    processes = [
        {"name": "shard01-1", "host": "host1", "address": "10.0.0.1", "port": 2710},
        {"name": "shard02-1", "host": "local", "address": "127.0.0.1", "port": 27100},
    ]
    message = "110.0.0.1:2710, 10.0.0.1:27101 and 10.0.0.1:2710 failed, 10.0.0.1:2710 again; 127.0.0.1:27100 is there"
    assert name_processes(message, processes) == (
        "110.0.0.1:2710, 10.0.0.1:27101 and 10.0.0.1:2710 (shard01-1 on host1) failed, 10.0.0.1:2710 again; "
        "127.0.0.1:27100 (shard02-1) is there"
    )
