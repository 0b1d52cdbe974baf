"""What the report says about a run that is whole, partly failed, damaged or still going."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from microshard.analysis.bootstrap import Estimate
from microshard.analysis.report_model import PhaseFigures, ReportModel
from microshard.analysis.scaling import Refused, UslFit
from microshard.errors import RunFolderError
from microshard.report import build, tables
from microshard.report import format as fmt
from tests.report.make_run import REFERENCE, Shape, make_run, tear


def texts(model: ReportModel, level: str) -> str:
    return "\n".join(notice.text for notice in model.notices if notice.level == level)


def figures(model: ReportModel, number: int) -> PhaseFigures:
    """The main figures of a point, by its place."""
    return model.figures(model.points[number])


def known(estimate: Estimate | None) -> float:
    assert estimate is not None
    return estimate.value


def change_results(run: Path, change: Callable[[dict[str, Any]], object], which: str = "*/*") -> None:
    """Change the last phase of result files."""
    for path in (run / "results").glob(f"{which}.json"):
        result = json.loads(path.read_text())
        change(result["phases"][-1])
        path.write_text(json.dumps(result))


def add_event(run: Path, **event: Any) -> None:
    with (run / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({"t": 1, **event}) + "\n")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ReportModel:
    return build(make_run(tmp_path_factory.mktemp("whole")))


def test_a_whole_run_has_all_points_complete_and_no_warning(whole: ReportModel) -> None:
    assert [(p.x, p.state, p.answers) for p in whole.points] == [(n, "done", "equal") for n in (1, 2, 4, 8, 16)]
    assert whole.complete
    assert (whole.axis, whole.axis_label) == ("topology.shards.count", "shards")
    assert (whole.main, whole.load, whole.embedded) == ("measure", "load", True)
    assert {notice.level for notice in whole.notices} == {"note"}


def test_what_the_plan_has_estimated_stands_beside_what_it_took(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(shards=(1, 2), repetitions=1, drift=False))
    plan = json.loads((run / "plan.json").read_text())
    plan["assumptions"] = ["insert: 22,000 documents/s"]
    for point in plan["points"]:
        point |= {"deploy_seconds": 4.0, "load_seconds": 100.0, "measure_seconds": 50.0}
    (run / "plan.json").write_text(json.dumps(plan))
    for seconds in (6.0, 8.0, 30.0):
        add_event(run, event="stage", stage="deploy", step=0, seconds=seconds)
    model = build(run)
    (table,) = [each for each in tables.of(model) if each.id == "estimates"]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["deployment: estimated, s"], row["deployment: took, s"]) == ("4.00", "8.00")
    assert row["deployment: took / estimated"] == "2.00"
    load, took = model.points[0].took(loading=True), model.points[0].took(loading=False)
    assert load
    assert took
    assert row["load: took / estimated"] == fmt.number(load / 100)
    assert (row["repetition: took, s"], row["repetition: estimated, s"]) == (fmt.number(took), "50.0")
    assert table.rows[1][2] == fmt.NONE, "what was not recorded is not guessed"
    assert table.note == "Medians. Assumed: insert: 22,000 documents/s."


def test_median_speed_up_and_efficiency_are_against_the_smallest_point(whole: ReportModel) -> None:
    first, third = figures(whole, 0), figures(whole, 2)
    assert known(first.speed_up) == 1.0
    assert sorted(third.values)[1] == known(third.estimate)
    speed = known(third.speed_up)
    assert speed == pytest.approx(known(first.estimate) / known(third.estimate))
    assert known(third.efficiency) == pytest.approx(speed / 4)
    assert known(third.efficiency_of_cores) == pytest.approx(speed / 2)  # two cores for four shards


def test_cpu_is_split_by_kind_and_by_role(whole: ReportModel) -> None:
    cpu, roles = figures(whole, 1).cpu, figures(whole, 1).roles
    assert cpu is not None
    assert cpu.user + cpu.sys + cpu.iowait + cpu.idle == pytest.approx(1.0)
    assert list(roles) == ["client", "router", "shards", "config", "others"]
    assert roles["router"] == pytest.approx(0.04)  # mongos1 and mongos1/router


def test_published_values_become_speed_ups_and_shares_that_add_up(whole: ReportModel) -> None:
    values = [row["value"] for row in REFERENCE["points"]]  # type: ignore[index]
    assert [p.published_speed_up for p in whole.points] == pytest.approx([values[0] / value for value in values])
    assert whole.distance is not None
    assert whole.distance.bias < 1
    published = whole.published()
    assert published is not None
    for cpu in (row.cpu for row in published.points):
        assert cpu is not None
        assert cpu.user + cpu.sys + cpu.iowait + cpu.idle == pytest.approx(1.0)


def test_scaling_is_fitted_over_four_sizes_or_more(whole: ReportModel, tmp_path: Path) -> None:
    assert isinstance(whole.usl, UslFit)
    assert 2 < known(whole.usl.knee) < 8
    assert build(make_run(tmp_path, Shape(shards=(1, 2, 4)))).usl == Refused("needs 4 sizes, has 3")


def test_drift_step_is_no_repetition(whole: ReportModel) -> None:
    assert [len(figures(whole, n).values) for n in range(5)] == [3] * 5
    assert sum(m.purpose == "drift" for p in whole.points for m in p.phases["measure"].measurements) == 1


def test_a_failed_point_is_an_error_and_the_others_stay(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(failed_point=8)))
    assert [p.state for p in model.points] == ["done", "done", "done", "failed", "done"]
    assert "8 shards: r1: measure: shard05 on local closed" in texts(model, "error")
    assert [p.shards for p in model.points if model.figures(p).speed_up] == [1, 2, 4, 16]


def test_when_the_smallest_point_failed_the_next_one_is_the_base_and_that_is_said(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(failed_point=1)))
    assert known(figures(model, 1).speed_up) == 1.0
    assert "against 2 shards" in texts(model, "warning")


def test_another_answer_is_an_error_and_its_value_is_not_counted(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(wrong_answer=4)))
    assert [p.answers for p in model.points] == ["equal", "equal", "differs", "equal", "equal"]
    assert (model.points[2].state, len(figures(model, 2).values)) == ("partial", 2)
    assert "4 shards gave another answer than most measurements (r2)" in texts(model, "error")


def test_answers_to_different_questions_are_not_compared(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(repetitions=2, wrong_answer=4))
    plan = json.loads((run / "plan.json").read_text())
    for point in plan["points"]:
        point["phases"][0]["parameters"]["documents"] = point["shards"] * 1000
        change_results(run, lambda phase, name=point["id"]: phase.update(answer_sha256=name), f"{point['id']}/*")  # type: ignore[misc]
    (run / "plan.json").write_text(json.dumps(plan))
    assert {p.answers for p in build(run).points} == {"equal"}


def test_a_torn_result_is_named_and_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    tear(run, "p03", "r2")
    (run / "journal.jsonl").write_text('{"event": "run ended"}\n{"event": "st')
    model = build(run)
    assert "results/p03/r2.json: not a whole JSON file" in texts(model, "error")
    assert "journal.jsonl:2" in texts(model, "error")
    assert len(figures(model, 2).values) == 2


@pytest.mark.parametrize("name", ["plan.json", "lock.json", "journal.jsonl"])
def test_a_missing_file_costs_only_what_it_says(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path)
    (run / name).unlink()
    assert len(build(run).measured()) == 5


@pytest.mark.parametrize("content", ["[]", "{", "null", '{"phases": 7}', '{"phases": [{"metric": {"value": "fast"}}]}'])
def test_a_result_of_any_content_does_not_stop_the_report(tmp_path: Path, content: str) -> None:
    run = make_run(tmp_path)
    (run / "results" / "p01" / "r1.json").write_text(content)
    assert len(build(run).points) == 5


def test_a_run_that_is_still_going_and_one_that_was_stopped_say_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(steps=7))
    model = build(run)
    assert not model.complete
    assert "7 of 16 measurements are there: the run is still going" in texts(model, "warning")
    assert {p.state for p in model.points} == {"partial"}
    add_event(run, event="stopped", signal=2)
    assert "the run was stopped" in texts(build(run), "warning")


def test_a_run_without_any_result_has_points_that_wait(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(steps=0)))
    assert {p.state for p in model.points} == {"waiting"}
    assert model.main is None


def test_a_point_that_failed_before_any_result_has_its_reason_from_the_journal(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(failed_point=16))
    for path in (run / "results" / "p05").glob("*.json"):
        path.unlink()
    add_event(run, event="point failed", point="p05", message="port taken\nlog")
    model = build(run)
    assert model.points[4].state == "failed"
    assert "16 shards: port taken" in texts(model, "error")
    assert "log" not in texts(model, "error")


def test_one_repetition_has_no_interval_and_a_note(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(repetitions=1, drift=False)))
    assert [estimate.interval for _, _, estimate in model.measured()] == [None] * 5
    assert "one repetition has no interval" in texts(model, "note")


def test_without_telemetry_and_reference_the_rest_is_there(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(telemetry=False, reference=False)))
    assert (model.published(), model.distance, figures(model, 0).cpu, figures(model, 0).roles) == (None, None, None, {})
    assert model.points[0].storage is not None


@pytest.mark.parametrize(
    ("shape", "warning"),
    [
        (Shape(drift_factor=1.4, spread=0), "repeated at the end, was 40 % higher"),
        (Shape(spread=0.2), "4 shards: spread 61 %"),
        (Shape(others=0.7), "2 shards: background CPU load of 0.7 of 2 cores"),
    ],
)
def test_what_makes_figures_doubtful_is_warned_of(
    whole: ReportModel, tmp_path: Path, shape: Shape, warning: str
) -> None:
    assert warning in texts(build(make_run(tmp_path, shape)), "warning")
    assert warning not in texts(whole, "warning")


def test_of_a_phase_of_milliseconds_the_background_load_is_unknown(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(others=0.7))
    change_results(run, lambda phase: phase.update(ended=phase["started"] + 0.003))
    model = build(run)
    assert "background CPU load" not in texts(model, "warning")
    assert "others" not in figures(model, 1).roles


def test_a_client_that_takes_the_cores_is_warned_of(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    change_results(run, lambda p: p.update(client_cpu_seconds=1.9 * (p["ended"] - p["started"])), "p02/*")
    assert "2 shards: the client itself used 1.9 of 2 cores" in texts(build(run), "warning")


def test_size_on_disk_comes_from_a_phase_that_knows_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    change_results(run, lambda phase: phase.update(storage=None))  # only the load looked
    assert all(p.storage is not None and p.storage.data > 30e6 for p in build(run).points)


def test_a_second_axis_makes_series_each_with_its_own_base(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(second_axis=("4 KiB", "8 KiB"))))
    assert model.series == ("block size 4 KiB", "block size 8 KiB")
    assert [known(model.figures(model.of(series)[0]).speed_up) for series in model.series] == [1.0, 1.0]


def test_many_notices_that_say_the_same_are_summed_up(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(second_axis=tuple(f"{n} KiB" for n in range(1, 9)), failed_point=8))
    # The last two failed for another reason.
    for path in sorted(path for path in run.glob("results/*/*.json") if "signal 9" in path.read_text())[-6:]:
        path.write_text(path.read_text().replace("closed the connection (signal 9)", "has no room left"))
    model = build(run)
    errors = [notice.text for notice in model.notices if notice.level == "error"]
    failed = [point.label for point in model.points if point.state == "failed"]
    assert len(failed) == 8
    assert len(errors) == 5
    assert errors[2].endswith("of " + ", ".join(failed[2:6]))
    assert [label in text and "no room" in text for label, text in zip(failed[6:], errors[3:], strict=True)] == [
        True
    ] * 2


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError):
        build(tmp_path)


def test_the_verdict_of_a_point_is_that_of_most_of_its_measurements(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for step, name in (("r1", "cache"), ("r2", "client"), ("r3", "client")):
        change_results(run, lambda phase, name=name: phase["verdict"].update(name=name), f"p03/{step}")  # type: ignore[misc]
    model = build(run)
    verdict = figures(model, 2).verdict
    assert verdict is not None
    assert (verdict.name, verdict.votes, verdict.of) == ("client", 2, 3)
    assert (verdict.runner_up, verdict.runner_up_holds) == ("cache", True)
    assert "98 % busy" in verdict.sentence
    assert "the client was the bottleneck" in texts(model, "warning")


def test_a_measurement_taken_again_counts_once_and_its_first_attempt_is_listed(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(repeated=2))
    model = build(run)
    point = model.points[1]
    assert (point.state, point.done, point.planned, len(figures(model, 1).values)) == ("done", 3, 3, 3)
    (entry,) = point.invalid
    assert (entry.step, entry.outcome) == ("r2", "measured again as r2-2: valid")
    assert entry.reasons == ("measure: 3 operations ended in an error",)
    assert model.complete
    path = run / "results" / "p02" / "r2-2.json"  # stayed invalid: given up, never averaged in
    path.write_text(json.dumps(json.loads(path.read_text()) | {"valid": False, "problems": ["still"]}))
    point = build(run).points[1]
    assert (point.state, point.done, len(point.phases["measure"].values)) == ("partial", 3, 2)
    assert [entry.outcome for entry in point.invalid] == ["measured again as r2-2: not valid either", "given up"]
