"""The numbers of `microshard watch`, from files of a run in every state, and the page's server."""

import dataclasses
import fcntl
import json
import os
import re
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from microshard.errors import PlaceError
from microshard.model.run_records import BackendRecord, JournalEvent
from microshard.records.run_folder import BACKEND, RunFolder, write_json
from microshard.run.live import LiveRun, Watch, prometheus
from microshard.run.live_server import LiveServer
from tests.report.make_run import Shape, make_run

# The documented format: https://prometheus.io/docs/instrumenting/exposition_formats/ (text, version 0.0.4).
SAMPLE = re.compile(r'microshard_([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (-?[0-9.e+-]+)')


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of five points of which eight steps are measured; the ninth goes on."""
    folder = RunFolder.open(make_run(tmp_path, Shape(shards=(1, 2), steps=4)))
    step = folder.plan().steps[4]
    folder.journal.append(JournalEvent("step started", step=4, point=step.point, name=step.name))
    folder.journal.append(JournalEvent("stage", stage="deploy", step=4, point=step.point, seconds=1.0))
    return folder


def look(run: RunFolder, *, processes: bool = False) -> LiveRun:
    return Watch(run, lambda _: processes).look()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own server
        return bytes(answer.read())


def telemetry(run: RunFolder, second: float) -> None:
    """A record of the host and of its mongod, added as telemetry adds them."""
    step = run.plan().steps[4]
    folder = run / "telemetry" / step.point / step.name
    folder.mkdir(parents=True, exist_ok=True)
    shard = next(p.name for p in run.plan().point(step.point).processes if p.role == "shard")
    host = {"t": second, "cpu": {"user": 0.5, "sys": 0.25}, "cores": 2, "proc": {shard: {"cpu": 1.2, "rss": 1 << 20}}}
    server = {"t": second, "process": shard, "served": {"reads": 40.0, "commands": 9.0}, "serving": {"reads": 0.2}}
    for name, record in (("host-local", host), ("server", server)):
        with (folder / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")


def test_a_run_that_goes_on(run: RunFolder) -> None:
    write_json(run / BACKEND, BackendRecord("ec2", hourly_usd=7.2))
    for second in (100.0, 101.0, 102.0):
        telemetry(run, second)
    lines = [{"phase": "load", "done": n, "of": 1000, "unit": "documents", "time": n / 50} for n in (100, 200, 300)]
    (run / "tmp").mkdir(exist_ok=True)
    (run / "tmp" / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"phase": "lo')
    watch = Watch(run, lambda _: True)
    with run.lock():
        seen = watch.look()
        telemetry(run, 103.0)
        later = watch.look()
    assert (seen.state, seen.stage, seen.done, seen.report) == ("running", "measure", 4, False)
    assert 0 < seen.share < 1
    assert seen.seconds_left is not None
    assert seen.usd_left == pytest.approx(7.2 * seen.seconds_left / 3600)
    assert seen.phase is not None
    assert seen.phase.done == 300
    assert seen.phase.rate == pytest.approx(50)
    assert seen.operations["reads"] == 40.0
    assert seen.latency["reads"] == pytest.approx(0.005)
    assert [(p.cpu, p.role) for p in seen.processes] == [(1.2, "shards")]
    assert [len(each.series["cpu"]) for each in (seen, later)] == [3, 4]
    assert "measuring" in {point.state for point in seen.points}
    assert sum(point.done for point in seen.points) == 4


@pytest.mark.parametrize(
    ("processes", "last", "state", "says"),
    [
        (True, None, "orphaned", "microshard down"),
        (False, None, "aborted", "microshard resume"),
        (False, JournalEvent("run ended", exit_code=0), "done", ""),
        (False, JournalEvent("run ended", exit_code=130), "stopped", "microshard resume"),
        (True, JournalEvent("up"), "up", "microshard down"),
    ],
)
def test_a_run_that_is_over(run: RunFolder, processes: bool, last: JournalEvent | None, state: str, says: str) -> None:
    if last is not None:
        run.journal.append(last)
    (run / "report").mkdir(exist_ok=True)
    (run / "report" / "report.html").write_text("<p>report")
    seen = look(run, processes=processes)
    assert (seen.state, seen.report, seen.phase, seen.seconds_left) == (state, True, None, None)
    assert says in seen.sentence
    assert bool(says) == bool(seen.sentence)


def test_prometheus_can_read_every_line(run: RunFolder) -> None:
    telemetry(run, 100.0)
    telemetry(run, 101.0)
    seen = look(run)
    awkward = 'two "shards" \\ and\na line'
    seen.points[0] = dataclasses.replace(seen.points[0], label=awkward)
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    kinds: dict[str, int] = {}
    for line in prometheus(seen).splitlines():
        if line.startswith("#"):
            kinds[line.split()[2]] = kinds.get(line.split()[2], 0) + 1
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        labels = dict(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', sample[2]))
        found.setdefault(sample[1], []).append((labels, float(sample[3])))
    assert set(kinds.values()) == {2}  # HELP and TYPE, once each
    assert {f"microshard_{name}" for name in found} == set(kinds)
    assert found["measurements_done"][0][1] == 4
    assert found["operations"][0] == ({"run": run.run_id, "kind": "commands"}, 9.0)
    escaped = found["point_measurements"][0][0]["point"]
    assert escaped.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\") == awkward


def test_the_page_is_behind_its_token_on_loopback(run: RunFolder) -> None:
    server = LiveServer(Watch(run, lambda _: False), prometheus_port=0)
    try:
        assert server.url.startswith("http://127.0.0.1:")
        assert server.token in server.url
        assert b"<title>microshard watch" in get(server.url)
        assert json.loads(get(f"{server.url}state"))["run"] == run.run_id
        assert b"microshard_progress_ratio" in get(server.metrics_url)
        root = server.url.removesuffix(f"{server.token}/")
        for wrong in (root, f"{root}state", f"{root}{'x' * 22}/state", f"{root}metrics", f"{server.url}../plan.json"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(wrong)
        with pytest.raises(PlaceError, match="cannot be listened on"):
            LiveServer(Watch(run, lambda _: False), port=int(server.url.split(":")[2].split("/")[0]))
    finally:
        server.close()
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", int(server.metrics_url.rsplit(":", 1)[1].split("/")[0])))


def test_who_looks_whether_a_run_is_executed_keeps_nobody_from_executing_it(run: RunFolder) -> None:
    looks = os.open(run / "held", os.O_RDONLY | os.O_CREAT)
    fcntl.flock(looks, fcntl.LOCK_SH)
    threading.Timer(0.01, os.close, [looks]).start()
    with run.lock():
        assert run.is_executed()
