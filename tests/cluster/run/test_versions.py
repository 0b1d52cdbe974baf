"""What changed between the versions that Python packages carry, on real servers; docs/experiments/versions.md.

Read without a driver: none speaks to all of them.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from microshard.backends.local import port_block
from microshard.experiment.server_versions import PACKAGED
from microshard.hostlib import wire
from tests.cluster.run.conftest import Cli
from tests.packaged import packaged

pytestmark = pytest.mark.cluster

MEASURED = [version for version in PACKAGED if version != "4.2.6"]  # PyMongo 4.20 speaks to 4.4 and newer


class Server:
    """A mongod of some version, a member of the set rs0."""

    def __init__(self, folder: Path, version: str, port: int, *options: str) -> None:
        self.version, self.port, self.log = version, port, folder / f"{port}.log"
        data = folder / str(port)
        data.mkdir(parents=True)
        self.command = [str(packaged(version)), "--replSet", "rs0", "--port", str(port), "--dbpath", str(data)]
        self.command += ["--bind_ip", "127.0.0.1", "--nounixsocket", "--logpath", str(self.log), "--logappend"]
        self.command += ["--wiredTigerCacheSizeGB", "0.25", "--setParameter", "enableTestCommands=1", *options]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until(lambda: self.ask(ping=1)["ok"] == 1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, database: str = "admin", **command: Any) -> dict[str, Any]:
        return wire.command("127.0.0.1", self.port, {**command, "$db": database}, timeout=10)

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until it holds; while nothing answers it does not."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
            except OSError:
                pass
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")[-2000:]
            assert time.monotonic() < deadline, self.ask(replSetGetStatus=1)
            time.sleep(0.05)

    def initiate(self) -> None:
        """Make it the primary of a set of its own."""
        members = [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]
        assert self.ask(replSetInitiate={"_id": "rs0", "members": members})["ok"] == 1
        self.until(lambda: bool(self.ask(isMaster=1).get("ismaster")))


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[Server] = []
    with port_block(2) as first:  # apart from those of tests that run beside these

        def begin(version: str, *options: str) -> Server:
            servers.append(Server(tmp_path, version, first + len(servers), *options))
            return servers[-1]

        yield begin
        for server in servers:
            server.kill()


@pytest.fixture(scope="module", params=PACKAGED)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The primary of a set of its own, of each version; only read, or written into collections of a test's own."""
    with port_block(1) as port:
        started = Server(tmp_path_factory.mktemp("server"), request.param, port)
        try:
            started.initiate()
            yield started
        finally:
            started.kill()


def test_the_default_write_concern_is_majority_from_5_0_on(server: Server) -> None:
    if server.version >= "4.4":
        server.until(lambda: bool(server.ask(getDefaultRWConcern=1)["ok"]))
    answer = server.ask(getDefaultRWConcern=1)
    assert answer.get("defaultWriteConcern", {}).get("w") == ("majority" if server.version >= "5.0" else None)


def test_tickets_are_128_until_6_0_and_nothing_adjusts_them(server: Server) -> None:
    tickets = server.ask(serverStatus=1)["wiredTiger"]["concurrentTransactions"]
    assert [tickets[kind]["totalTickets"] for kind in ("read", "write")] == [128, 128]
    # The algorithm of 7.0 and its parameter: manual, "WiredTiger Storage Engine", Transaction Concurrency.
    assert server.ask(getParameter=1, storageEngineConcurrencyAdjustmentAlgorithm=1)["ok"] == 0


def test_how_the_range_deleter_deletes_by_default(server: Server) -> None:
    """Whole ranges on 6.0, before 128 at a time (0 on 4.4 stands for its default): SERVER-61637, DOCS-15059."""
    found = server.ask(getParameter=1, rangeDeleterBatchSize=1, rangeDeleterBatchDelayMS=1)
    sizes = {"4.2.6": 0, "4.4.2": 0, "5.0.4": 128, "6.0.5": 2**31 - 1, "6.0.27": 2**31 - 1}
    assert (found["rangeDeleterBatchSize"], found["rangeDeleterBatchDelayMS"]) == (sizes[server.version], 20)


def test_the_slot_based_engine_groups_on_6_0_5_alone(server: Server) -> None:
    """explainVersion is 2 for the slot-based engine and 1 for the classic one; unknown to 4.4 and before."""
    assert server.ask("lab", insert="things", documents=[{"_id": 1}])["ok"] == 1
    group = {"aggregate": "things", "pipeline": [{"$group": {"_id": "$a"}}], "cursor": {}}
    plan = server.ask("lab", explain=group, verbosity="queryPlanner")
    assert plan.get("explainVersion") == {"5.0.4": "1", "6.0.5": "2", "6.0.27": "1"}.get(server.version)


def test_an_initial_sync_copies_documents_and_not_files(server: Server) -> None:
    method = server.ask(getParameter=1, initialSyncMethod=1)
    # Manual, "Replica Set Data Synchronization": by file copy from 5.2 on, MongoDB Enterprise only.
    assert method.get("initialSyncMethod") == ("logical" if server.version >= "6.0" else None)


