import re

import pytest
from pydantic import BaseModel

from microshard.experiment.errors import DefinitionError
from microshard.experiment.reference import braced, key_text, known_part, reference_text
from microshard.experiment.shape import EXPERIMENT, KeyShape, descriptions

TEXT = reference_text()


def models(shape: KeyShape) -> set[type[BaseModel]]:
    inner = [*shape.keys().values(), *shape.variants.values(), *shape.options, *([shape.item] if shape.item else [])]
    return ({shape.model} if shape.model else set()).union(*map(models, inner))


def test_every_key_of_every_model_has_a_row_with_its_meaning() -> None:
    for model in models(EXPERIMENT):
        meanings = descriptions(model)
        for key in model.model_fields:
            meaning = meanings.get(key)
            assert meaning, f"{model.__name__}.{key} says nothing"
            assert re.search(rf"^\| `{key}` \|.*\| {re.escape(meaning)} \|$", TEXT, re.MULTILINE), key


def test_every_link_leads_to_a_heading() -> None:
    headings = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    anchors = [re.sub(r"[^a-z0-9_ -]", "", h.lower()).replace(" ", "-") for h in headings]
    assert len(set(anchors)) == len(anchors)
    links = re.findall(r"\]\(#([^)]+)\)", TEXT)
    assert len(links) > 40
    assert set(links) <= set(anchors)


def test_a_row_shows_type_unit_range_default_and_meaning() -> None:
    assert "| `size_gib` | whole number | GiB | 1 to 65536 | `100` | Size of the volume. |" in TEXT
    assert "| `processes` | whole number or word | \N{EN DASH} | 1 to 256; `auto` | `auto` | Loader processes;" in TEXT
    assert "| `kind` | word | \N{EN DASH} | `standalone`, `replica_set`, `sharded` | `sharded` | Kind of" in TEXT


def test_a_mapping_that_stands_at_many_places_is_reported_once() -> None:
    assert TEXT.count("\n## Volume\n") == 1
    assert (
        "At `infrastructure.{shard_hosts,other_shard_hosts,config_hosts,mongos_hosts,client_hosts}"
        ".volumes.{data,journal,log}`." in TEXT
    )


def test_paths_are_drawn_together_only_where_that_names_them_alone() -> None:
    assert braced(["a.x.c", "a.y.c"]) == ["a.{x,y}.c"]
    assert braced(["a.x", "b.y"]) == ["a.x", "b.y"]
    assert braced(["a.x", "b.y.z"]) == ["a.x", "b.y.z"]


def test_every_table_has_the_same_number_of_cells_in_each_row() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|")]
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {8}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("topology.shards.count", "  whole number, 1 to 1024, default 1. Number of shards;"),
        ("topology.shards", "  members: whole number or list of mapping, 1 to 7; 1 to 50 entries, default 1. Mem"),
        ("workload.0.load.documents", "  Insert phase: whole number or null, 1 to 10000000000, default null."),
        ("workload.measure", "Readers phase: Read documents by `_id` with many clients"),
        ("topology.mongod.setParameter.ttlMonitorEnabled", "  mapping of any value, default {}. Any"),
        ("infrastructure.shard_hosts.volumes.data.size_gib", "  whole number in GiB, 1 to 65536, default 100. Size"),
    ],
)  # fmt: skip
def test_a_key_is_looked_up(key: str, said: str) -> None:
    lines = key_text(key).splitlines()
    assert lines[0] == key
    assert any(line.startswith(said) for line in lines), lines


@pytest.mark.parametrize(
    ("key", "known", "said"),
    [
        ("topology.shrds.count", "topology", "`topology` has no key `shrds`; did you mean `shards`?"),
        ("topology.shards.count.x", "topology.shards.count", "`topology.shards.count` has no key `x`"),
        ("zzz", "", "no key `zzz` at the top level; there are budget, client"),
    ],
)
def test_a_key_that_does_not_exist_is_refused_with_the_nearest(key: str, known: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(said)):
        key_text(key)
    assert known_part(key) == known
