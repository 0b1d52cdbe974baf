"""Optional parts of results over repetitions: merged percentiles, ladders, stages, curves; and where they are shown."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram

from microshard.analysis.measurements import measurements, phase_figures
from microshard.analysis.phase_details import PhaseDetails, phase_details
from microshard.analysis.report_model import Measurement, ReportModel
from microshard.model.result import PhaseResult
from microshard.report import build, checks, tables
from microshard.report.figures import contents
from microshard.report.output import summary, tidy_csv
from microshard.workloads import recording
from tests.report.make_parts import KNEE, LADDER, STAGES, latency
from tests.report.make_run import Shape, make_run
from tests.unit.analysis import make


def phase(value: float, **parts: Any) -> PhaseResult:
    metric = {"name": "throughput", "unit": "operations/s", "value": value, "better": "higher"}
    return make.phase(metric=metric, **parts)


def measurement(value: float, **parts: Any) -> Measurement:
    return measurements(None, "p01", f"r{value:g}", 0, make.result(phase(value, **parts)))[0]


def further(phases: list[PhaseResult]) -> PhaseDetails:
    return phase_details([(f"r{p.metric.value:g}" if p.metric else "", p) for p in phases])


def test_percentiles_of_repetitions_are_those_of_the_merged_histograms_not_their_median() -> None:
    every = [latency(median, seed=7) for median in (300, 900, 9_000)]
    merged = recording.merge(recording.decode(one["histogram"]) for one in every)
    found = further([phase(n, latency={"READ": one}) for n, one in enumerate(every)])
    read = found.latency["READ"]
    assert read.merged
    assert read.n == 3
    assert read.count == sum(one["count"] for one in every)
    assert read.percentiles == {p: merged.get_value_at_percentile(float(p)) for p in recording.PERCENTILES}
    assert read.percentiles["99"] != sorted(one["percentiles"]["99"] for one in every)[1]


def test_histograms_of_other_ranges_and_empty_ones_are_merged_by_their_values() -> None:
    ranges = [HdrHistogram(1, 10_000, 3), HdrHistogram(1, 600_000_000, 2), HdrHistogram(1, 10_000, 3)]
    for found in ranges[:2]:
        for value in (90, 700, 800):
            found.record_value(value)
    packed = [one.encode().decode("ascii") for one in ranges]
    whole = HdrHistogram(1, 10_000, 3)
    for text in packed:
        whole.decode_and_add(text)
    for chosen, expected in ((packed, whole), (packed[::2], ranges[0])):
        entries = [{"count": 3, "histogram": text} for text in chosen]
        found = further([phase(n, latency={"READ": one}) for n, one in enumerate(entries)])
        assert found.latency["READ"].percentiles == {
            p: expected.get_value_at_percentile(float(p)) for p in recording.PERCENTILES
        }


@pytest.mark.parametrize("broken", [None, "", "HISTFAAA????"])
def test_without_every_histogram_percentiles_are_medians_and_said_to_be(broken: str | None) -> None:
    every = [dict(latency(median)) for median in (300, 900, 9_000)]
    every[1]["histogram"] = broken
    found = further([phase(n, latency={"READ": one}) for n, one in enumerate(every)])
    assert not found.latency["READ"].merged
    assert found.latency["READ"].percentiles["99"] == every[1]["percentiles"]["99"]


def test_service_and_intended_times_are_kept_apart() -> None:
    found = further([phase(1, latency={"Intended-READ": latency(900), "READ": latency(300)})])
    assert list(found.latency) == ["READ", "Intended-READ"]


def test_rungs_are_medians_by_threads_without_those_that_the_client_limited() -> None:
    def rungs(values: tuple[float, ...], limited: str | None) -> list[dict[str, Any]]:
        slow = {"ALL": {"percentiles": {"95": 100.0 * values[-1], "99": 7.0}}}
        return [
            {"threads": 2**n, "value": value, "latency": slow, "limited": limited if n else None}
            for n, value in enumerate(values)
        ]

    figures = [[{"name": "threads at the knee", "unit": "threads", "value": knee}] for knee in (1, 2, 2)]
    every = [rungs((1.0, 5.0), "client"), rungs((2.0, 4.0), "client"), rungs((3.0, 5.0), "client")]
    every[2][1]["limited"] = None
    alone = further([phase(n, rungs=r) for n, r in enumerate(every)])
    assert [(rung.range.value, rung.limited) for rung in alone.rungs] == [(2.0, ""), (5.0, "")]
    every[2] = rungs((3.0, 3.0), "client")
    found = further([phase(n, rungs=r, figures=f) for n, (r, f) in enumerate(zip(every, figures, strict=True))])
    assert [(rung.threads, rung.range.value, rung.limited) for rung in found.rungs] == [
        (1, 2.0, ""),
        (2, 4.0, "client"),
    ]
    assert (found.rungs[1].range.low, found.rungs[1].range.high) == (3.0, 5.0)
    assert found.rungs[0].p95 == 400.0
    assert found.knee == 2


def test_a_stage_that_comes_twice_is_added_up_before_the_median() -> None:
    stages = [{"name": "clone", "seconds": 4.0, "bytes": 10}, {"name": "clone", "seconds": 2.0, "bytes": 30}]
    found = further([phase(1, stages=stages), phase(2, stages=[{"name": "clone", "seconds": 8.0}])])
    assert [(stage.name, stage.seconds.value, stage.size) for stage in found.stages] == [("clone", 7.0, 40.0)]


def test_curves_are_those_of_the_repetition_in_the_middle() -> None:
    found = further([phase(v, windows={"start": 0, "seconds": 2.0, "values": [v, v]}) for v in (9.0, 1.0, 4.0)])
    assert found.representative == "r4"
    assert found.windows is not None
    assert found.windows.rates == [2.0, 2.0]


@pytest.mark.parametrize(
    "parts",
    [
        {"latency": {"READ": {"count": 0}}, "series": [{"name": "x", "t": [1, 2], "lines": {"a": [1]}}]},
        {"rungs": [{"threads": 2}], "figures": [{"name": "x", "unit": "", "value": float("nan")}]},
        {"table": {"columns": [{"name": "a"}], "rows": [[1, 2]]}, "windows": {"seconds": 0, "values": [1]}},
    ],
)
def test_incomplete_details_are_left_out(parts: dict[str, Any]) -> None:
    found = further([phase(1, **parts)])
    assert not any((found.latency, found.series, found.rungs, found.stages, found.figures, found.table, found.windows))


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> ReportModel:
    published = ({"at": 2, "value": 40_000, "phase": "inserts", "label": "as the text says"},)
    shape = Shape(shards=(2, 4), kind="ladder", phases=("reads", "inserts"), drift=False, published=published)
    run = make_run(tmp_path_factory.mktemp("ladder"), shape)
    lock = json.loads((run / "lock.json").read_text())
    lock["definition"]["reference"]["unit"] = "operations/s"  # what is published is compared in its own unit
    (run / "lock.json").write_text(json.dumps(lock))
    return build(run)


def test_each_phase_has_its_pictures_and_its_column(ladder: ReportModel) -> None:
    names = [name for name, _ in contents(ladder)]
    assert {"ladder-reads", "ladder-inserts", "latency-reads", "windows-inserts", "time-inserts"} <= set(names)
    shown = dict(contents(ladder))
    assert f"the knee lies at {KNEE} threads" in shown["ladder-reads"].title
    assert len(shown["ladder-reads"].table.rows) == 2 * len(LADDER)
    phases = next(table for table in tables.of(ladder) if table.id == "phases")
    assert [column.partition(":")[0] for column in phases.columns] == ["point", "reads", "inserts"]


def test_published_figures_stand_beside_the_phase_they_belong_to(ladder: ReportModel) -> None:
    assert ladder.published() is None
    assert list(ladder.references) == ["inserts"]
    rows = next(table for table in tables.of(ladder) if table.id == "published").rows
    assert [(row[0], row[-1]) for row in rows] == [("shards 2, inserts", "as the text says")]


def test_figures_for_programs_have_the_parts(ladder: ReportModel) -> None:
    lines = tidy_csv(ladder).splitlines()
    assert sum(f"throughput, {KNEE} threads" in line for line in lines) == 2 * 3 * 2
    assert any("READ p99,us," in line for line in lines)
    point = json.loads(json.dumps(summary(ladder), default=str))["points"][0]["phases"]["reads"]
    assert point["knee_threads"] == KNEE
    assert [rung["threads"] for rung in point["rungs"]] == list(LADDER)
    assert point["latency"]["READ"]["merged"] is True


def test_a_knee_that_the_client_made_is_warned_of(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(shards=(2,), repetitions=1, kind="ladder", drift=False))
    path = run / "results" / "p01" / "r1.json"
    result = json.loads(path.read_text())
    for rung in result["phases"][-1]["rungs"]:
        rung["limited"] = "client"
    path.write_text(json.dumps(result))
    model = build(run)
    assert any("at the ladder's knee the client" in n.text for n in model.notices if n.level == "warning")
    title = next(content.title for name, content in contents(model) if name.startswith("ladder"))
    assert title.endswith("the client was the limit")


def test_shares_over_time_and_stages_say_what_they_show(tmp_path: Path) -> None:
    balance = build(make_run(tmp_path / "a", Shape(shards=(1, 2), repetitions=1, kind="balance", drift=False)))
    shown = dict(contents(balance))
    assert "the fullest shard goes from 2.00 to 1.00" in shown["series-measure-p01"].title
    assert "windows-measure" not in shown  # the load is drawn below the shares
    assert {table.id for table in tables.of(balance)} == {"published", "figures-measure", "table-measure", "estimates"}
    sync = build(make_run(tmp_path / "b", Shape(shards=(1,), kind="sync", drift=False)))
    stages = dict(contents(sync))["stages-measure"]
    assert stages.title.startswith("Clone takes 60 % of the 1 min 08 s")
    assert [row[1] for row in stages.table.rows] == list(STAGES)


def test_only_what_differs_between_the_points_is_listed(ladder: ReportModel) -> None:
    found = dict(tables.differences(ladder))
    assert found["chunks of vosa.mot_results"] == [("2", "2 shards"), ("4", "4 shards")]
    assert not any("dataset" in key or "balancer" in key for key in found)


def test_a_measurement_that_the_client_limited_is_left_out_where_another_was_not() -> None:
    free, limited = {"limited": None}, {"limited": "client"}
    found = phase_figures([measurement(n, details=d) for n, d in ((1.0, limited), (2.0, free), (4.0, free))])
    assert found.values == (2.0, 4.0)
    assert [m.left_out for m in sorted(found.measurements, key=lambda m: m.step)] == [True, False, False]
    every = phase_figures([measurement(n, details=limited) for n in (1.0, 2.0)])
    assert every.values == (1.0, 2.0)


def test_what_the_servers_did_not_limit_is_reported_with_what_became_of_it() -> None:
    def notices(*limits: str | None) -> list[str]:
        found = phase_figures([measurement(n, details={"limited": who}) for n, who in enumerate(limits, 1)])
        point: Any = SimpleNamespace(id="p01", label="2 shards", phases={"measure": found})
        model: Any = SimpleNamespace(points=[point])
        return [text for _, text in checks.limited_phases(model, point, found)]

    (one,) = notices(None, "router", None)
    assert "router" in one
    assert "r2; left out" in one
    (both,) = notices("client", "host")
    assert "client and background CPU load" in both
    assert "left out" not in both
    assert notices(None, None) == []
