"""Parts of a phase, executed by engines that begin together as those of several client hosts do, and merged."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.model.result import PhaseResult
from microshard.records import codec
from microshard.workloads import recording
from microshard.workloads.base import find_engine
from tests.cluster.workloads.mongods import Mongod, Started, execute, load, query, start_job

pytestmark = pytest.mark.cluster
NAMESPACE = "lab.parts"
LOAD = load(namespace=NAMESPACE, documents=7_001, batch_size=100, processes=3)


def phase(engine: str, kind: str = "measure", **keys: Any) -> dict[str, Any]:
    return {"name": "it", "kind": kind, "engine": engine, "parameters": {"namespace": NAMESPACE, **keys}}


def traffic(**keys: Any) -> dict[str, Any]:
    loaded = {"threads": 3, "processes": 3, "documents": 3_001, "batch_size": 50, "document_bytes": 400, "reads": 0.2}
    return phase("traffic", "load", load={**loaded, **keys})


@pytest.fixture
def mongod(shared_mongod: Mongod) -> Iterator[Mongod]:
    """One for all tests here, each with an empty collection."""
    yield shared_mongod
    with shared_mongod.client() as client:
        client.lab.parts.drop()


def alone(folder: Path, mongod: Mongod, phase: dict[str, Any]) -> PhaseResult:
    """The phase by one client host."""
    folder.mkdir()
    code, result, errors = start_job(folder, [mongod], phase).finish()
    assert (code, errors) == (0, "")
    return codec.decode(PhaseResult, result["phases"][0])


def together(
    folder: Path,
    mongod: Mongod,
    phase: dict[str, Any],
    hosts: int,
    meanwhile: Callable[[list[Started]], None] = lambda _: None,
) -> tuple[PhaseResult, dict[str, PhaseResult]]:
    """The phase by several client hosts, as the role workload has it executed: merged, and each part."""
    point = {"id": "p01", "shards": 0, "topology": "standalone", "cores": 2, "processes": [mongod.info]}
    job = {"connection_string": f"mongodb://127.0.0.1:{mongod.port}/", "point": point | {"collections": []}}
    running: dict[str, Started] = {}
    for index in range(hosts):
        (folder / f"c{index}").mkdir(parents=True)
        part = {"part": {"index": index, "of": hosts}, "start_at": "file", "phases": [phase]}
        running[f"c{index}"] = execute(folder / f"c{index}", job | part)
    signals = {host: started.out.with_suffix("") / phase["name"] for host, started in running.items()}
    deadline = time.monotonic() + 30
    while not all((path / "ready").exists() for path in signals.values()):
        assert time.monotonic() < deadline
        assert all(started.process.poll() is None for started in running.values())
        time.sleep(0.02)
    ready = {host: json.loads((path / "ready").read_text()) for host, path in signals.items()}
    start = max(one["server_time"] for one in ready.values()) + 0.5
    for host, path in signals.items():
        (path / "part").write_text(str(round((start + ready[host]["clock_offset"]) * 1000)))
        (path / "part").rename(path / "start")
    meanwhile([*running.values()])
    parts = {}
    for host, started in running.items():
        _, result, errors = started.finish()
        assert result, errors
        parts[host] = codec.decode(PhaseResult, result["phases"][0])
    (folder / "after").mkdir()
    _, result, _ = execute(folder / "after", job | {"after": True, "phases": [phase]}).finish()
    after = codec.decode(PhaseResult, result["phases"][0])
    return find_engine(phase["engine"]).merge(parts, after), parts


def contents(mongod: Mongod) -> str:
    """The digest of all documents in the collection, which is dropped."""
    with mongod.client() as client:
        digest: str = client.lab.command("dbHash")["collections"]["parts"]
        client.lab.parts.drop()
    return digest


def counted(phase: PhaseResult) -> dict[str, int]:
    return {name: one.count for name, one in phase.latency.items()}


@pytest.mark.parametrize(
    ("loaded", "hosts"),
    [
        pytest.param(LOAD, 2, marks=pytest.mark.long, id="insert by 2"),
        pytest.param(LOAD, 3, id="insert by 3"),
        pytest.param(traffic(), 2, marks=pytest.mark.long, id="traffic by 2"),
        pytest.param(traffic(), 3, id="traffic by 3"),
        pytest.param(traffic(rate=400, batch_size=100), 2, id="traffic at a rate"),
    ],
)
def test_several_hosts_load_exactly_the_documents_of_one(
    mongod: Mongod, tmp_path: Path, loaded: dict[str, Any], hosts: int
) -> None:
    one = alone(tmp_path / "alone", mongod, loaded)
    documents = contents(mongod)
    merged, parts = together(tmp_path / "together", mongod, loaded, hosts)
    assert merged.error is None
    assert contents(mongod) == documents
    same = ("documents", "bytes", "errors")
    assert {k: merged.counters.get(k) for k in same} == {k: one.counters.get(k) for k in same}
    assert all(part.counters["documents"] > 0 for part in parts.values())
    assert merged.storage is not None
    assert one.storage is not None
    assert merged.storage.documents() == one.storage.documents()
    assert merged.metric is not None
    assert merged.metric.value == merged.counters["documents"] / (merged.ended - merged.started)
    assert [figure.name for figure in merged.figures] == [figure.name for figure in one.figures]
    assert counted(merged)["INSERT"] == sum(counted(part)["INSERT"] for part in parts.values())
    starts = [part.started for part in parts.values()]
    assert max(starts) - min(starts) < 0.25
    assert {"clock_offset"} == set(merged.details)


@pytest.mark.parametrize("hosts", [pytest.param(2, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("rate", [None, 60.0])
def test_several_hosts_query_as_one_and_their_histograms_are_added(
    mongod: Mongod, tmp_path: Path, hosts: int, rate: float | None
) -> None:
    alone(tmp_path / "load", mongod, LOAD)
    measured = query(namespace=NAMESPACE, connections=3, iterations=4, rate=rate)
    one = alone(tmp_path / "alone", mongod, measured)
    merged, parts = together(tmp_path / "together", mongod, measured, hosts)
    assert merged.error is None
    assert merged.answer_sha256 == one.answer_sha256
    assert merged.counters == one.counters == {"queries": 12, "errors": 0}
    assert len(merged.samples) == len(one.samples) == 12
    if rate is not None:
        raw = recording.merge(recording.decode(p.latency["AGGREGATE"].histogram or "") for p in parts.values())
        assert merged.latency["AGGREGATE"] == recording.latency(raw)
        loop = merged.open_loop["AGGREGATE"]
        assert (loop.rate, loop.operations) == (60, one.open_loop["AGGREGATE"].operations)


@pytest.mark.parametrize("hosts", [pytest.param(2, marks=pytest.mark.long), 3])
def test_several_hosts_read_and_write_at_the_rates_of_one(mongod: Mongod, tmp_path: Path, hosts: int) -> None:
    alone(tmp_path / "load", mongod, LOAD)
    keys: dict[str, Any] = {"duration_seconds": 2.0, "warm_up_seconds": 0.5, "read_preference": "primary"}
    reading = phase("readers", threads=3, rate=150, writers=1, write_rate=200, write_batch=10, **keys)
    one = alone(tmp_path / "alone", mongod, reading)
    merged, parts = together(tmp_path / "together", mongod, reading, hosts)
    assert merged.error is None
    for name in ("READ", "UPDATE"):
        assert merged.open_loop[name].operations == pytest.approx(one.open_loop[name].operations, abs=4)
        assert counted(merged)[name] == sum(counted(part).get(name, 0) for part in parts.values())
    assert merged.metric is not None
    assert merged.metric.value == merged.latency["Intended-READ"].percentiles["95"] / 1000
    assert [figure.name for figure in merged.figures] == [figure.name for figure in one.figures]


def test_a_client_host_that_stands_still_is_named_and_its_part_is_not_made_up(mongod: Mongod, tmp_path: Path) -> None:
    alone(tmp_path / "load", mongod, LOAD)

    def pause(running: list[Started]) -> None:
        time.sleep(1.5)
        os.kill(running[1].process.pid, signal.SIGSTOP)
        time.sleep(3.0)
        os.kill(running[1].process.pid, signal.SIGCONT)

    reading = phase("readers", threads=2, duration_seconds=6.0, warm_up_seconds=0.0, read_preference="primary")
    merged, parts = together(tmp_path / "together", mongod, reading, 2, pause)
    assert parts["c0"].error is None
    assert merged.error is not None
    assert merged.error.type == "ClientPaused"
    assert merged.error.message.startswith("c1: this client host stood still for ")
