import io
import weakref

import pytest
from rich.console import Console

from microshard.model.plan import Inputs
from microshard.model.result import Metric, PhaseResult, StepResult
from microshard.plan.build import build_plan
from microshard.plan.render import duration
from microshard.records.run_folder import RunFolder
from microshard.run.progress import Progress
from tests.unit.plan.conftest import experiment, points


def _result(point, value):
    phase = PhaseResult(metric=Metric("query time", "s", value))
    return StepResult(point=point, step="r1", purpose="measure", phases=[phase])


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


class WeakResult(StepResult):
    """A result that can be referred to weakly."""


def test_of_results_only_what_is_shown_is_kept_and_a_point_is_done_after_its_repetitions(tmp_path):
    base = experiment()
    plan = build_plan(base, points(base, [1]), Inputs(cores=2))
    console = Console(file=io.StringIO(), width=100)
    progress = Progress(RunFolder.create(tmp_path, "sample"), plan, console)
    for step in plan.steps:
        result = WeakResult(phases=_result(step.point, 1.25).phases * 2)  # an experiment may measure twice in a step
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
def test_durations_are_reported_in_words(seconds, words):
    assert duration(seconds) == words