# Names of fail points of every version here: the sync waits before it copies, and before it ends.
BEFORE_COPYING, BEFORE_THE_END = "initialSyncHangBeforeCopyingDatabases", "initialSyncHangBeforeFinish"


@pytest.mark.long
@pytest.mark.parametrize("version", PACKAGED)
def test_an_initial_sync_survives_a_restart_of_its_source_from_4_4_on(start: Start, version: str) -> None:
    source = start(version)
    source.initiate()
    documents = [{"_id": n, "text": "x" * 1000} for n in range(500)]
    assert source.ask("lab", insert="things", documents=documents)["n"] == 500
    points = [f"failpoint.{name}={{mode: 'alwaysOn'}}" for name in (BEFORE_COPYING, BEFORE_THE_END)]
    member = start(version, *(word for point in points for word in ("--setParameter", point)))

    def waits(point: str) -> bool:
        return f"{point} fail point enabled" in member.log.read_text(encoding="utf-8")

    members = [{"_id": 0, "host": f"127.0.0.1:{source.port}"}]
    members += [{"_id": 1, "host": f"127.0.0.1:{member.port}", "priority": 0, "votes": 0}]
    known = source.ask(replSetGetConfig=1)["config"]["version"]
    assert source.ask(replSetReconfig={"_id": "rs0", "version": known + 1, "members": members})["ok"] == 1
    member.until(lambda: waits(BEFORE_COPYING))
    source.process.terminate()  # in order: killed by SIGKILL here, it made the attempt fail on every version
    source.process.wait()
    source.start()
    source.until(lambda: bool(source.ask(isMaster=1).get("ismaster")))
    assert member.ask(configureFailPoint=BEFORE_COPYING, mode="off")["ok"] == 1
    member.until(lambda: waits(BEFORE_THE_END))
    # Manual of 4.4, "Replica Set Data Synchronization", Fault Tolerance.
    failed = member.ask(replSetGetStatus=1, initialSync=1)["initialSyncStatus"]["failedInitialSyncAttempts"]
    assert (failed == 0) == (version >= "4.4"), failed
    assert member.ask(configureFailPoint=BEFORE_THE_END, mode="off")["ok"] == 1
    member.until(lambda: bool(member.ask(isMaster=1).get("secondary")))
    counted = member.ask("lab", count="things", **{"$readPreference": {"mode": "secondary"}})
    assert counted["n"] == 500


@pytest.mark.long
@pytest.mark.parametrize("kind", ["standalone", "replica_set"])
def test_a_driver_of_its_own_measures_4_2_with_the_answers_of_4_4(cli: Cli, kind: str) -> None:
    for version in ("4.2.6", "4.4.2"):
        packaged(version)
    mot, members = "vosa.mot_results", {"replica_set": {"members": [{}, {"initial": False}]}}
    readers = {"engine": "readers", "namespace": mot, "threads": 2, "writers": 1, "read_preference": "primary"}
    later = [{"measure": {"engine": "initial_sync", "time_limit_seconds": 120}, "name": "sync"}]
    path = cli.write(
        topology={
            "kind": kind,
            "storage": {"cache": {"policy": "per_process_mb", "value": 256}},
            **(members if kind == "replica_set" else {}),
        },
        workload=[
            {"load": {"engine": "insert", "documents": 5000, "seed": 7}},
            {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 2}, "name": "greenness"},
            {"measure": readers | {"duration_seconds": 2, "warm_up_seconds": 1}, "name": "readers"},
            *(later if kind == "replica_set" else []),
        ],
        matrix={"zip": {"topology.mongodb.version": ["4.2", "4.4"], "client.driver": ["pymongo==3.13", None]}},
        repetitions=1,
    )
    code, output = cli.run("run", path)
    assert code == 0, output
    old, new = (cli.results()[f"p0{n}/r1"] for n in (1, 2))
    assert [(r["versions"], r["driver"]) for r in (old, new)] == [
        (["4.2.6"], "PyMongo 3.13.0"),
        (["4.4.2"], f"PyMongo {pymongo.version}"),
    ]
    assert old["valid"]
    assert new["valid"]
    answers = [[phase["answer_sha256"] for phase in result["phases"]] for result in (old, new)]
    assert answers[0] == answers[1]
    assert answers[0][1]


@pytest.mark.long
def test_versions_are_an_axis_and_all_points_count(cli: Cli) -> None:
    for version in MEASURED:
        packaged(version)
    topology = {"kind": "replica_set", "storage": {"cache": {"policy": "host_total_mb", "value": 256}}}
    path = cli.write(topology=topology, matrix={"topology.mongodb.version": MEASURED}, repetitions=1)
    code, output = cli.run("run", path)
    assert code == 0, output
    results = cli.results().values()
    assert {result["versions"][0] for result in results} == set(MEASURED)
    assert all(result["valid"] for result in results)
