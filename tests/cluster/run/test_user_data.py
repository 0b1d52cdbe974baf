"""`microshard advise --from`: a user's own deployment, dump and queries; the deployment is only read."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.cluster.workloads.mongods import Mongod, start_mongod, stop_mongod
from tests.shop import INDEXES, NAMESPACE, archive, orders, queries

pytestmark = pytest.mark.cluster
COUNT = 3000
PASSWORD = {"root": "secret-root", "auditor": "secret-auditor", "reader": "secret-reader"}
SEARCH = ("--counts", "1-2", "--points", "4")
# Recorded queries take the place of its operations; the rest of it stays.
MIX = {
    "engine": "mix",
    "namespace": "lab.any",
    "operations": [{"filter": {}}],
    "connections": 3,
    "seconds_long": 1,
    "settle_seconds": 0.5,
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mongod]:
    """A deployment with logins: `reader` has the role read on the shop, `auditor` may read its profiler as well."""
    started = start_mongod(tmp_path_factory.mktemp("shop") / "mongod1", "--auth", "--slowms", "0", "--profile", "2")
    with started.client() as client:
        client.admin.command("createUser", "root", pwd=PASSWORD["root"], roles=["root"])
    with _as(started, "root") as client:
        client.shop.orders.insert_many(orders(COUNT))
        client.shop.orders.create_index([(name, way) for name, way in INDEXES[1]["key"].items()])
        client.shop.products.insert_one({"_id": 1})
        audit = [{"role": "read", "db": "shop"}, {"role": "clusterMonitor", "db": "admin"}]
        client.admin.command("createUser", "auditor", pwd=PASSWORD["auditor"], roles=audit)
        client.admin.command("createUser", "reader", pwd=PASSWORD["reader"], roles=audit[:1])
        for kind, wanted in queries(120):
            found = client.shop.orders.find(wanted) if kind == "find" else client.shop.orders.aggregate(wanted)
            list(found)
    yield started
    stop_mongod(started)


def _as(shop: Mongod, user: str) -> MongoClient[dict[str, Any]]:
    return MongoClient(f"mongodb://{user}:{PASSWORD[user]}@127.0.0.1:{shop.port}/?authSource=admin")


def _uri(shop: Mongod, user: str = "reader", more: str = "", *, wrong: str = "") -> str:
    return f"mongodb://{user}:{wrong or PASSWORD[user]}@127.0.0.1:{shop.port}/{NAMESPACE}?authSource=admin{more}"


def _contents(shop: Mongod) -> Any:
    """Hashes of all collections but those the server writes by itself, users and indexes."""
    with _as(shop, "root") as client:
        client.shop.command("profile", 0)
        found: dict[str, Any] = {name: client[name].command("dbHash")["collections"] for name in ("shop", "admin")}
        found["names"] = sorted(client.list_database_names()), sorted(client.shop.list_collection_names())
        found["indexes"] = client.shop.orders.index_information()
        client.shop.command("profile", 2)
        return found


def test_the_answer_for_a_deployment_and_its_log_with_the_role_read(cli: Any, shop: Mongod) -> None:
    before = _contents(shop)
    options = ("--shard-key", "state", "--shard-key", "_id", "--shard-key", "customer.id", "--hash", "customer.mail")
    log = shop.folder / "mongod.log"
    experiment = cli.write(workload=[{"measure": MIX}])
    code, output = cli.run("advise", experiment, "--from", _uri(shop), "--queries", log, *options, *SEARCH)
    assert code == 0, output
    assert _contents(shop) == before
    assert f"{COUNT:,} of {COUNT:,} documents of {NAMESPACE}" in output
    assert "120 recorded queries in 4 forms" in output
    assert "Shard key state: 4 values" in output
    assert "of the queries go to one shard" in output
    (folder,) = cli.folders
    advice = json.loads((folder / "advice.json").read_text())
    assert advice["metric"] == "throughput"
    assert advice["sentence"] in output
    assert len(cli.results()) == advice["measurements"]
    assert (folder / "report" / "report.html").exists()
    (result, *_) = cli.results().values()
    phase = result["phases"][-1]
    assert phase["ended"] - phase["started"] == pytest.approx(MIX["seconds_long"], abs=0.5)
    table = phase["table"]
    assert sum(row[1] for row in table["rows"]) == pytest.approx(100, abs=0.5)
    collection = json.loads((folder / "plan.json").read_text())["points"][0]["collections"][0]
    assert collection["namespace"] == NAMESPACE
    # The two candidates that do not leave shards idle are measured; that of the point reads is the first.
    keys = [setting["topology.collections.0.shard_key"] for setting in advice["request"]["settings"]]
    assert keys == [{"customer.id": "hashed"}, {"_id": "hashed"}]
    assert {tried["setting"] for tried in advice["tried"]} == {0, 1}
    assert not cli.running()
    copies = list((cli.runs / "data").iterdir())
    assert all(path.stat().st_mode & 0o077 == 0 for path in copies)
    kept = b"".join(path.read_bytes() for path in cli.runs.rglob("*") if path.is_file())
    for secret in (PASSWORD["reader"].encode(), b"@example.com"):
        assert secret not in kept + output.encode()


@pytest.mark.long
def test_the_answer_for_an_archive_of_mongodump_and_ones_own_pipeline(cli: Any, tmp_path: Path) -> None:
    file = archive(tmp_path / "shop.archive.gz", orders(COUNT))
    pipeline = [{"$group": {"_id": "$state", "sum": {"$sum": "$total"}}}, {"$sort": {"_id": 1}}]
    measure = {"engine": "aggregate", "namespace": NAMESPACE, "pipeline": pipeline, "iterations": 1}
    experiment = cli.write(workload=[{"load": {"engine": "insert", "documents": 10}}, {"measure": measure}])
    code, output = cli.run("advise", experiment, "--from", file, "--namespace", NAMESPACE, "--sample", "2000", *SEARCH)
    assert code == 0, output
    assert f"2,000 of {COUNT:,} documents of {NAMESPACE}" in output
    (result, *_) = cli.results().values()
    assert len(result["phases"][-1]["answer"]) == 4
    assert result["phases"][0]["counters"]["documents"] == 2000


@pytest.mark.long
def test_the_profiler_needs_more_than_read_and_gives_the_same_queries(cli: Any, shop: Mongod) -> None:
    code, output = cli.run("advise", cli.write(), "--from", _uri(shop), "--queries", "profiler", *SEARCH)
    assert (code, "the user may not do this" in output) == (4, True), output
    uri = _uri(shop, "auditor")
    code, output = cli.run(
        "advise", cli.write(workload=[{"measure": MIX}]), "--from", uri, "--queries", "profiler", *SEARCH
    )
    assert code == 0, output
    assert "recorded queries in 4 forms" in output


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"wrong": "not-it"}, "login was refused; the user was looked for in the database admin"),
        ({"more": "&ssl=perhaps"}, "not a connection string"),
        ({"more": "&connectTimeoutMS=500&serverSelectionTimeoutMS=500&replicaSet=none"}, "no server answers"),
    ],
)
def test_a_uri_that_gives_nothing_is_a_sentence(cli: Any, shop: Mongod, source: dict[str, str], words: str) -> None:
    code, output = cli.run("advise", cli.write(), "--from", _uri(shop, **source), *SEARCH)
    assert code == 4, output
    assert words in output
    assert "Traceback" not in output
    assert source.get("wrong", PASSWORD["reader"]) not in output
    assert not cli.folders


def test_a_read_that_takes_too_long_is_a_sentence(cli: Any, shop: Mongod) -> None:
    with silent_at(b"\x02find\0", shop.port) as port:
        uri = _uri(shop, more="&socketTimeoutMS=1500&directConnection=true").replace(str(shop.port), str(port))
        code, output = cli.run("advise", cli.write(), "--from", uri, *SEARCH)
    assert (code, "a read timed out" in output) == (4, True), output


@contextmanager
def silent_at(word: bytes, server: int) -> Iterator[int]:
    """The port of a way to a server that lets nothing pass any more once a client has sent this word."""
    held = threading.Event()

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if word in data:
                    held.set()
                if not held.is_set():
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, upstream = listener.accept()[0], socket.create_connection(("127.0.0.1", server))
                for pair in ((client, upstream), (upstream, client)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]


def test_an_experiment_that_measures_another_collection_is_refused(cli: Any, tmp_path: Path) -> None:
    file = archive(tmp_path / "shop.archive", orders(50))
    code, output = cli.run("advise", cli.write(), "--from", file, "--namespace", NAMESPACE, *SEARCH)
    assert code == 2, output
    assert "the experiment measures vosa.mot_results, the data is shop.orders" in output
