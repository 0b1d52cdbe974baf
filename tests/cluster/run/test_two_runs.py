"""Two runs at once on one machine, and commands that would disturb one that is executed."""

from __future__ import annotations

import json

import pytest

from tests.cluster.run.conftest import Cli

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def test_two_runs_at_once_do_not_disturb_one_another_and_neither_lets_itself_be_disturbed(cli: Cli) -> None:
    topology = {"kind": "standalone", "storage": {"cache": {"policy": "host_total_mb", "value": 256}}}
    path = cli.write(topology=topology, matrix={}, repetitions=1)
    first = cli.start("run", path)
    cli.wait_for(lambda: "run started" in cli.folders[0].journal.path.read_text())
    second = cli.start("run", path)
    cli.wait_for(lambda: len(cli.folders) == 2 and "run started" in cli.folders[1].journal.path.read_text())
    name = cli.folders[1].run_id
    for command in (("down", name), ("rm", "--yes", name), ("resume", name)):
        code, output = cli.run(*command)
        assert code == 4, output
        assert f"{name} is being executed by process {second.pid}" in output
    code, output = cli.run("gc", "--on", "here")
    assert (code, output) == (0, "Nothing is left of any run.\n")
    for process in (first, second):
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output
    ports = []
    for folder in cli.folders:
        assert sorted(p.stem for p in folder.path.glob("results/*/*.json")) == ["r1"]
        assert not (folder / "deployments").exists()
        plan = json.loads((folder / "plan.json").read_text())
        ports.append({process["port"] for point in plan["points"] for process in point["processes"]})
    assert not ports[0] & ports[1]
