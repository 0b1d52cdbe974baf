import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from microshard.experiment import yaml_reader
from microshard.experiment.errors import DefinitionError
from microshard.experiment.load import build
from microshard.experiment.matrix import expand
from microshard.experiment.reference import reference_text
from microshard.experiment.schema import schema, schema_text
from tests.unit.experiment.lab import BASE, SAMPLES

jsonschema = import_module("jsonschema")  # it carries no types
ROOT = Path(__file__).parents[3]
VALIDATOR = jsonschema.Draft202012Validator(schema())


def by_schema(text: str) -> bool:
    document, problems = yaml_reader.parse("x.yml", text)
    assert problems == []
    return bool(VALIDATOR.is_valid(document.data))


def by_loader(text: str) -> bool:
    try:
        expand(build(*yaml_reader.parse("x.yml", text)))
    except DefinitionError:
        return False
    return True


@pytest.mark.parametrize(
    ("file", "made"), [("schema/experiment.schema.json", schema_text), ("docs/reference.md", reference_text)]
)
def test_the_committed_file_is_what_the_types_say_now(file: str, made: Callable[[], str]) -> None:
    assert (ROOT / file).read_text(encoding="utf-8") == made(), f"write it anew from {made.__module__}"


def test_the_schema_is_a_schema_of_its_draft() -> None:
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema())
    assert json.loads(schema_text()) == schema()


def test_every_reference_in_the_schema_leads_somewhere() -> None:
    whole = schema()

    def references(node: Any) -> list[str]:
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        own = [node["$ref"]] if isinstance(node, dict) and isinstance(node.get("$ref"), str) else []
        return own + [r for i in inner for r in references(i)]

    found = references(whole)
    assert len(found) > 100
    for reference in set(found):
        node = whole
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


@pytest.mark.parametrize("file", SAMPLES, ids=lambda p: p.stem)
def test_the_schema_accepts_every_sample(file: Path) -> None:
    data = yaml_reader.read(file)[0].data
    assert [e.message for e in VALIDATOR.iter_errors(data)] == []


# What is added to BASE; schema and loader say the same.
SAME = {
    True: [
        "title: x",
        "reproduces: {title: x, date: 2015-07-03}",
        "matrix: {topology.shards.count: [1, 2], zip: {topology.mongos.count: [1, 2]}}",
        "matrix: {axes: {topology.shards.count: [1, 2]}}",
        "matrix: {workload.0.load.documents: [1, 2], topology.mongod.setParameter.x: [1, 2]}",
        "matrix: {include: [{topology.shards: {count: 3}}]}",
        "budget: {max_hours: 4, max_cost_usd: null}",
        "scales: {laptop: {repetitions: 1}}",
        "reference: {axis: topology.mongos.count, points: [{at: x}, {at: 1.5, value: null}]}",
        "order: {seed: 9223372036854775807}",
    ],
    False: [
        "titel: x",
        "title: 3",
        "repetitions: 0",
        "repetitions: 1001",
        "repetitions: '3'",
        "repetitions: true",
        "order: {policy: any}",
        "order: {seed: -1}",
        "gates: {max_client_cpu: 0}",
        "gates: {max_client_cpu: 1.5}",
        "budget: {max_hours: '4'}",
        "teardown: never",
        "scales: {Laptop: {repetitions: 1}}",
        "scales: {laptop: 1}",
        "reference: {points: []}",
        "reference: {points: [{value: 1}]}",
        "matrix: {topology.shards.cuont: [1]}",
        "matrix: {topology.shards.count: [0]}",
        "matrix: {topology.shards.count: 1}",
        "matrix: {topology.shards.count: []}",
        "matrix: {order.seed: [1]}",
        "matrix: {repetitions: [1]}",
        "matrix: {axes: {topology.shards.count: [1]}, topology.mongos.count: [1]}",
        "matrix: {include: [{topology.shards.count: [1]}]}",
        "matrix: {exclude: {topology.shards.count: 1}}",
        "infrastructure: {shard_hosts: {volumes: {data: {type: gp5}}}}",
        "infrastructure: {shard_hosts: {kernel: {swappiness: 201}}}",
    ],
}


@pytest.mark.parametrize(("line", "right"), [(line, right) for right, lines in SAME.items() for line in lines])
def test_the_schema_says_what_the_loader_says(line: str, right: bool) -> None:
    text = f"{BASE}{line}\n"
    assert by_loader(text) is right
    assert by_schema(text) is right


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: base", ""),
        ("microshard: 1", "microshard: 2"),
        ("name: base", "name: Base"),
        ("engine: insert", "engine: insrt"),
        ("engine: insert, ", ""),
        ("documents: 100", "pipeline: p"),
        ("- load: {engine: insert, documents: 100}", "- {}"),
        ("namespace: vosa.mot_results", "namespace: vosa"),
        ("{_id: 1}", "{_id: 2}"),
        ("{_id: 1}", "{}"),
        ("documents: 100", "documents: 100, write_concern: {x: 1}"),
        ("pipeline: p", "pipeline: [1]"),
    ],
)
def test_the_schema_refuses_what_the_loader_refuses_in_the_base(old: str, new: str) -> None:
    text = BASE.replace(old, new)
    assert not by_loader(text)
    assert not by_schema(text)


def test_rules_across_keys_are_left_to_the_loader() -> None:
    """What the schema cannot say is known here, so that it is not taken for allowed."""
    for line in (
        "infrastructure: {shard_hosts: {volumes: {data: {type: io1}}}}",
        "matrix: {topology.storage.engine: [mmapv1]}",
        "matrix: {topology.shards.count: [1, 1]}",
    ):
        assert not by_loader(f"{BASE}{line}\n")
        assert by_schema(f"{BASE}{line}\n")


def test_units_and_meanings_reach_the_editor() -> None:
    size = schema()["$defs"]["Volume"]["properties"]["size_gib"]
    assert size["description"] == "Size of the volume. Unit: GiB."
    assert size["default"] == 100
    axes = schema()["$defs"]["Matrix"]["properties"]
    assert axes["topology.shards.count"]["items"] == {"$ref": "#/$defs/Shards/properties/count"}
