"""A run travels: exported, imported elsewhere, run again from its lock, and compared."""

from __future__ import annotations

import json

import pytest

from tests.cluster.run.conftest import Cli


@pytest.mark.long
def test_a_colleague_gets_the_run_and_takes_it_again(cli: Cli) -> None:
    experiment = cli.write(
        topology={"kind": "standalone", "storage": {"cache": {"policy": "host_total_mb", "value": 256}}}, matrix={}
    )
    assert cli.run("run", experiment)[0] == 0
    (mine,) = cli.runs.iterdir()
    bundle = cli.folder / "mine.tgz"
    assert cli.run("export", "-o", bundle)[0] == 0
    mine.rename(cli.folder / "away")
    code, output = cli.run("import", bundle)
    assert code == 0, output
    arrived = cli.runs / mine.name
    assert str(cli.folder) not in (arrived / "lock.json").read_text()
    lock = arrived / "experiment.lock.yml"
    lock.write_text(lock.read_text().replace("kernel: ", "kernel: other-"))
    code, output = cli.run("run", lock)
    assert code == 0, output
    assert output.count("not as in the lock:") == 1, "the same machine but for the kernel"
    assert "not as in the lock: host.kernel: other-" in output
    (again,) = (path for path in cli.runs.iterdir() if path.name != mine.name)
    code, output = cli.run("compare", mine.name, again.name, "--json", "--tolerance", "90%")
    assert code == 0, output
    (found,) = json.loads(output)
    assert [row["other_answer"] for row in found["rows"]] == [False]
    assert found["environment"] == []
