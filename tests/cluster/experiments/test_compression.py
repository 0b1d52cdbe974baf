"""block-compression by hidden members, at tiny scale: the same data in every member, and sizes that add up."""

from typing import Any

import pytest

from tests.cluster.experiments.conftest import EXPERIMENTS, Published, words
from tests.cluster.run.conftest import Cli

pytestmark = pytest.mark.cluster
TINY: dict[str, Any] = {"matrix": {}, "workload.0.load.documents": 1500, "topology.storage.cache.value": 32}


@pytest.mark.long
@pytest.mark.experiment("block-compression-hidden")
def test_hidden_members_have_the_same_documents_in_other_sizes(published: Published) -> None:
    ((result,), _) = published.run(TINY)
    load, phase = result["phases"]
    primary, *added = phase["table"]["rows"]
    assert [row[:3] for row in added] == [
        ["rs0-2", "none", "yes"],
        ["rs0-3", "snappy", "yes"],
        ["rs0-4", "zlib", "yes"],
        ["rs0-5", "zstd", "yes"],
        ["rs0-6", "none", "no"],
    ]
    assert {row[3] for row in (primary, *added)} == {load["counters"]["documents"]} == {1500}
    figures = {figure["name"]: figure["value"] for figure in phase["figures"]}
    for row in added:
        assert row[6] == row[4] + row[5]
        label = row[1] if row[2] == "yes" else f"{row[1]} without prefixes"
        assert [row[4], row[5], row[6]] == [
            figures[f"{name}, {label}"] for name in ("data", "indexes", "data and indexes")
        ]
        # Rows are rounded to be read.
        assert 0 < row[8] <= figures["time to SECONDARY"] + 0.001 <= phase["ended"] - phase["started"] + 0.002
    assert sum(row[6] for row in added) == phase["metric"]["value"]
    assert max(row[7] for row in added) == 1
    none, snappy, zlib, zstd, without = (row[4] for row in added)
    assert max(zlib, zstd) < snappy < none
    assert without == pytest.approx(none, rel=0.02)
    # Prefixes alone make indexes small; what compresses blocks does not touch them.
    indexes = [row[5] for row in added]
    assert indexes[:4] == pytest.approx([indexes[0]] * 4, rel=0.05)
    assert indexes[4] > indexes[0]
    assert "dbHash" in phase["notes"]["verification"]


@pytest.mark.parametrize(
    ("members", "sentence"),
    [("[{}]", "needs members with initial: false"), ("[{}, {initial: false, hidden: true}]", "hidden: true, votes: 0")],
)
def test_a_set_without_members_to_weigh_is_refused(cli: Cli, members: str, sentence: str) -> None:
    settings = TINY | {"topology.replica_set.members": members}
    code, output = cli.run("run", EXPERIMENTS / "block-compression-hidden.yml", "--scale", "laptop", *words(settings))
    assert code == 2
    assert sentence in output
