"""Whole runs by the command line, on real sharded clusters."""

import csv
import json
import os
import signal
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from microshard.records.run_folder import RunFolder
from tests.cluster.ansible.lab import BIN, ROOT
from tests.cluster.ansible.points import free_ports

pytestmark = pytest.mark.cluster


def _nothing_is_left(cli):
    assert cli.running() == []
    for folder in cli.folders:
        assert not (folder / "deployments").exists()
        assert not (folder / "tmp").exists()


@pytest.fixture
def temporary(monkeypatch):
    """A folder for temporary files that nothing else of this machine uses; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="ms") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def test_a_sweep_ends_in_a_report_and_leaves_nothing(cli, temporary):
    # Long enough that the samplers, once a second, see each measurement.
    measure = {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 9, "rate": 3}}
    path = cli.write(workload=[{"load": {"engine": "insert", "documents": 20000, "seed": 7}}, measure])
    code, output = cli.run("run", path)
    assert code == 0, output
    results = cli.results()
    assert sorted(results) == ["p01/r1", "p01/r2", "p02/r1", "p02/r2"]
    answers = {p["answer_sha256"] for r in results.values() for p in r["phases"] if p["kind"] == "measure"}
    assert len(answers) == 1
    loads = [p for r in results.values() for p in r["phases"] if p["kind"] == "load"]
    assert [p["counters"]["documents"] for p in loads] == [20000, 20000]
    assert len(loads[0]["storage"]["by_shard"]) + len(loads[1]["storage"]["by_shard"]) == 3
    measured = [p for r in results.values() for p in r["phases"] if p["kind"] == "measure"]
    assert all(0 <= p["telemetry"]["cpu"]["user"] <= 1 for p in measured)
    assert all(p["verdict"]["sentence"] for p in measured)
    assert all(r["environment"]["local"]["kernel"] and r["versions"] for r in results.values())
    (folder,) = cli.folders
    html = (folder / "report" / "report.html").read_text()
    assert "embedded" in html
    assert "Bottlenecks" in html
    logs = json.loads((folder / "logs" / "p02" / "summary.json").read_text())
    assert {"shard01", "shard02", "config1"} <= set(logs)
    assert all(logs[name]["elections"] == 1 and logs[name]["connections"] > 3 for name in ("shard01", "shard02"))
    with tarfile.open(folder / "logs" / "p02" / "shard01.diagnostic.tar.gz") as archive:
        assert any("diagnostic.data/metrics." in name for name in archive.getnames())
    assert list((folder / "report").glob("*.png"))
    with (folder / "report" / "figures.csv").open() as file:
        assert len(list(csv.DictReader(file))) >= 4
    assert "Report:" in output
    assert "left" in output  # the remaining time of the steps
    _nothing_is_left(cli)
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_a_measurement_that_breaks_a_gate_is_taken_again_and_then_listed(cli):
    """No two queries take the same time, so a variation of one in a million cannot be kept."""
    gates = {"max_variation": 1e-6, "max_repeats": 1}
    measure = {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 4}}
    workload = [{"load": {"engine": "insert", "documents": 5000, "seed": 7}}, measure]
    path = cli.write(gates=gates, workload=workload, matrix={"topology.shards.count": [1]}, repetitions=1)
    code, output = cli.run("run", path)
    assert code == 3, output
    assert "p01 r1-2 stayed invalid" in output
    results = cli.results()
    assert {name: result["valid"] for name, result in results.items()} == {"p01/r1": False, "p01/r1-2": False}
    assert [phase["name"] for phase in results["p01/r1-2"]["phases"]] == ["measure"], "the data is there already"
    assert [c["gate"] for c in results["p01/r1"]["gates"] if not c["held"]] == ["max_variation"]
    (folder,) = cli.folders
    ended = [record for record in folder.journal.records() if record.event == "step done"]
    assert [(record.name, record.valid) for record in ended] == [("r1", False), ("r1-2", False)]
    (point,) = json.loads((folder / "report" / "summary.json").read_text())["points"]
    assert (point["state"], point["phases"]["measure"]["values"]) == ("failed", [])
    assert [entry["outcome"] for entry in point["invalid"]] == ["measured again as r1-2: not valid either", "given up"]
    _nothing_is_left(cli)


def _listening(pid):
    """The addresses a process listens on, as the kernel writes them: hexadecimal, the least byte first."""
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    sockets = {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:")}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return [row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets]


def test_up_prints_a_connection_string_that_works_and_down_removes_everything(cli):
    from pymongo import MongoClient

    code, output = cli.run("up", cli.write(), "--point", "2 shards")
    assert code == 0, output
    uri = output.strip().splitlines()[-1]
    with MongoClient[dict[str, object]](uri, serverSelectionTimeoutMS=5000) as client:
        assert client.admin.command("hello")["msg"] == "isdbgrid"
        assert len(client.admin.command("listShards")["shards"]) == 2
        client.vosa.mot_results.insert_many([{"_id": k << 32} for k in range(2)])
        assert client.vosa.mot_results.count_documents({}) == 2
    addresses = [(process.command_line, _listening(process.pid)) for process in cli.running()]
    assert sum(bool(found) for _, found in addresses) >= 4, "two shards, a config server, the mongos"
    assert {address for _, found in addresses for address in found} == {"0100007F"}, addresses
    code, output = cli.run("status")
    assert "processes, up" in output
    assert uri in output
    assert output.count("PID") == 4
    shard = next(p for p in cli.running() if "/shard02/" in p.command_line)
    os.kill(shard.pid, signal.SIGKILL)
    cli.wait_for(lambda: not shard.is_alive())
    code, output = cli.run("status")
    assert (code, output.count("NOT RUNNING")) == (3, 1)
    for process in cli.running():
        os.kill(process.pid, signal.SIGKILL)
    cli.wait_for(lambda: not cli.running())
    code, output = cli.run("status")
    assert (code, output.count("NOT RUNNING"), "0 processes, not running" in output) == (3, 4, True), output
    code, output = cli.run("down")
    assert code == 0, output
    _nothing_is_left(cli)
    assert cli.run("status")[1].startswith("Nothing is running")


def _is_loading(cli):
    return '"load"' in (cli.folders[0] / "tmp" / "progress.jsonl").read_text()


def _is_deploying(cli):
    return list(cli.folders[0].path.glob("deployments/*/shard01/pid"))


@pytest.mark.parametrize(
    ("number", "code", "moment"),
    [
        (signal.SIGINT, 130, _is_loading),
        pytest.param(signal.SIGTERM, 143, _is_loading, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, 130, _is_deploying, marks=pytest.mark.long),
    ],
)
def test_a_signal_stops_everything(cli, number, code, moment):
    load = {"load": {"engine": "insert", "documents": 5_000_000}}
    process = cli.start(
        "run", cli.write(workload=[load, {"measure": {"engine": "aggregate", "pipeline": "mot_greenness"}}])
    )
    cli.wait_for(lambda: moment(cli))
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    assert "everything that was started is stopped" in output
    _nothing_is_left(cli)


@pytest.mark.long
def test_a_mongod_killed_while_loading_fails_its_point_by_name_and_the_others_go_on(cli):
    path = cli.write(
        workload=[
            {"load": {"engine": "insert", "documents": 150_000}},
            {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 1}},
        ],
        order={"policy": "sequential"},
        repetitions=1,
    )
    process = cli.start("run", path)
    cli.wait_for(lambda: _is_loading(cli))
    os.kill(cli.pid_of("p01", "shard01"), signal.SIGKILL)
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 3, output
    assert "1 shard failed" in output
    assert "shard01 (127.0.0.1:" in output
    assert "is not running any more" in output
    assert [name for name, r in cli.results().items() if r["valid"]] == ["p02/r1"]
    assert "p01" in (cli.folders[0] / "report" / "report.html").read_text()
    _nothing_is_left(cli)


def test_a_wrong_answer_makes_the_point_invalid_and_the_run_fail(cli):
    # Somebody changes the data between two measurements of the same point.
    path = cli.write(matrix={}, repetitions=2, topology={"kind": "standalone"})
    process = cli.start("run", path)
    cli.wait_for(lambda: list(cli.folders[0].path.glob("results/p01/r1.json")))
    from pymongo import MongoClient

    variables = json.loads((cli.folders[0] / "points" / "p01" / "vars.json").read_text())
    with MongoClient[dict[str, object]](variables["microshard_point"]["connection_string"]) as client:
        client.vosa.mot_results.delete_one({})
    output, _ = process.communicate(timeout=150)
    assert process.returncode == 3, output
    assert "the answer differs" in output
    assert [r["valid"] for r in cli.results().values()] == [True, False]
    _nothing_is_left(cli)


@pytest.mark.long
def test_a_kept_deployment_stays_and_can_be_stopped(cli):
    # Torn down and deployed again, it needs the same port twice: another run could take one of `auto` in between.
    topology = {"kind": "standalone", "network": {"base_port": free_ports(1)}}
    path = cli.write(matrix={}, repetitions=1, topology=topology, teardown="keep")
    code, output = cli.run("run", path)
    assert code == 0, output
    assert len(cli.running()) == 1
    _replay_without_the_runner(cli.folders[0])
    assert len(cli.running()) == 1
    assert cli.run("down")[0] == 0
    _nothing_is_left(cli)


def _replay_without_the_runner(run):
    """Tear down, deploy and measure what a run has left, by plain ansible-playbook with the run's own variables."""
    result = run / "results" / "p01" / "r1.json"
    answer = json.loads(result.read_text())["phases"][-1]["answer"]
    result.unlink()
    for name in ("teardown", "deploy", "measure", "resume", "deploy"):
        command = [str(BIN / "ansible-playbook"), str(ROOT / "playbooks" / f"{name}.yml")]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(run / "tmp")}
        command += ["-e", f"@{run / 'points' / 'p01' / 'vars.json'}"]
        played = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert played.returncode == 0, played.stdout
    assert "changed=0" in played.stdout  # of deploy
    assert json.loads(result.read_text())["phases"][-1]["answer"] == answer


def test_a_folder_that_is_not_ours_is_not_touched(cli, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    code, output = cli.run("down", tmp_path / "precious")
    assert code == 4
    assert "not a run of microshard" in output
    assert (tmp_path / "precious" / "file").exists()


@pytest.mark.long
def test_results_written_before_a_failure_survive_in_a_run_that_can_be_reported_again(cli):
    path = cli.write(matrix={}, repetitions=1, topology={"kind": "standalone"})
    assert cli.run("run", path)[0] == 0
    (folder,) = cli.folders
    report = folder / "report" / "report.html"
    report.unlink()
    code, output = cli.run("report", folder.run_id)
    assert code == 0, output
    assert report.exists()
    assert isinstance(RunFolder.open(folder.path), RunFolder)
    assert Path(folder.path, "lock.json").exists()
