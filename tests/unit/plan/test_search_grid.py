import pytest

from microshard.experiment.load import load
from microshard.plan.search_grid import SearchError, SearchOptions, search_of
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
        ({"matrix.axes": {"topology.storage.block_compressor": ["zlib", "snappy"]}}, {}, "block_compressor"),
        ({"matrix": {"zip": {"topology.shards.count": [1, 2]}}}, {}, "zip"),
        ({"matrix": {}}, {}, "--counts"),
        ({}, {"counts": (4,)}, "two values"),
        ({}, {"phase": "nothing"}, "load, measure"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_the_reason(overrides, options, word):
    with pytest.raises(SearchError, match=word):
        search({"question": None} | overrides, **options)


def test_another_figure_than_the_metric_is_not_searched_in_silence():
    experiment = load(QUICKSTART).experiment
    assert experiment.question
    other = experiment.question.model_copy(update={"figure": "documents"})
    asking = experiment.model_copy(update={"question": other})
    with pytest.raises(SearchError, match="--phase measure takes its query time"):
        search_of(asking, SearchOptions())
    assert search_of(asking, SearchOptions(phase="measure"))[0].phase == "measure"
