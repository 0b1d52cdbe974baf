import dataclasses

import pytest
from ruamel.yaml import YAML

from microshard.analysis.advice import advice_of, price
from microshard.model.advice import SearchRequest
from microshard.model.result import Metric, PhaseResult, StepResult, Verdict
from microshard.search.shard_count import Ended, SearchSettings

REQUEST = SearchRequest([1, 2, 3, 4, 5, 6, 7, 8], 24, 9, 5, 0.95, 0.03, 7, "measure")
FAR = {1: [10.0, 10.1, 9.9], 2: [6.0, 6.1, 5.9], 4: [5.0, 5.05, 4.95], 8: [7.0, 7.1, 6.9]}
NEAR = {1: [5.0, 6.0, 4.0], 2: [5.1, 4.1, 6.1], 4: [5.2, 6.2, 4.2]}
KNOWN = Ended("the answer is known", known=True)


def advice(values, ended=KNOWN, limits=None):
    settings = SearchSettings(tuple(REQUEST.counts), "lower", REQUEST.most, REQUEST.most_each)
    results = {}
    for count, name in (limits or {}).items():
        phase = PhaseResult(name="measure", kind="measure", verdict=Verdict(name, ""))
        results[0, count] = [StepResult(phases=[phase])]
    return advice_of(
        REQUEST,
        settings,
        {(0, count): each for count, each in values.items()},
        results,
        Metric("query time", "s", 5.0),
        ended,
    )


def test_the_sentence_has_count_gain_interval_and_limit():
    found = advice(FAR, limits={1: "none", 2: "CPU", 4: "CPU", 8: "CPU"})
    assert found.count == 4
    assert found.sentence.startswith("4 shards: 2 × one shard [1.9–2.1]")
    assert "the CPU is full there and beyond" in found.sentence
    assert "cores" in found.changes[0]


def test_a_gain_of_single_measurements_has_no_interval():
    found = advice({1: [10.0], 2: [6.0]}, Ended("2 measurements were allowed", known=False))
    assert found.sentence.startswith("2 shards: 1.7 × one shard (not repeated: no interval)")


def test_counts_that_noise_hides_are_named_and_the_fewest_is_recommended():
    found = advice(NEAR, Ended("9 measurements were allowed", known=False))
    assert found.count == 1
    assert "1 to 4 cannot be distinguished here" in found.sentence
    assert "not known to 95 %: 9 measurements were allowed" in found.sentence


def test_where_more_are_recommended_it_says_how_much_slower_the_fewest_were():
    found = advice({1: [10.0], 2: [5.3, 5.7], 4: [5.0, 4.9]}, Ended("5 measurements were allowed", known=False))
    assert (found.count, found.alike[0]) == (4, 2)
    assert "2 and 4 cannot be distinguished here (2, the fewest of them, so far 11 % slower)" in found.sentence


def test_counts_that_do_not_follow_one_another_are_listed():
    found = advice({**NEAR, 3: [9.0, 9.9, 9.5]})
    assert "1, 2 and 4 cannot be distinguished" in found.sentence


def test_more_shards_that_are_slower_are_not_recommended():
    assert advice({1: [5.0, 5.1], 2: [7.0, 7.1], 4: [9.0, 9.1]}).sentence.startswith("1 shard: more shards are slower")


@pytest.mark.parametrize(("name", "word"), [("disk IOPS", "IOPS"), ("cache", "cache"), ("router", "mongos")])
def test_what_would_change_the_answer_follows_from_the_bottleneck(name, word):
    assert word in advice(FAR, limits={4: name}).changes[0]


def test_the_sweep_that_checks_it_has_the_neighbours_and_six_repetitions():
    checked = YAML(typ="safe").load(advice(FAR).check)
    assert checked["matrix"]["topology.shards.count"] == [1, 3, 4, 5]
    assert checked["repetitions"] == 6


def test_the_price_is_that_of_the_grid_it_replaces():
    found = advice(FAR)
    found.measurements = 9
    assert price(found, "4 min") == "4 min, 9 of 24 measurements of the full grid"


ZLIB, SNAPPY = {"topology.storage.block_compressor": "zlib"}, {"topology.storage.block_compressor": "snappy"}


def two_settings(counts, values, ended=KNOWN, left=(1,)):
    request = dataclasses.replace(REQUEST, counts=counts, settings=[ZLIB, SNAPPY])
    settings = SearchSettings(tuple(counts), "lower", REQUEST.most, REQUEST.most_each)
    return advice_of(request, settings, values, {}, Metric("query time", "s", 5.0), ended, left)


def test_the_recommended_setting_is_compared_with_each_other_one_at_its_best():
    values = {(0, 1): [9.0, 9.1], (0, 2): [8.0, 8.1], (1, 1): [6.0, 6.1, 5.9], (1, 2): [3.0, 3.1, 3.05]}
    found = two_settings([1, 2], values)
    assert (found.count, found.setting, found.others[0].count) == (2, SNAPPY, 2)
    assert found.sentence.startswith("2 shards, snappy: 2 × one shard")
    assert "2.6 × zlib at its best (2 shards) [" in found.sentence
    matrix = YAML(typ="safe").load(found.check)["matrix"]
    assert matrix == {"topology.storage.block_compressor": ["snappy", "zlib"], "topology.shards.count": [1, 2]}


def test_a_dropped_setting_that_may_be_as_good_is_said():
    values = {(0, 1): [5.0, 7.0, 3.0], (1, 1): [4.9, 7.1, 3.1]}
    found = two_settings([1], values)
    assert not found.known
    assert "zlib cannot be distinguished here" in found.sentence
    assert "does not rule out zlib" in found.sentence
    assert "shard" not in found.sentence  # the count is not searched
