"""`microshard advise` with real mongods: the answer, its price, and what happens when it is stopped."""

import json
import signal

import pytest

pytestmark = pytest.mark.cluster
OPTIONS = ("--counts", "1-3", "--points", "5")


def _advice(cli):
    (folder,) = cli.folders
    return json.loads((folder / "advice.json").read_text())


@pytest.mark.long  # with a user's data in test_user_data.py
def test_a_search_ends_with_one_sentence_and_leaves_nothing(cli):
    code, output = cli.run("advise", cli.write(), *OPTIONS)
    assert code == 0, output
    advice = _advice(cli)
    assert advice["sentence"] in output
    assert "of 6 measurements of the full grid" in output  # three counts, two repetitions
    assert "matrix: {topology.shards.count: [" in output
    assert advice["count"] in {1, 2, 3}
    assert [tried["count"] for tried in advice["tried"]][:3] == [1, 2, 3]
    assert len(cli.results()) == advice["measurements"] == 5
    assert not cli.running()
    assert (cli.folders[0] / "report" / "report.html").exists()


def _judged(cli):
    """Phases of every result that the runner has judged: what is measured when the search is stopped."""
    return {name: result["phases"] for name, result in cli.results().items() if result.get("gates") is not None}


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_search_that_was_stopped_goes_on_where_it_was(cli, number):
    process = cli.start("advise", cli.write(), *OPTIONS)
    cli.wait_for(lambda: len(_judged(cli)) >= 2)
    process.send_signal(number)
    process.communicate(timeout=60)
    before = _judged(cli)
    code, output = cli.run("resume")
    assert code == 0, output
    advice = _advice(cli)
    assert advice["measurements"] == 5
    assert len(cli.results()) == 5
    for name, phases in before.items():  # what was measured is not measured again
        assert cli.results()[name]["phases"] == phases
    assert advice["sentence"] in output
    assert not cli.running()


def test_another_axis_is_searched_with_the_shard_count_within_limits(cli):
    axes = {"topology.storage.block_compressor": ["zlib", "none"], "topology.shards.count": [1, 2]}
    options = ("--points", "7", "--objective", "load time", "--max-disk", "0.9")
    code, output = cli.run("advise", cli.write(matrix=axes), *options)
    assert code == 0, output
    advice = _advice(cli)
    assert (advice["metric"], advice["count"]) == ("load time", 1)  # two shards have 300 MB of journals each
    assert {tried["setting"] for tried in advice["tried"]} == {0, 1}
    assert "1 shard, " in advice["sentence"]
    assert all("disk of" in why for why in advice["excluded"].values())
    assert len(advice["excluded"]) == 2
    assert not cli.running()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--phase", "nothing"], "load, measure"),
        (["--counts", "8-1"], "numbers of shards"),
        (["--certainty", "30%"], "50% or more"),
        (["--cost", "3"], "--on ec2"),
        (["--objective", "cost per operation"], "--on ec2"),
        (["--max-ram", "0.01"], "no point keeps the limits"),
        (["--max-p99", "5"], "reports no latency"),
    ],
)
def test_options_that_make_no_sense_are_refused(cli, arguments, word):
    code, output = cli.run("advise", cli.write(), *arguments)
    assert code == 2, output
    assert word in output
    assert not cli.folders
