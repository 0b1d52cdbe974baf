import dataclasses
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
        ({1: 2.4, 2: 1.25, 4: 1.2, 8: 1.3, 16: 1.4}, "2.00 × at 4 shards; down to 1.71 × at 16 shards"),
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
    assert headline(model).endswith("not counted: 1 shard (background CPU load), 2 shards (background CPU load)")


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


@pytest.mark.parametrize("last", [2.1, 2.8])
def test_a_rise_or_fall_after_the_cores_are_full_that_the_repetitions_do_not_tell_is_not_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: float
) -> None:
    monkeypatch.setattr(maker, "SECONDS", {1: 4.0, 2: 2.4, 4: last})
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
    [(0.0, "4 KiB is 1.25 × as fast as 8 KiB"), (0.6, "No clear difference between the 2 points")],
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


def question_run(folder: Path, seconds: dict[str, float], shape: Shape, **question: object) -> Path:
    """A run over values of block_size on so many shards each, with a question; `seconds` by value."""
    run = make_run(folder, shape)
    lock = json.loads((run / "lock.json").read_text())
    lock["definition"]["question"] = {"vary": ["topology.storage.block_size"], "figure": "query time"} | question
    (run / "lock.json").write_text(json.dumps(lock))
    plan = json.loads((run / "plan.json").read_text())
    for point in plan["points"]:
        for path in (run / "results" / point["id"]).glob("*.json"):
            result = json.loads(path.read_text())
            phase, size = result["phases"][-1], point["axes"]["topology.storage.block_size"]
            phase["metric"]["value"] = seconds[size] * (1 if point["shards"] < 4 else 2 if size == "8 KiB" else 1)
            phase["figures"] = [
                *(
                    {"name": name, "unit": "1/s", "value": 100 - seconds[size], "better": "higher"}
                    for name in ("reads", "reads, during over before")
                ),
                {"name": "time to balanced", "unit": "s", "value": seconds[size], "better": "lower"},
                {"name": "bytes read", "unit": "bytes", "value": 1e6 * seconds[size], "better": "lower"},
            ]
            path.write_text(json.dumps(result))
    return run


TWO = Shape(shards=(2,), second_axis=("4 KiB", "8 KiB"), spread=0, drift=False)
BY = Shape(shards=(2, 4), second_axis=("4 KiB", "8 KiB"), spread=0, drift=False)


@pytest.mark.parametrize(
    ("seconds", "shape", "question", "sentence"),
    [
        ({"4 KiB": 4.0, "8 KiB": 1.0}, TWO, {}, "8 KiB: 4.0 × as fast as 4 KiB"),
        ({"4 KiB": 4.0, "8 KiB": 1.0}, TWO, {"baseline": "8 KiB"}, "4 KiB: 4.0 × the query time of 8 KiB"),
        ({"4 KiB": 4.0, "8 KiB": 4.1}, dataclasses.replace(TWO, repetitions=1), {},
         "No clear difference in query time between 4 KiB and 8 KiB"),
        ({"4 KiB": 4.0, "8 KiB": 1.0}, TWO, {"figure": "bytes read"}, "8 KiB: 4.0 × fewer bytes read than 4 KiB"),
        ({"4 KiB": 4.0, "8 KiB": 20.0}, TWO, {"figure": "bytes read", "cost": "reads", "baseline": "8 KiB"},
         "4 KiB: 5.0 × fewer bytes read than 8 KiB at 1.2 × the reads"),
        ({"4 KiB": 4.0, "8 KiB": 20.0}, TWO, {"cost": "reads"},
         "8 KiB: 5.0 × the query time of 4 KiB at a cost of 17 % of the reads"),
        ({"4 KiB": 4.0, "8 KiB": 1.0}, TWO, {"figure": "time to balanced"},
         "8 KiB: 4.0 × as fast as 4 KiB (time to balanced)"),
        ({"4 KiB": 4.0, "8 KiB": 20.0}, TWO, {"cost": "reads, during over before"},
         "8 KiB: 5.0 × the query time of 4 KiB at a cost of 17 % of the reads"),
        ({"4 KiB": 8.0, "8 KiB": 1.0}, BY, {"by": ["topology.shards.count"]},
         "8 KiB: 4.0 × (4 shards) to 8.0 × (2 shards) as fast as 4 KiB"),
        ({"4 KiB": 4.0, "8 KiB": 1.0}, TWO, {"names": {"4 KiB": "small blocks", "8 KiB": "large blocks"}},
         "large blocks: 4.0 × as fast as small blocks"),
    ],
)  # fmt: skip
def test_the_headline_answers_the_question(
    tmp_path: Path, seconds: dict[str, float], shape: Shape, question: dict[str, object], sentence: str
) -> None:
    assert headline(build(question_run(tmp_path, seconds, shape, **question))) == sentence


def test_things_that_one_point_has_measured_are_compared(tmp_path: Path) -> None:
    asks = {"vary": ["workload.1.measure.members"], "figure": "data"}
    run = question_run(tmp_path, {"4 KiB": 4.0}, dataclasses.replace(TWO, second_axis=("4 KiB",)), **asks)
    for path in (run / "results" / "p01").glob("*.json"):
        result = json.loads(path.read_text())
        result["phases"][-1]["figures"] = [
            {"name": f"data, {name}", "unit": "bytes", "value": value, "better": "lower"}
            for name, value in (("none", 8e6), ("zstd", 2e6))
        ]
        result["phases"][-1]["metric"] |= {"name": "data, none", "unit": "bytes", "better": "lower"}
        path.write_text(json.dumps(result))
    assert headline(build(run)) == "zstd: 4.0 × less data than none"


def test_an_answer_does_not_rest_on_a_baseline_that_does_not_count(tmp_path: Path) -> None:
    run = question_run(tmp_path, {"4 KiB": 4.0, "8 KiB": 1.0}, TWO)
    for path in (run / "results" / "p01").glob("r1.json"):
        result = json.loads(path.read_text())
        path.write_text(json.dumps(result | {"valid": False, "problems": ["measure: 2 (gates.max_shard_skew: 1.2)"]}))
    assert headline(build(run)).endswith("not counted: 2 shards, block_size 4 KiB (outside its gates)")


def test_numbers_of_shards_with_names_are_compared_within_what_is_kept_apart(tmp_path: Path) -> None:
    names = {"2": "2 + 2 shards", "4": "2 + 4 shards"}
    asks = {"vary": ["topology.shards.count"], "by": ["topology.storage.block_size"], "names": names}
    run = question_run(tmp_path, {"4 KiB": 1.0, "8 KiB": 3.0}, BY, **asks)
    assert headline(build(run)) == "2 + 4 shards: 1.0 × (4 KiB) to 2.0 × (8 KiB) the query time of 2 + 2 shards"


def test_a_question_about_the_threads_of_a_ladder_is_answered_by_its_knee(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(shards=(2,), kind="ladder", phases=("read-mostly", "inserts"), drift=False))
    lock = json.loads((run / "lock.json").read_text())
    threads = {"vary": ["workload.1.measure.threads"], "figure": "throughput", "phase": "read-mostly"}
    lock["definition"]["question"] = threads
    (run / "lock.json").write_text(json.dumps(lock))
    model = build(run)
    assert model.main == "read-mostly"
    assert headline(model).startswith("The knee is at 8 threads: ")
