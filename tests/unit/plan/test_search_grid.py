import pytest

from microshard.experiment.load import load
from microshard.model.advice import SearchLimits
from microshard.plan.search_grid import SearchError, SearchOptions, over, search_of
from microshard.this_machine import project_root

QUICKSTART = project_root() / "experiments" / "quickstart.yml"


def search(overrides=None, **options):
    return search_of(load(QUICKSTART, overrides=overrides or {}).experiment, SearchOptions(**options))


def test_every_count_between_those_of_the_matrix_is_searched_with_a_third_of_the_grid():
    request, changed = search()
    assert request.counts == list(range(1, 17))
    assert request.grid == 48
    assert request.most == 16
    assert request.phase == "measure"
    assert request.seed == 7
    assert changed["matrix"] == {"axes": {"topology.shards.count": list(range(1, 17))}}
    load(QUICKSTART, overrides=changed)  # it is an experiment


def test_options_replace_what_the_experiment_says():
    overrides = {"budget": {"max_hours": 2.0}, "gates.max_drift": 0.2, "order.repeat_first": True, "teardown": "keep"}
    request, changed = search(overrides, counts=(2, 4, 8), phase="load", points=5, hours=0.5, seed=3)
    assert (request.counts, request.phase, request.most, request.hours) == ([2, 4, 8], "load", 5, 0.5)
    assert request.seed == 3
    found = load(QUICKSTART, overrides=overrides | changed).experiment
    assert (found.teardown, found.order.repeat_first, found.gates.max_drift) == ("always", False, None)
    assert search(overrides)[0].hours == 2.0


def test_a_small_grid_may_take_what_the_bracket_needs():
    assert search(counts=(1, 2, 4))[0].most == 8


@pytest.mark.parametrize(
    ("overrides", "options", "word"),
    [
        ({"topology": {"kind": "standalone"}, "matrix": {}}, {}, "standalone"),
        ({"matrix": {"axes": {f"gates.{k}": [1, 2] for k in "abcd"}}}, {}, "3 axes"),
        ({"matrix.axes": {"order.seed": [1, 2, 3]}}, {"points": 2}, "each of the 3 settings"),
        ({}, {"objective": "latency"}, "reports no latency; there is: query time"),
        ({}, {"max_p99": 5.0}, "reports no latency"),
        ({"matrix": {"zip": {"topology.shards.count": [1, 2]}}}, {}, "zip"),
        ({"matrix": {}}, {}, "--counts"),
        ({}, {"counts": (4,)}, "two values"),
        ({}, {"phase": "nothing"}, "load, measure"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_the_reason(overrides, options, word):
    with pytest.raises(SearchError, match=word):
        search({"question": None} | overrides, **options)


def test_the_figure_of_the_question_is_searched_unless_a_phase_or_an_objective_is_given():
    experiment = load(QUICKSTART).experiment
    assert experiment.question
    other = experiment.question.model_copy(update={"figure": "load time"})
    asking = experiment.model_copy(update={"question": other})
    assert search_of(asking, SearchOptions())[0].objective == "load time"
    assert search_of(asking, SearchOptions(phase="measure"))[0].objective == ""
    assert search_of(asking, SearchOptions(objective="query time"))[0].objective == "query time"


def test_what_is_loaded_once_is_loaded_for_each_measurement_when_loading_is_searched():
    for options in ({"objective": "load time"}, {"phase": "load"}):
        changed = search(**options)[1]
        assert (changed["order.redeploy"], changed["load.image"]) == ("per_repetition", "never")
    assert "order.redeploy" not in search()[1]


def test_every_combination_of_the_other_axes_is_a_setting():
    axes = {"topology.storage.block_compressor": ["zlib", "snappy"], "client.driver": ["pymongo==4.9", "pymongo==4.8"]}
    request, changed = search({"question": None, "matrix": {"axes": axes | {"topology.shards.count": [1, 4]}}})
    assert len(request.settings) == 4
    assert request.settings[1] == {"topology.storage.block_compressor": "zlib", "client.driver": "pymongo==4.8"}
    assert request.counts == [1, 2, 3, 4]
    assert request.grid == 4 * 4 * 3
    assert request.most == max(16, 4 * 3 + 5 * 3)
    assert changed["matrix"]["axes"] == axes | {"topology.shards.count": [1, 2, 3, 4]}
    alone = search({"question": None, "matrix": {"axes": axes}, "topology.shards.count": 6})[0]
    assert alone.counts == [6]


def test_limits_are_compared_with_what_is_known():
    limits = SearchLimits(ram_gib=2.0, p99_ms=5.0)
    assert over(limits, 2.5, 9.0, None, "as planned") == "RAM of 2.5 GiB as planned, more than 2 GiB"
    assert over(limits, 1.5, None, 5.1, "measured") == "p99 of 5.1 ms measured, more than 5 ms"
    assert not over(limits, 1.5, 99.0, 4.9, "measured")
