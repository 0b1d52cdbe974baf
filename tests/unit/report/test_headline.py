import json
from pathlib import Path

import pytest

from microshard.report import build, takeaways
from microshard.report.headline import headline
from tests.report import make_run as maker
from tests.report.make_run import Shape, make_run


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        ({1: 2.4, 2: 1.25, 4: 1.2, 8: 1.25, 16: 1.3}, "2.00 × at 4 shards; flat after the 2 cores are full"),
        ({1: 2.4, 2: 1.25, 4: 1.2, 8: 1.6, 16: 2.0}, "2.00 × at 4 shards; down to 1.20 × at 16 shards"),
        ({1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0, 16: 0.5}, "16.0 × at 16 shards; more than the 2 cores alone explain"),
        ({1: 4.0, 2: 3.2, 4: 2.8, 8: 2.6, 16: 2.5}, "1.60 × at 16 shards; still rising after the 2 cores are full"),
        ({1: 2.0, 2: 2.0, 4: 2.0, 8: 2.0, 16: 2.0}, "No gain from 1 shard to 16 shards"),
        ({1: 2.0, 2: 2.5, 4: 3.0, 8: 3.5, 16: 4.0}, "No gain: 16 shards reach 0.50 × the speed of 1 shard"),
    ],
)
def test_the_headline_says_what_the_curve_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], sentence: str
) -> None:
    monkeypatch.setattr(maker, "SECONDS", seconds)
    assert headline(build(make_run(tmp_path, Shape(spread=0)))) == sentence


def test_no_headline_rests_on_points_beside_other_programs(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(shards=(1, 2), spread=0, others=0.7)))
    assert headline(model) == (
        "No complete and undisturbed measurement to rest a headline on; "
        "not counted: 1 shard (background CPU load), 2 shards (background CPU load)"
    )


def test_measurements_that_are_not_valid_are_in_no_headline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "SECONDS", {1: 2.4, 2: 1.25, 4: 0.1})
    run = make_run(tmp_path, Shape(shards=(1, 2, 4), spread=0, drift=False))
    assert headline(build(run)).startswith("24.0 × at 4 shards")
    plan = json.loads((run / "plan.json").read_text())
    (fastest,) = (point["id"] for point in plan["points"] if point["shards"] == 4)
    for path in (run / "results" / fastest).glob("*.json"):
        result = json.loads(path.read_text())
        path.write_text(json.dumps(result | {"valid": False, "problems": ["another environment"]}))
    assert headline(build(run)).startswith("1.92 × at 2 shards")


@pytest.mark.parametrize("why", ["partial", "outside its gates", "background CPU load"])
def test_the_fastest_point_is_in_no_headline_unless_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(maker, "SECONDS", {1: 2.4, 2: 1.25, 4: 0.1})
    run = make_run(tmp_path, Shape(shards=(1, 2, 4), spread=0, drift=False))
    for path in (run / "results" / "p03").glob("*.json"):
        result = json.loads(path.read_text())
        if why == "background CPU load":
            for use in result["phases"][-1]["telemetry"]["processes"].values():
                use["cpu_mean"] = 0.0
        elif path.stem == "r2":
            reason = "measure: 1.4 (gates.max_variation: 0.3)" if why == "outside its gates" else "measure: lost"
            result |= {"valid": False, "problems": [reason]}
        path.write_text(json.dumps(result))
    assert headline(build(run)) == f"1.92 × at 2 shards; not counted: 4 shards ({why})"


def test_a_rise_after_the_cores_are_full_that_the_repetitions_do_not_tell_is_not_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "SECONDS", {1: 4.0, 2: 2.4, 4: 2.1})
    found = headline(build(make_run(tmp_path, Shape(shards=(1, 2, 4), spread=0.3))))
    assert found.endswith("; flat after the 2 cores are full")


def test_a_gain_within_the_scatter_of_the_repetitions_is_not_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "SECONDS", {1: 1.0, 2: 0.95})
    found = headline(build(make_run(tmp_path, Shape(shards=(1, 2), spread=0.3))))
    assert found.startswith("No clear gain: ")


def test_without_a_measurement_nothing_is_claimed(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(steps=0)))
    assert headline(model) == "No valid measurement yet"
    assert takeaways.cpu(model) == "No telemetry"


def test_one_point_has_its_value_as_headline(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(shards=(4,), spread=0, drift=False)))
    assert headline(model) == "Query time 1.27 s with 4 shards"


def test_drift_is_the_title_of_the_timeline(tmp_path: Path) -> None:
    still = build(make_run(tmp_path / "still", Shape(spread=0, drift_factor=1.0)))
    assert takeaways.order(still).startswith("No drift:")
    moving = build(make_run(tmp_path / "moving", Shape(spread=0, drift_factor=1.5)))
    assert takeaways.order(moving).endswith("was 50 % higher at the end than its median")


@pytest.mark.parametrize(
    ("spread", "sentence"),
    [
        (0.0, "4 KiB is 1.25 × as fast as 8 KiB"),
        (0.6, "No clear difference between the 2 points"),
    ],
)
def test_points_without_an_order_are_compared_best_against_worst(tmp_path: Path, spread: float, sentence: str) -> None:
    run = make_run(tmp_path, Shape(shards=(4,), second_axis=("4 KiB", "8 KiB"), spread=spread))
    for path in (run / "results" / "p02").glob("*.json"):
        result = json.loads(path.read_text())
        result["phases"][-1]["metric"]["value"] *= 1.25
        path.write_text(json.dumps(result))
    model = build(run)
    assert model.axis is None
    assert headline(model) == sentence
    assert takeaways.value(model) == sentence


@pytest.mark.parametrize(
    ("unit", "sentence"),
    [
        ("", "Query time 1.00 at 4 KiB, 1.25 at 8 KiB"),
        ("bytes", "Query time 1 B at 4 KiB, 1 B at 8 KiB"),
        ("ms", "4 KiB is 1.25 × as fast as 8 KiB"),
    ],
)
def test_only_times_and_rates_are_called_fast(tmp_path: Path, unit: str, sentence: str) -> None:
    run = make_run(tmp_path, Shape(shards=(4,), second_axis=("4 KiB", "8 KiB"), spread=0))
    for path in (run / "results").glob("*/*.json"):
        result = json.loads(path.read_text())
        value = 1.25 if path.parent.name == "p02" else 1.0
        result["phases"][-1]["metric"] |= {"unit": unit, "value": value}
        path.write_text(json.dumps(result))
    assert headline(build(run)) == sentence


def test_a_loss_is_reported_against_the_smallest_point_of_the_same_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "SECONDS", {1: 2.0, 2: 2.5, 4: 4.0, 8: 5.0, 16: 8.0})
    found = headline(build(make_run(tmp_path, Shape(second_axis=("4 KiB", "8 KiB"), spread=0))))
    assert found == "No gain: 16 shards, block_size 8 KiB reach 0.25 × the speed of 1 shard, block_size 8 KiB"
