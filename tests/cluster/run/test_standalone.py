"""Runs that travel, runs at the same time, and experiments whose values look like templates."""

import json

import pytest

from tests.cluster.run.conftest import STANDALONE, Cli

pytestmark = pytest.mark.cluster


@pytest.mark.long
def test_a_colleague_gets_the_run_and_takes_it_again(cli: Cli) -> None:
    assert cli.run("run", cli.write(topology=STANDALONE, matrix={}))[0] == 0
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


def test_templates_in_an_experiment_reach_mongod_as_they_are(cli: Cli) -> None:
    trap = f"{{{{ lookup('ansible.builtin.pipe', 'touch {cli.folder}/trapped') }}}}"
    path = cli.write(
        title=trap,
        topology=STANDALONE,
        workload=[
            {"load": {"engine": "insert", "documents": 2000, "seed": 7}},
            {"measure": {"engine": "aggregate", "pipeline": [{"$match": {"_id": {"$gte": 0}}},
                                                             {"$group": {"_id": trap, "n": {"$sum": 1}}}]}},
        ],
        matrix={},
        repetitions=1,
    )  # fmt: skip
    code, output = cli.run("run", path)
    assert code == 0, output
    assert not (cli.folder / "trapped").exists()
    (result,) = cli.results().values()
    assert trap in json.dumps(result).replace("\\\\", "\\"), "the answer names the template, unevaluated"


@pytest.mark.long
def test_two_runs_at_once_do_not_disturb_one_another_and_neither_lets_itself_be_disturbed(cli: Cli) -> None:
    path = cli.write(topology=STANDALONE, matrix={}, repetitions=1)
    first = cli.start("run", path)
    cli.wait_for(lambda: "run started" in cli.folders[0].journal.path.read_text())
    second = cli.start("run", path)
    cli.wait_for(lambda: len(cli.folders) == 2 and "run started" in cli.folders[1].journal.path.read_text())
    name = cli.folders[1].run_id
    for command in (("down", name), ("rm", "--yes", name), ("resume", name)):
        code, output = cli.run(*command)
        assert code == 4, output
        assert f"{name} is being executed by process {second.pid}" in output
    code, output = cli.run("gc", "--on", "local")
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
