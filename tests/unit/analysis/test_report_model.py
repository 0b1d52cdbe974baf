import json
from pathlib import Path

import pytest

from microshard.analysis.report_model import ReportModel
from microshard.analysis.scaling import Refused, UslFit
from microshard.errors import RunFolderError
from microshard.report import build
from tests.report.make_run import REFERENCE, Shape, make_run, tear


def texts(model: ReportModel, level: str) -> str:
    return "\n".join(notice.text for notice in model.notices if notice.level == level)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ReportModel:
    return build(make_run(tmp_path_factory.mktemp("whole")))


def test_a_whole_run_has_all_points_complete_and_no_warning(whole: ReportModel) -> None:
    assert [p.state for p in whole.points] == ["done"] * 5
    assert [p.x for p in whole.points] == [1, 2, 4, 8, 16]
    assert whole.complete
    assert (whole.axis, whole.axis_label, whole.main, whole.load) == (
        "topology.shards.count",
        "shards",
        "measure",
        "load",
    )
    assert {notice.level for notice in whole.notices} == {"note"}
    assert {p.answers for p in whole.points} == {"equal"}
    assert whole.embedded is True


def test_median_speed_up_and_efficiency_are_against_the_smallest_point(whole: ReportModel) -> None:
    first, third = whole.figures(whole.points[0]), whole.figures(whole.points[2])
    assert first is not None
    assert third is not None
    assert first.speed_up is not None
    assert first.speed_up.value == 1.0
    assert first.estimate is not None
    assert third.estimate is not None
    assert sorted(third.values)[1] == third.estimate.value
    assert third.speed_up is not None
    assert third.speed_up.value == pytest.approx(first.estimate.value / third.estimate.value)
    assert third.efficiency is not None
    assert third.efficiency.value == pytest.approx(third.speed_up.value / 4)
    assert third.efficiency_of_cores is not None
    assert third.efficiency_of_cores.value == pytest.approx(third.speed_up.value / 2)  # two cores for four shards


def test_cpu_is_split_by_kind_and_by_role(whole: ReportModel) -> None:
    figures = whole.figures(whole.points[1])
    assert figures is not None
    assert figures.cpu is not None
    assert figures.cpu.user + figures.cpu.sys + figures.cpu.iowait + figures.cpu.idle == pytest.approx(1.0)
    assert list(figures.roles) == ["client", "router", "shards", "config", "others"]
    assert figures.roles["router"] == pytest.approx(0.04)  # mongos1 and mongos1/router


def test_published_values_become_speed_ups(whole: ReportModel) -> None:
    published = [row["value"] for row in REFERENCE["points"]]  # type: ignore[index]
    assert [p.published_speed_up for p in whole.points] == pytest.approx([published[0] / value for value in published])
    assert whole.distance is not None
    assert whole.distance.bias < 1


def test_published_cpu_shares_add_up_to_one_where_the_source_rounds(whole: ReportModel) -> None:
    published = whole.published()
    assert published is not None
    for row in published.points:
        assert row.cpu is not None
        assert row.cpu.user + row.cpu.sys + row.cpu.iowait + row.cpu.idle == pytest.approx(1.0)


def test_scaling_is_fitted_over_the_shards(whole: ReportModel) -> None:
    assert isinstance(whole.usl, UslFit)
    assert whole.usl.knee is not None
    assert 2 < whole.usl.knee.value < 8


def test_drift_step_is_no_repetition(whole: ReportModel) -> None:
    for point in whole.points:
        figures = whole.figures(point)
        assert figures is not None
        assert len(figures.values) == 3
    assert sum(m.purpose == "drift" for p in whole.points for m in p.phases["measure"].measurements) == 1


def test_a_failed_point_is_an_error_and_the_others_stay(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(failed_point=8)))
    point = model.points[3]
    assert point.state == "failed"
    assert model.figures(point) is not None
    assert "no valid measurement of 8 shards: r1: measure: shard05 on local closed" in texts(model, "error")
    assert [p.state for p in model.points if p is not point] == ["done"] * 4
    assert [p.shards for p in model.points if (f := model.figures(p)) and f.speed_up] == [1, 2, 4, 16]


