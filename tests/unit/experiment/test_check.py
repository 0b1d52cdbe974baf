import datetime

import pytest
from pydantic import BaseModel

from microshard.experiment.shape import EXPERIMENT, KeyShape, model_keys
from microshard.model.experiment import Experiment
from tests.unit.experiment.lab import BASE, Lab

# Parts of BASE; what is changed in them, and how the one headline begins that comes of it.
NAME, SHARDS, LOAD = "name: base", "shards: {count: 2}", "{engine: insert, documents: 100}"
DOCUMENTS, COLLECTIONS = "documents: 100", "[{namespace: vosa.mot_results, shard_key: {_id: 1}}]"

WRONG = {
    "unknown key with a near one": (NAME, "nam: base", "2:1: nam: unknown key; did you"),
    "unknown key that lives elsewhere": (
        SHARDS,
        "shards: {count: 2}\n  chunk_size_mb: 64",
        "5:3: topology.chunk_size_mb",
    ),
    "unknown key far from all": ("{count: 2}", "{zzz: 2}", "4:12: topology.shards.zzz: unknown key"),
    "missing key in a mapping": (LOAD, "{engine: aggregate}", "7:5: workload.0.load.pipeline"),
    "missing key in an item of a list": (
        COLLECTIONS,
        "[{namespace: vosa.mot_results}]",
        "5:17: topology.collections.0.shard_key",
    ),
    "missing engine": (LOAD, "{documents: 100}", "7:5: workload.0.load.engine: missing;"),
    "mistyped engine key": ("engine: insert", "engien: insert", "7:12: workload.0.load.engien: unknown"),
    "unknown engine": ("engine: insert", "engine: insrt", '7:20: workload.0.load.engine: found the text "insrt",'),
    "key of another engine": ("documents: 100}", "documents: 100, pipeline: p}", "7:44: workload.0.load.pipeline"),
    "quoted number": ("count: 2", 'count: "2"', '4:19: topology.shards.count: found the text "2",'),
    "number with underscores": (DOCUMENTS, "documents: 1_000", "7:39: workload.0.load.documents: found the"),
    "fraction for a whole number": ("count: 2", "count: 2.0", "4:19: topology.shards.count: found the"),
    "number out of range": ("count: 2", "count: 1025", "4:19: topology.shards.count: found the"),
    "true for a number": ("count: 2", "count: true", "4:19: topology.shards.count: found true, needs"),
    "nothing": ("count: 2", "count: ", "4:12: topology.shards.count: found nothing (null), needs"),
    "a list for a number": ("count: 2", "count: [2]", "4:19: topology.shards.count: found a list of"),
    "a number for a mapping": (SHARDS, "shards: 2", "4:11: topology.shards: found the"),
    "a mapping for a list": (COLLECTIONS, "{namespace: vosa.mot_results}", "5:16: topology.collections"),
    "yes for true": (DOCUMENTS, "documents: 100, ordered: yes", "7:53: workload.0.load.ordered: found the"),
    "quoted true": (DOCUMENTS, 'documents: 100, ordered: "true"', "7:53: workload.0.load.ordered: found the"),
    "number or word": (DOCUMENTS, "documents: 100, processes: atuo", "7:55: workload.0.load.processes: found"),
    "number or word, out of range": (DOCUMENTS, "documents: 100, processes: 0", "7:55: workload.0.load.processes"),
    "text or list, wrong item": ("pipeline: p", "pipeline: [{$count: n}, 3]", "8:58: workload.1.measure.pipeline.1"),
    "text or list, neither": ("pipeline: p", "pipeline: 3", "8:44: workload.1.measure.pipeline: found the"),
    "wrong key of a mapping": (
        DOCUMENTS,
        "documents: 100, write_concern: {W: 1}",
        "7:60: workload.0.load.write_concern.W",
    ),
    "wrong word in a mapping": ("{_id: 1}", "{_id: Hashed}", "5:64: topology.collections.0.shard_key._id: found the"),
    "quoted number among words": ("{_id: 1}", '{_id: "1"}', "5:64: topology.collections.0.shard_key._id: found the"),
    "text that breaks its pattern": (
        "namespace: vosa.mot_results",
        "namespace: vosa",
        "5:29: topology.collections.0.namespace",
    ),
    "our own rule on a key": (
        "{_id: 1}}",
        "{a: 1}, presplit: {policy: key_ranges}}",
        "5:76: topology.collections.0.presplit",
    ),
    "our own rule on a missing key": (SHARDS, "mongodb: {source: path}", "4:12: topology.mongodb.path"),
    "our own rule on a mapping": ("- load: {engine: insert, documents: 100}", "- name: x", "7:5: workload.0: exactly"),
    "our own rule on the whole": ("measure:", "warm_up:", "7:3: workload: no measure phase, so"),
    "a wrong version of the format": ("microshard: 1", "microshard: 2", "1:13: microshard: found the"),
    "a version as a number": (SHARDS, "mongodb: {version: 6.10}", "4:22: topology.mongodb.version"),
    "one thing where a list is meant": (SHARDS, "network: {compressors: zlib}", "4:26: topology.network.compressors"),
    "a word in capitals": (SHARDS, "storage: {engine: WIREDTIGER}", "4:21: topology.storage.engine"),
    "a date that is none": (NAME, "name: base\nreproduces: {title: x, date: 2015-02-30}", "3:30: reproduces.date"),
    "a timestamp for a date": (
        NAME,
        "name: base\nreproduces: {title: x, date: 2015-07-03T10:00:00Z}",
        "3:30: reproduces.date",
    ),
    "on among mongod's options": (
        SHARDS,
        "mongod: {setParameter: {quiet: on}}",
        "4:34: topology.mongod.setParameter.quiet",
    ),
    "a date in a pipeline": (
        "pipeline: p",
        "pipeline: [{$match: {d: {$gte: 2015-07-03}}}]",
        "8:65: workload.1.measure.pipeline.0.$match.d.$gte",
    ),
    "a volume's rule with its figures": (
        NAME,
        "name: base\ninfrastructure: {shard_hosts: {volumes: {data: {type: io1, size_gib: 10, iops: 501}}}}",
        "3:80: infrastructure.shard_hosts.volumes.data.iops",
    ),
    "a value with its unit": (SHARDS, "storage: {oplog_size_mb: 5}", "4:28: topology.storage.oplog_size_mb"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_reported_with_place_found_and_allowed(lab: Lab, case: str) -> None:
    old, new, expected = WRONG[case]
    assert old in BASE
    (found,) = lab.wrong(BASE.replace(old, new))
    assert found.startswith(f"x.yml:{expected}")


def test_all_problems_of_a_file_are_reported_at_once(lab: Lab) -> None:
    text = (
        BASE.replace("base", "Base").replace("count", "cuont").replace("100", "x").replace("pipeline: p", "cache: hot")
    )
    assert [f.split(": ")[:2] for f in lab.wrong(text)] == [
        ["x.yml:2:7", "name"],
        ["x.yml:4:12", "topology.shards.cuont"],
        ["x.yml:7:39", "workload.0.load.documents"],
        ["x.yml:8:5", "workload.1.measure.pipeline"],
        ["x.yml:8:41", "workload.1.measure.cache"],
    ]


def test_quoted_text_in_free_places_is_taken_as_text(lab: Lab) -> None:
    loaded = lab.load(BASE.replace("shards: {count: 2}", "mongod: {setParameter: {a: 'on', b: \"2015-07-03\"}}"))
    assert loaded.experiment.topology.mongod == {"setParameter": {"a": "on", "b": "2015-07-03"}}


def test_text_that_looks_like_something_else_is_text_where_text_is_meant(lab: Lab) -> None:
    assert lab.load(BASE + "title: 2015-07-03\n").experiment.title == "2015-07-03"


def test_dates_are_read_with_and_without_quotes(lab: Lab) -> None:
    for date in ("2015-07-03", '"2015-07-03"'):
        reproduces = lab.load(f"{BASE}reproduces: {{title: x, date: {date}}}\n").experiment.reproduces
        assert reproduces is not None
        assert reproduces.date == datetime.date(2015, 7, 3)
    reproduces = lab.load(f"{BASE}reproduces: {{title: x, date: 2017}}\n").experiment.reproduces
    assert reproduces is not None
    assert reproduces.date == 2017


def test_a_whole_number_does_where_a_fraction_may_stand(lab: Lab) -> None:
    assert lab.load(BASE + "budget: {max_hours: 4}\n").experiment.budget.max_hours == 4


def test_thousands_of_wrong_keys_do_not_each_search_for_a_name(lab: Lab) -> None:
    problems = lab.problems(BASE + "".join(f"nmae{i}: 1\n" for i in range(5000)))
    assert 100 <= len(problems) <= 200


def test_no_message_speaks_the_language_of_the_library(lab: Lab) -> None:
    words = ("pydantic", "http", "validation error", "Input should", "[type=")
    for old, new, _ in WRONG.values():
        assert not [f for f in lab.wrong(BASE.replace(old, new)) if any(w in f for w in words)]


def test_every_pattern_is_explained_in_words() -> None:
    """Patterns are for machines: a text with one must say in words what it allows."""
    definitions = Experiment.model_json_schema()["$defs"]
    definitions["Experiment"] = Experiment.model_json_schema()
    models = {m.__name__: m for m in {Experiment} | _submodels(EXPERIMENT)}
    silent = []
    for name, model in models.items():
        for key, node in definitions[name]["properties"].items():
            has_pattern = any("pattern" in option for option in (node, *node.get("anyOf", ())))
            if has_pattern and not model_keys(model)[key].allowed_text:
                silent.append(f"{name}.{key}")
    assert silent == []
    assert "Collection" in models


def _submodels(shape: KeyShape) -> set[type[BaseModel]]:
    inner = [*shape.keys().values(), *shape.variants.values(), *shape.options, *([shape.item] if shape.item else [])]
    own = {shape.model} if shape.model else set()
    return own.union(*map(_submodels, inner))
