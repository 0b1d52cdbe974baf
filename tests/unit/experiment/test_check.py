from __future__ import annotations

import datetime

import pytest
from pydantic import BaseModel

from microshard.experiment.shape import EXPERIMENT, Shape, model_keys
from microshard.model.experiment import Experiment
from microshard.model.phases import engine_names
from tests.unit.experiment.lab import BASE, Lab

# What is changed in BASE, and the headlines that come of it.
WRONG = {
    "unknown key with a near one": (
        ("name: base", "nam: base"),
        [
            "x.yml:2:1: nam: unknown key; did you mean `name`? (allowed here: microshard, name, title, reproduces, ",
        ],
    ),
    "unknown key that lives elsewhere": (
        ("shards: {count: 2}", "shards: {count: 2}\n  chunk_size_mb: 64"),
        [
            "x.yml:5:3: topology.chunk_size_mb: unknown key; there is `topology.balancer.chunk_size_mb` "
            "(allowed here: kind"
        ],
    ),
    "unknown key far from all": (
        ("{count: 2}", "{zzz: 2}"),
        ["x.yml:4:12: topology.shards.zzz: unknown key (allowed here: count, initial, members)"],
    ),
    "missing key in a mapping": (
        ("{engine: insert, documents: 100}", "{engine: aggregate}"),
        ["x.yml:7:5: workload.0.load.pipeline: missing; needs text or a list"],
    ),
    "missing key in an item of a list": (
        ("[{namespace: vosa.mot_results, shard_key: {_id: 1}}]", "[{namespace: vosa.mot_results}]"),
        ["x.yml:5:17: topology.collections.0.shard_key: missing; needs a mapping of 1 to 32 entries"],
    ),
    "missing engine": (
        ("{engine: insert, documents: 100}", "{documents: 100}"),
        [f"x.yml:7:5: workload.0.load.engine: missing; needs one of {', '.join(engine_names())}"],
    ),
    "mistyped engine key": (
        ("engine: insert", "engien: insert"),
        ["x.yml:7:12: workload.0.load.engien: unknown key; did you mean `engine`? (allowed here: engine, "],
    ),
    "unknown engine": (
        ("engine: insert", "engine: insrt"),
        [
            f'x.yml:7:20: workload.0.load.engine: found the text "insrt", needs one of {", ".join(engine_names())}; '
            "did you mean `insert`?"
        ],
    ),
    "key of another engine": (
        ("documents: 100}", "documents: 100, pipeline: p}"),
        ["x.yml:7:44: workload.0.load.pipeline: unknown key (allowed here: engine, dataset, "],
    ),
    "quoted number": (
        ("count: 2", 'count: "2"'),
        [
            'x.yml:4:19: topology.shards.count: found the text "2", needs a whole number from 1 to 1024; '
            "remove the quotes"
        ],
    ),
    "number with underscores": (
        ("documents: 100", "documents: 1_000"),
        [
            'x.yml:7:39: workload.0.load.documents: found the text "1_000", needs a whole number from 1 to '
            "10000000000 or null; "
            "write it without underscores"
        ],
    ),
    "fraction for a whole number": (
        ("count: 2", "count: 2.0"),
        ["x.yml:4:19: topology.shards.count: found the number 2.0, needs a whole number from 1 to 1024; write 2"],
    ),
    "number out of range": (
        ("count: 2", "count: 1025"),
        ["x.yml:4:19: topology.shards.count: found the number 1025, needs a whole number from 1 to 1024"],
    ),
    "true for a number": (
        ("count: 2", "count: true"),
        ["x.yml:4:19: topology.shards.count: found true, needs a whole number from 1 to 1024"],
    ),
    "nothing": (
        ("count: 2", "count: "),
        ["x.yml:4:12: topology.shards.count: found nothing (null), needs a whole number from 1 to 1024"],
    ),
    "a list for a number": (
        ("count: 2", "count: [2]"),
        ["x.yml:4:19: topology.shards.count: found a list of 1, needs a whole number from 1 to 1024"],
    ),
    "a number for a mapping": (
        ("shards: {count: 2}", "shards: 2"),
        ["x.yml:4:11: topology.shards: found the number 2, needs a mapping"],
    ),
    "a mapping for a list": (
        ("[{namespace: vosa.mot_results, shard_key: {_id: 1}}]", "{namespace: vosa.mot_results}"),
        [
            "x.yml:5:16: topology.collections: found a mapping with namespace, "
            "needs a list of at most 1000 entries, each a mapping"
        ],
    ),
    "yes for true": (
        ("documents: 100", "documents: 100, ordered: yes"),
        [
            'x.yml:7:53: workload.0.load.ordered: found the text "yes", needs true or false; in YAML 1.2 '
            "write true or false"
        ],
    ),
    "quoted true": (
        ("documents: 100", 'documents: 100, ordered: "true"'),
        ['x.yml:7:53: workload.0.load.ordered: found the text "true", needs true or false; remove the quotes'],
    ),
    "number or word": (
        ("documents: 100", "documents: 100, processes: atuo"),
        [
            'x.yml:7:55: workload.0.load.processes: found the text "atuo", needs a whole number from 1 to 256 or auto; '
            "did you mean `auto`?"
        ],
    ),
    "number or word, out of range": (
        ("documents: 100", "documents: 100, processes: 0"),
        ["x.yml:7:55: workload.0.load.processes: found the number 0, needs a whole number from 1 to 256 or auto"],
    ),
    "text or list, wrong item": (
        ("pipeline: p", "pipeline: [{$count: n}, 3]"),
        ["x.yml:8:58: workload.1.measure.pipeline.1: found the number 3, needs a mapping"],
    ),
    "text or list, neither": (
        ("pipeline: p", "pipeline: 3"),
        [
            "x.yml:8:44: workload.1.measure.pipeline: found the number 3, needs text or a list, each a mapping; "
            'put it in quotes: "3"'
        ],
    ),
    "wrong key of a mapping": (
        ("documents: 100", "documents: 100, write_concern: {W: 1}"),
        [
            'x.yml:7:60: workload.0.load.write_concern.W: found the text "W", needs one of w, j, wtimeout; '
            "did you mean `w`?"
        ],
    ),
    "wrong word in a mapping": (
        ("{_id: 1}", "{_id: Hashed}"),
        [
            'x.yml:5:64: topology.collections.0.shard_key._id: found the text "Hashed", needs one of 1, -1, hashed; '
            "did you mean `hashed`?"
        ],
    ),
    "quoted number among words": (
        ("{_id: 1}", '{_id: "1"}'),
        [
            'x.yml:5:64: topology.collections.0.shard_key._id: found the text "1", needs one of 1, -1, '
            "hashed; remove the quotes"
        ],
    ),
    "text that breaks its pattern": (
        ("namespace: vosa.mot_results", "namespace: vosa"),
        [
            'x.yml:5:29: topology.collections.0.namespace: found the text "vosa", '
            "needs a database and a collection such as vosa.mot_results"
        ],
    ),
    "our own rule on a key": (
        ("{_id: 1}}", "{a: 1}, presplit: {policy: key_ranges}}"),
        ["x.yml:5:76: topology.collections.0.presplit: key_ranges needs the shard key {_id: 1}, not {'a': 1}"],
    ),
    "our own rule on a missing key": (
        ("shards: {count: 2}", "mongodb: {source: path}"),
        ["x.yml:4:12: topology.mongodb.path: goes with source: path, and source: path needs it"],
    ),
    "our own rule on a mapping": (
        ("- load: {engine: insert, documents: 100}", "- name: x"),
        ["x.yml:7:5: workload.0: exactly one of load, warm_up and measure, found none"],
    ),
    "our own rule on the whole": (
        ("measure:", "warm_up:"),
        ["x.yml:7:3: workload: no measure phase, so there is nothing to report"],
    ),
    "a wrong version of the format": (
        ("microshard: 1", "microshard: 2"),
        ["x.yml:1:13: microshard: found the number 2, needs 1"],
    ),
    "a version as a number": (
        ("shards: {count: 2}", "mongodb: {version: 6.10}"),
        [
            "x.yml:4:22: topology.mongodb.version: found the number 6.1, "
            'needs a version in quotes such as "6.0" or "6.0.5" or null; put it in quotes: "6.10"'
        ],
    ),
    "one thing where a list is meant": (
        ("shards: {count: 2}", "network: {compressors: zlib}"),
        [
            'x.yml:4:26: topology.network.compressors: found the text "zlib", needs a list of at most 3 entries, '
            "each one of none, snappy, zlib, zstd; for a list of one write [zlib]"
        ],
    ),
    "a word in capitals": (
        ("shards: {count: 2}", "storage: {engine: WIREDTIGER}"),
        [
            'x.yml:4:21: topology.storage.engine: found the text "WIREDTIGER", needs one of wiredTiger, '
            "mmapv1, rocksdb, "
            "tokumx, inMemory; did you mean `wiredTiger`?"
        ],
    ),
    "a date that is none": (
        ("name: base", "name: base\nreproduces: {title: x, date: 2015-02-30}"),
        ['x.yml:3:30: reproduces.date: found the text "2015-02-30", needs a date such as 2015-07-03 or null'],
    ),
    "a timestamp for a date": (
        ("name: base", "name: base\nreproduces: {title: x, date: 2015-07-03T10:00:00Z}"),
        ['x.yml:3:30: reproduces.date: found the text "2015-07-03T10:00:00Z", needs a date such as 2015-07-03 or null'],
    ),
    "on among mongod's options": (
        ("shards: {count: 2}", "mongod: {setParameter: {quiet: on}}"),
        [
            "x.yml:4:34: topology.mongod.setParameter.quiet: on is text in YAML 1.2, not true or false; "
            "write true or false, or quote it if text is meant"
        ],
    ),
    "a date in a pipeline": (
        ("pipeline: p", "pipeline: [{$match: {d: {$gte: 2015-07-03}}}]"),
        [
            "x.yml:8:65: workload.1.measure.pipeline.0.$match.d.$gte: 2015-07-03 is text in YAML 1.2, not a date; "
            "quote it if text is meant"
        ],
    ),
    "a volume's rule with its figures": (
        (
            "name: base",
            "name: base\ninfrastructure: {shard_hosts: {volumes: {data: {type: io1, size_gib: 10, iops: 501}}}}",
        ),
        [
            "x.yml:3:80: infrastructure.shard_hosts.volumes.data.iops: "
            "io1 volumes of 10 GiB take 100 to 500 IOPS, not 501"
        ],
    ),
    "a value with its unit": (
        ("shards: {count: 2}", "storage: {oplog_size_mb: 5}"),
        [
            "x.yml:4:28: topology.storage.oplog_size_mb: found the number 5, needs a whole number from 990 "
            "to 1048576, in MiB"
        ],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_told_with_place_found_and_allowed(lab: Lab, case: str) -> None:
    (old, new), expected = WRONG[case]
    assert old in BASE
    found = lab.wrong(BASE.replace(old, new))
    assert [f[: len(e)] for f, e in zip(found, expected, strict=True)] == expected


def test_all_problems_of_a_file_are_told_at_once(lab: Lab) -> None:
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


def test_a_whole_number_does_where_a_fraction_may_stand(lab: Lab) -> None:
    assert lab.load(BASE + "budget: {max_hours: 4}\n").experiment.budget.max_hours == 4


def test_thousands_of_wrong_keys_do_not_each_search_for_a_name(lab: Lab) -> None:
    problems = lab.problems(BASE + "".join(f"nmae{i}: 1\n" for i in range(5000)))
    assert 100 <= len(problems) <= 200


def test_no_message_speaks_the_language_of_the_library(lab: Lab) -> None:
    words = ("pydantic", "http", "validation error", "Input should", "[type=")
    for (old, new), _ in WRONG.values():
        assert not [f for f in lab.wrong(BASE.replace(old, new)) if any(w in f for w in words)]


def test_every_pattern_is_explained_in_words() -> None:
    """Patterns are for machines: a text with one must say in words what it asks for."""
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


def _submodels(shape: Shape) -> set[type[BaseModel]]:
    inner = [*shape.keys().values(), *shape.variants.values(), *shape.options, *([shape.item] if shape.item else [])]
    own = {shape.model} if shape.model else set()
    return own.union(*map(_submodels, inner))