def test_when_the_smallest_point_failed_the_next_one_is_the_base_and_that_is_said(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(failed_point=1)))
    two = model.figures(model.points[1])
    assert two is not None
    assert two.speed_up is not None
    assert two.speed_up.value == 1.0
    assert "against 2 shards" in texts(model, "warning")


def test_another_answer_is_an_error_and_its_value_is_not_counted(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(wrong_answer=4)))
    point = model.points[2]
    figures = model.figures(point)
    assert figures is not None
    assert (point.answers, point.state, len(figures.values)) == ("differs", "partial", 2)
    assert "4 shards gave another answer than most measurements (r2)" in texts(model, "error")
    assert {p.answers for p in model.points if p is not point} == {"equal"}


def test_answers_to_different_questions_are_not_compared(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(repetitions=2, wrong_answer=4))
    plan = json.loads((run / "plan.json").read_text())
    for point in plan["points"]:
        point["phases"][0]["parameters"]["documents"] = point["shards"] * 1000
    (run / "plan.json").write_text(json.dumps(plan))
    for path in (run / "results").glob("*/*.json"):
        result = json.loads(path.read_text())
        for phase in result["phases"]:
            if phase["answer_sha256"]:
                phase["answer_sha256"] = path.parent.name
        path.write_text(json.dumps(result))
    assert {p.answers for p in build(run).points} == {"equal"}


def test_a_torn_result_is_named_and_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    tear(run, "p03", "r2")
    model = build(run)
    assert "results/p03/r2.json: not a whole JSON file" in texts(model, "error")
    figures = model.figures(model.points[2])
    assert figures is not None
    assert len(figures.values) == 2


@pytest.mark.parametrize("name", ["plan.json", "lock.json", "journal.jsonl"])
def test_a_missing_file_costs_only_what_it_says(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path)
    (run / name).unlink()
    model = build(run)
    assert len(model.points) == 5
    assert all((f := model.figures(p)) and f.estimate for p in model.points)


@pytest.mark.parametrize("content", ["[]", "{", "null", '{"phases": 7}', '{"phases": [{"metric": {"value": "fast"}}]}'])
def test_a_result_of_any_content_does_not_stop_the_report(tmp_path: Path, content: str) -> None:
    run = make_run(tmp_path)
    (run / "results" / "p01" / "r1.json").write_text(content)
    assert len(build(run).points) == 5


def test_a_run_that_is_still_going_says_so(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(steps=7)))
    assert not model.complete
    assert "7 of 16 measurements are there: the run is still going, or it was killed" in texts(model, "warning")
    assert {p.state for p in model.points} == {"partial"}


def test_a_run_without_any_result_has_points_that_wait(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(steps=0)))
    assert {p.state for p in model.points} == {"waiting"}
    assert model.main is None


def test_a_stopped_run_is_reported_from_one_still_going(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(steps=7))
    with (run / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({"t": 1, "event": "stopped", "signal": 2}) + "\n")
    assert "the run was stopped" in texts(build(run), "warning")


def test_a_point_that_failed_before_any_result_has_its_reason_from_the_journal(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(failed_point=16))
    for path in (run / "results" / "p05").glob("*.json"):
        path.unlink()
    with (run / "journal.jsonl").open("a") as journal:
        journal.write(
            json.dumps({"t": 1, "event": "point failed", "point": "p05", "message": "port taken\nlog"}) + "\n"
        )
    model = build(run)
    assert model.points[4].state == "failed"
    assert "no valid measurement of 16 shards: port taken" in texts(model, "error")
    assert "log" not in texts(model, "error")


def test_one_repetition_has_no_interval_and_a_note(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(repetitions=1, drift=False)))
    for point in model.points:
        figures = model.figures(point)
        assert figures is not None
        assert figures.estimate is not None
        assert figures.estimate.interval is None
    assert "one repetition has no interval" in texts(model, "note")


def test_without_telemetry_and_reference_the_rest_is_there(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(telemetry=False, reference=False)))
    assert model.published() is None
    assert model.distance is None
    figures = model.figures(model.points[0])
    assert figures is not None
    assert figures.cpu is None
    assert figures.roles == {}
    assert model.points[0].storage is not None


def test_drift_is_warned_of(tmp_path: Path) -> None:
    warnings = texts(build(make_run(tmp_path, Shape(drift_factor=1.4, spread=0))), "warning")
    assert "repeated at the end, was 40 % higher than its median" in warnings


