"""From keys to YCSB's properties, client by client."""

from typing import Any

import pytest

from microshard.model.phases.ycsb import YcsbParameters
from microshard.workloads.ycsb.properties import ClientSpec, client_url, divide, properties, properties_file

URI = "mongodb://127.0.0.1:1,127.0.0.1:2/"
MONGOS = ("127.0.0.1:1", "127.0.0.1:2")


def keys(**given: Any) -> YcsbParameters:
    return YcsbParameters.model_validate({"engine": "ycsb", "records": 1000, **given})


def clients(given: YcsbParameters, *, index: int = 0, of: int = 1) -> list[ClientSpec]:
    return divide(given, URI, MONGOS, index=index, of=of)


def made(given: YcsbParameters, client: ClientSpec, *, load: bool = False) -> dict[str, str]:
    return properties(given, client, load=load, start="1800000000500", seconds=65, prefix="/x/client1")


def test_key_ranges_of_a_load_are_divided_without_a_gap() -> None:
    given = keys(records=1001, clients=3, threads=8)
    found = [made(given, client, load=True) for client in clients(given)]
    assert [(p["insertstart"], p["insertcount"]) for p in found] == [("0", "333"), ("333", "334"), ("667", "334")]
    assert {p["recordcount"] for p in found} == {"1001"}
    assert [p["threadcount"] for p in found] == ["3", "3", "2"]


def test_hosts_share_the_clients_out_and_none_is_there_twice() -> None:
    given = keys(clients=5, threads=10)
    numbers = [[c.number for c in clients(given, index=host, of=2)] for host in (0, 1)]
    assert numbers == [[1, 3, 5], [2, 4]]
    assert sum(c.count for host in (0, 1) for c in clients(given, index=host, of=2)) == 1000


def test_a_client_has_a_mongos_of_its_own_or_all() -> None:
    one_each = [c.url.split("?")[0] for c in clients(keys(clients=3, threads=3, mongos="own"))]
    assert one_each == ["mongodb://127.0.0.1:1/", "mongodb://127.0.0.1:2/", "mongodb://127.0.0.1:1/"]
    assert clients(keys())[0].url.startswith(f"{URI}?")


def test_options_of_the_connection_string_are_kept_and_retries_are_off() -> None:
    url = client_url("mongodb://u:p@h:1/?replicaSet=rs0&retryReads=true", [])
    assert url.startswith("mongodb://u:p@h:1/?replicaSet=rs0&retryReads=true&")
    assert "retryWrites=false" in url
    assert url.lower().count("retryreads") == 1
    with pytest.raises(ValueError, match="connection string"):
        client_url("nonsense", [])


def test_the_authority_of_the_servers_is_a_property_and_no_option_of_the_url() -> None:
    string = "mongodb://u:p@h:1/?tls=true&tlsCAFile=%2Fa%20b%2Fca.pem"
    (client,) = divide(keys(), string, [], index=0, of=1)
    assert "tls=true" in client.url
    assert "tlsCAFile" not in client.url
    assert made(keys(), client)["mongodb.tlsCAFile"] == "/a b/ca.pem"
    assert "mongodb.tlsCAFile" not in made(keys(), clients(keys())[0])


def test_rungs_and_the_target_are_dealt_out_over_the_clients() -> None:
    given = keys(clients=3, threads="ladder", ladder={"last": 8})
    assert [c.rungs for c in clients(given)] == [(1, 1, 2, 3), (0, 1, 1, 3), (0, 0, 1, 2)]
    assert [c.threads for c in clients(given)] == [3, 3, 2]
    assert [c.target for c in clients(keys(clients=3, rate=100))] == [34, 33, 33]


def test_intended_times_are_only_requested_with_a_target() -> None:
    for target, interval in ((None, "op"), (100, "both")):
        given = keys(rate=target)
        assert made(given, clients(given)[0])["measurement.interval"] == interval


def test_a_timed_run_has_operations_enough_and_an_end_of_its_own_should_nobody_stop_it() -> None:
    given = keys()
    found = made(given, clients(given)[0])
    assert found["operationcount"] == str(2**31 - 1)  # YCSB starts no thread without any
    assert int(found["maxexecutiontime"]) > 65
    assert found["mongodb.startat"] == "1800000000500"


def test_inserts_of_all_clients_have_keys_of_their_own_and_readers_stay_in_the_load() -> None:
    given = keys(clients=2, proportions={"read": 0.5, "insert": 0.5})
    first, second = (made(given, client) for client in clients(given))
    assert int(second["recordcount"]) - int(first["recordcount"]) == 10**15
    assert int(second["recordcount"]) + 10**15 < 2**63
    assert {(p["insertstart"], p["insertcount"]) for p in (first, second)} == {("0", "1000")}


def test_further_properties_are_handed_through() -> None:
    given = keys(properties={"mongodb.upsert": True, "hotspotdatafraction": 0.1})
    found = made(given, clients(given)[0])
    assert (found["mongodb.upsert"], found["hotspotdatafraction"]) == ("true", "0.1")


def test_a_properties_file_escapes_what_java_would_read_otherwise() -> None:
    assert properties_file({"a": "x\\y=ü z"}) == "a=x\\\\y=\\u00fc z\n"
