import pytest

from microshard.experiment.document import Document, KeyPath, NoSuchKeyError, SourcePosition, split_key
from microshard.experiment.yaml_reader import parse

TEXT = """\
topology:
  shards: {count: 2}
workload: [{load: {documents: 1}}]
scales: {s: {topology.shards.count: 4, topology.storage.engine: mmapv1}}
"""


def document() -> Document:
    return parse("x.yml", TEXT)[0]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("topology.shards.count", ("topology", "shards", "count")),
        ("matrix.topology.shards.count", ("matrix", "axes", "topology.shards.count")),
        ("matrix.zip.topology.shards.count", ("matrix", "zip", "topology.shards.count")),
        ("matrix.include.0", ("matrix", "include", "0")),
    ],
)
def test_a_dotted_key_is_split_except_the_names_of_axes(key: str, path: KeyPath) -> None:
    assert split_key(key) == path


def test_a_value_put_elsewhere_keeps_its_position_and_the_original_is_unchanged() -> None:
    before = document()
    after = before.put(("topology", "shards", "count"), 4, ("scales", "s", "topology.shards.count"))
    assert (before.data["topology"]["shards"], after.data["topology"]["shards"]) == ({"count": 2}, {"count": 4})
    problem = after.problem_at_value(("topology", "shards", "count"), "m")
    assert (problem.line, problem.column, problem.key_path) == (4, 37, "topology.shards.count")
    assert before.problem_at_value(("topology", "shards", "count"), "m").line == 2
    assert after.problem_at_key(("topology", "shards", "members"), "m").line == 2


def test_a_mapping_created_for_a_value_is_where_the_value_is() -> None:
    after = document().put(("topology", "storage", "engine"), "mmapv1", ("scales", "s", "topology.storage.engine"))
    assert after.problem_at_key(("topology", "storage"), "m").line == 4
    assert after.position(("topology", "storage")) is None


def test_a_value_of_the_command_line_has_no_line() -> None:
    after = document().put(("workload", "0", "load", "documents"), 9, SourcePosition(0, 0))
    assert after.data["workload"] == [{"load": {"documents": 9}}]
    assert after.problem_at_value(("workload", 0, "load", "documents"), "m").file == "--set"


@pytest.mark.parametrize(("key", "word"), [("workload.7.load", "1 item"), ("workload.x", "number"), ("scales.s.a", "")])
def test_list_items_must_exist_and_mappings_are_created(key: str, word: str) -> None:
    if not word:
        assert document().put(split_key(key), 1, ("scales",)).data["scales"]["s"]["a"] == 1
        return
    with pytest.raises(NoSuchKeyError, match=word):
        document().put(split_key(key), 1, ("scales",))