def test_scatter_is_warned_of(tmp_path: Path) -> None:
    warnings = texts(build(make_run(tmp_path, Shape(spread=0.2))), "warning")
    assert "4 shards: spread 61 %" in warnings


def test_a_client_that_takes_the_cores_is_warned_of(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for path in (run / "results" / "p02").glob("*.json"):
        result = json.loads(path.read_text())
        phase = result["phases"][-1]
        phase["client_cpu_seconds"] = 1.9 * (phase["ended"] - phase["started"])
        path.write_text(json.dumps(result))
    assert "2 shards: the client itself used 1.9 of 2 cores" in texts(build(run), "warning")


def test_other_programs_on_the_machine_are_warned_of(tmp_path: Path) -> None:
    quiet = build(make_run(tmp_path / "quiet"))
    assert "background" not in texts(quiet, "warning")
    model = build(make_run(tmp_path / "busy", Shape(others=0.7)))
    figures = model.figures(model.points[2])
    assert figures is not None
    assert figures.roles["others"] == pytest.approx(0.7)
    assert "4 shards: background CPU load of 0.7 of 2 cores" in texts(model, "warning")


def test_size_on_disk_comes_from_a_phase_that_knows_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for path in (run / "results").glob("*/*.json"):
        result = json.loads(path.read_text())
        result["phases"][-1]["storage"] = None  # only the load looked
        path.write_text(json.dumps(result))
    assert all(p.storage is not None and p.storage.data > 30e6 for p in build(run).points)


def test_a_second_axis_makes_series_each_with_its_own_base(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(second_axis=("4 KiB", "8 KiB"))))
    assert model.series == ("block size 4 KiB", "block size 8 KiB")
    for series in model.series:
        base = model.figures(model.of(series)[0])
        assert base is not None
        assert base.speed_up is not None
        assert base.speed_up.value == 1.0


def test_three_points_do_not_carry_a_scaling_law(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(shards=(1, 2, 4))))
    assert model.usl == Refused("needs 4 sizes, has 3")


def test_many_notices_of_one_kind_are_summed_up(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(second_axis=tuple(f"{n} KiB" for n in range(1, 9)), failed_point=8)))
    errors = [notice.text for notice in model.notices if notice.level == "error"]
    assert len(errors) == 6
    assert errors[-1] == "… and the same of 3 more points"


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError):
        build(tmp_path)


def test_the_verdict_of_a_point_is_that_of_most_of_its_measurements(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for step, name in (("r1", "cache"), ("r2", "client"), ("r3", "client")):
        path = run / "results" / "p03" / f"{step}.json"
        result = json.loads(path.read_text())
        result["phases"][-1]["verdict"]["name"] = name
        path.write_text(json.dumps(result))
    model = build(run)
    figures = model.figures(model.points[2])
    assert figures is not None
    assert figures.verdict is not None
    assert (figures.verdict.name, figures.verdict.votes, figures.verdict.of) == ("client", 2, 3)
    assert (figures.verdict.runner_up, figures.verdict.runner_up_holds) == ("cache", True)
    assert "98 % busy" in figures.verdict.sentence
    assert any("the client was the bottleneck" in notice.text for notice in model.notices)


def test_a_measurement_taken_again_counts_once_and_its_first_attempt_is_listed(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(repeated=2)))
    point = model.points[1]
    assert (point.state, point.done, point.planned, len(point.phases["measure"].values)) == ("done", 3, 3, 3)
    (entry,) = point.invalid
    assert (entry.step, entry.outcome) == ("r2", "measured again as r2-2: valid")
    assert entry.reasons == ("measure: 3 operations ended in an error",)
    assert model.complete
    assert model.steps_done == model.steps_planned


def test_a_measurement_that_stayed_invalid_is_given_up_and_never_averaged_in(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(repeated=2))
    path = run / "results" / "p02" / "r2-2.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"valid": False, "problems": ["still"]}))
    point = build(run).points[1]
    assert (point.state, point.done, len(point.phases["measure"].values)) == ("partial", 3, 2)
    assert [entry.outcome for entry in point.invalid] == ["measured again as r2-2: not valid either", "given up"]
