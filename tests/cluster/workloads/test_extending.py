"""docs/extending.md: its examples are complete and do what the page says."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.workloads.mongods import Mongod, RunJob

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
KEYS: dict[str, Any] = {"input": {"clients": 4}, "namespace": "lab.pairs", "max_seconds": 30.0}
CLI = "from microshard.cli import main; main()"
METRIC = '{"metric": {"name": "n", "unit": "s", "value": 1, "better": "lower"}}'

Run = Callable[..., tuple[int, dict[str, Any], str]]


def phase(command: list[str], **changes: Any) -> dict[str, Any]:
    return {"name": "m", "kind": "measure", "engine": "command", "parameters": KEYS | {"command": command} | changes}


@pytest.fixture
def run(shared_mongod: Mongod, run_job: RunJob, tmp_path: Path) -> Run:
    """Run a shell script as the program."""

    def start(script: str, **changes: Any) -> tuple[int, dict[str, Any], str]:
        code, result, errors = run_job([shared_mongod], phase(["/bin/sh", "-c", script], **changes)).finish()
        return code, result["phases"][0], errors

    return start


def test_the_program_of_the_page_fills_a_result(shared_mongod: Mongod, run_job: RunJob, tmp_path: Path) -> None:
    program = tmp_path / "count.py"
    program.write_text(EXAMPLES[0])
    program.chmod(0o755)
    code, result, errors = run_job([shared_mongod], phase([str(program), "--fast"])).finish()
    assert (code, errors) == (0, "")
    (found,) = result["phases"]
    assert found["answer"] == [{"total": {"$numberLong": str(sum(range(400_000)))}}]
    assert found["counters"] == {"documents": 4, "errors": 0}
    assert found["latency"]["SUM"]["count"] == 1
    assert found["metric"]["value"] == pytest.approx(found["latency"]["SUM"]["max"] / 1e6, rel=0.05, abs=2e-6)
    assert found["samples"] == [found["metric"]["value"]]
    assert found["started"] <= found["ended"] <= found["started"] + found["seconds"]


def test_every_keyword_of_the_page_is_understood_and_no_other(run: Run) -> None:
    _, found, _ = run("echo '{\"meter\": 1}'")
    known = re.search(r"no keyword of the protocol \((.*?)\)", found["error"]["message"])
    rows = re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE)
    assert known is not None
    assert {word for row in rows for word in re.findall(r"`(\w+)`", row)} == set(known[1].split(", "))


def test_it_is_given_what_the_page_says(run: Run, shared_mongod: Mongod) -> None:
    code, found, _ = run(f'read line; echo "{{\\"answer\\": [$line]}}"; echo \'{METRIC}\'')
    assert code == 0
    (given,) = found["answer"]
    assert sorted(given) == ["axes", "connection_string", "input", "namespace", "phase", "point"]
    assert str(shared_mongod.port) in given["connection_string"]
    assert given["input"] == {"clients": {"$numberLong": "4"}}


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("echo nonsense", "BadLine", "line 1 of /bin/sh"),
        (f"echo '{METRIC}'; echo '[1]'", "BadLine", "line 2 of /bin/sh: an object"),
        ("echo '{\"meter\": 1}'", "BadLine", "'meter' is no keyword"),
        ('echo \'{"metric": {"name": "n", "unit": "s", "better": "lower"}}\'', "BadLine", "'value' is missing"),
        (METRIC.join(["echo '", "'"]).replace("lower", "best"), "BadLine", "higher or lower, not 'best'"),
        ("true", "NoMetric", "without a line with `metric`"),
        (f"echo '{METRIC}'; echo the disk is full >&2; exit 7", "CommandFailed", "exit code 7: the disk is full"),
        ('echo \'{"error": {"type": "Full", "message": "no room"}}\'', "Full", "no room"),
        ("sleep 60 & sleep 60", "TooLate", "longer than 1 s"),
    ],
)
def test_a_program_that_fails_is_reported_by_name(run: Run, script: str, kind: str, words: str) -> None:
    code, found, _ = run(script, **({"max_seconds": 1.0} if kind == "TooLate" else {}))
    assert (code, found["error"]["type"]) == (3, kind)
    assert words in found["error"]["message"]


def test_what_the_program_has_started_is_ended_with_it(run: Run, tmp_path: Path) -> None:
    code, _, _ = run(f"sleep 60 & echo $! > {tmp_path}/pid; wait", max_seconds=1.0)
    assert code == 3
    state = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in {"Z", "X"}


def test_the_engine_of_the_page_is_two_files(shared_mongod: Mongod, tmp_path: Path) -> None:
    """Put beside the others it is known to the definition and the schema, and runs."""
    # The YCSB client among the links is built by `make clients` only.
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src/microshard", tmp_path / "microshard", ignore=ignore, ignore_dangling_symlinks=True)
    (tmp_path / "microshard/model/phases/round_trip.py").write_text(EXAMPLES[1])
    (tmp_path / "microshard/workloads/round_trip.py").write_text(EXAMPLES[2])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path)

    experiment = tmp_path / "x.yml"
    text = (
        "microshard: 1\nname: x\ntopology: {kind: standalone}\nworkload: [{measure: {engine: round_trip, pings: 50}}]\n"
    )
    experiment.write_text(text)
    done = call("-c", CLI, "validate", experiment)
    assert done.returncode == 0, done.stderr
    experiment.write_text(text.replace("pings", "pngs"))
    assert "did you mean `pings`?" in call("-c", CLI, "validate", experiment).stderr
    assert "Commands in one repetition." in call("-c", CLI, "schema").stdout

    point = {"id": "p", "shards": 0, "topology": "standalone", "cores": 1, "processes": [], "collections": []}
    phases = [{"name": "m", "kind": "measure", "engine": "round_trip", "parameters": {"pings": 50}}]
    job = {"connection_string": f"mongodb://127.0.0.1:{shared_mongod.port}/", "point": point, "phases": phases}
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = call("-m", "microshard.workloads", "--job", tmp_path / "job.json", "--out", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads((tmp_path / "out.json").read_text())["phases"]
    assert found["latency"]["PING"]["count"] == found["counters"]["operations"] == 50
    assert found["metric"]["value"] == found["latency"]["PING"]["percentiles"]["50"] / 1000
