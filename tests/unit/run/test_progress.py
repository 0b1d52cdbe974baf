import io
import weakref
from typing import Any

import pytest
from rich.console import Console

from microshard.model.plan import Inputs
from microshard.plan.build import build_plan
from microshard.plan.render import duration
from microshard.records.run_folder import RunFolder
from microshard.run.progress import Progress
from tests.unit.plan.conftest import experiment, points


def _result(point, value):
    metric = {"name": "query time", "unit": "s", "value": value, "better": "lower"}
    phases = [{"name": "measure", "kind": "measure", "metric": metric}]
    return {"point": point, "step": "r1", "purpose": "measure", "phases": phases}


def test_the_live_picture_shows_figures_remaining_time_and_where_the_run_lies(tmp_path):
    base = experiment()
    plan = build_plan(base, points(base, [1, 2]), Inputs(cores=2))
    folder = RunFolder.create(tmp_path, "sample")
    console = Console(file=io.StringIO(), width=100)
    progress = Progress(folder, plan, console)
    first = plan.steps[0]
    progress.stage(first, "deploy")
    progress.step_done(first, _result(first.point, 1.25))
    progress.stage(plan.steps[1], "measure")
    with console.capture() as captured:
        console.print(progress.render())
    text = captured.get()
    assert "1.25" in text
    assert "1 of 3" in text
    assert text.splitlines()[-1].startswith("1 of 6 measurements")
    assert "left" in text


class Result(dict[str, Any]):
    """One that can be asked whether it is still there."""


def test_of_results_only_what_is_shown_is_kept_and_a_point_is_done_after_its_repetitions(tmp_path):
    base = experiment()
    plan = build_plan(base, points(base, [1]), Inputs(cores=2))
    console = Console(file=io.StringIO(), width=100)
    progress = Progress(RunFolder.create(tmp_path, "sample"), plan, console)
    for step in plan.steps:
        result = Result(_result(step.point, 1.25), step=step.name)
        result["phases"] *= 2  # an experiment may measure twice in a step
        progress.step_done(step, result)
    there = weakref.ref(result)
    del result
    assert there() is None
    with console.capture() as captured:
        console.print(progress.render())
    assert f"{plan.repetitions} of {plan.repetitions}" in captured.get()


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")]
)
def test_durations_are_told_in_words(seconds, words):
    assert duration(seconds) == words
