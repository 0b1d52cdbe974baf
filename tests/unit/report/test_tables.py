import json
from pathlib import Path
from typing import Any

import pytest

from microshard.report import build, tables
from microshard.report.html import log_rows, scaling
from tests.report.make_run import Shape, make_run

QUIET = Shape(shards=(1, 2, 4), spread=0, drift=False)


def published(folder: Path, *points: dict[str, Any], unit: str = "s") -> list[tuple[str, ...]]:
    """The rows of the table for these published points."""
    run = make_run(folder, Shape(shards=(1, 2, 4), spread=0, drift=False, published=points))
    lock = json.loads((run / "lock.json").read_text())
    lock["definition"]["reference"]["unit"] = unit
    (run / "lock.json").write_text(json.dumps(lock))
    return [row for table in tables.of(build(run)) if table.id == "published" for row in (table.columns, *table.rows)]


def test_what_was_not_measured_or_not_published_is_in_no_row(tmp_path: Path) -> None:
    found = published(tmp_path, {"at": 2, "value": 931, "label": "1 GB"}, {"at": 8, "value": 276}, {"at": 4})
    assert found == [
        ("at", "figure", "published", "measured", "measured / published", "remark"),
        ("shards 2", "query time, s", "931", "1.31", "0.00141", "1 GB"),
    ]


def test_without_anything_in_common_there_is_no_table(tmp_path: Path) -> None:
    assert published(tmp_path, {"at": 2, "label": "a picture without figures"}, {"at": 8, "value": 276}) == []


@pytest.mark.parametrize(("unit", "shown"), [("ms", "1,310"), ("min", "0.0218"), ("documents/s", None)])
def test_measured_figures_are_shown_in_the_published_unit_where_that_is_possible(
    tmp_path: Path, unit: str, shown: str | None
) -> None:
    found = published(tmp_path, {"at": 2, "value": 1000}, unit=unit)
    assert [row[3] for row in found[1:]] == ([] if shown is None else [shown])


def test_a_column_of_dashes_is_left_out(tmp_path: Path) -> None:
    for table in tables.of(build(make_run(tmp_path, QUIET))):
        for n, name in enumerate(table.columns[1:], start=1):
            assert any(row[n] not in {"–", ""} for row in table.rows), (table.title, name)


def test_the_distance_between_shapes_is_said_in_words(tmp_path: Path) -> None:
    (sentence,) = [text for text in scaling(build(make_run(tmp_path, QUIET))) if "start" in text]
    assert "lies 1.34 × below it on average" in sentence
    assert "at 4 shards the measured curve has 0.70 ×" in sentence


def test_logs_of_processes_of_one_role_share_a_row_and_one_with_errors_has_its_own(tmp_path: Path) -> None:
    run = make_run(tmp_path, QUIET)
    logs = {f"shard{n:02d}": {"slow": n, "connections": 10, "connections_max": n} for n in range(1, 5)}
    logs["shard04"]["errors"] = 2
    (run / "logs" / "p03").mkdir(parents=True)
    (run / "logs" / "p03" / "summary.json").write_text(json.dumps(logs | {"config1": {"connections": 7}}))
    table = log_rows(build(run))
    assert [row[:5] for row in table.rows] == [
        ("4 shards", "3 shards", "6", "30", "3"),
        ("4 shards", "shard04", "4", "10", "4"),
        ("4 shards", "config1", "–", "7", "–"),
    ]
    assert "errors" in table.columns
    assert "migrations begun" not in table.columns


def test_a_process_that_stood_still_while_it_was_measured_is_a_warning(tmp_path: Path) -> None:
    run = make_run(tmp_path, QUIET)
    measured = json.loads((run / "results" / "p03" / "r1.json").read_text())["phases"][-1]
    began = measured["started"]
    pause = {"began": began - 80, "seconds": 81.0}
    # A longer one before hides nothing.
    seen = {"samples": 60, "began": 0.0, "ended": 9e9, "standstills": [pause, {"began": began, "seconds": 4.0}]}
    seen |= {"checkpoint_longest": 1.5, "dirty_share_max": 0.21, "evicted_by_operations": 30, "flow_control_us": 0}
    (run / "logs" / "p03").mkdir(parents=True)
    where = run / "logs" / "p03" / "summary.json"
    paused = seen | {"standstills": [pause]}
    where.write_text(json.dumps({"shard01": {"diagnostics": seen}, "shard02": {"diagnostics": paused}}))
    model = build(run)
    (warning,) = [notice for notice in model.notices if "FTDC" in notice.text]
    assert warning.level == "warning"
    assert "shard01 noted nothing of itself for 3.8 s in r1" in warning.text
    table = log_rows(model)
    (row,) = table.rows
    shown = dict(zip(table.columns, row, strict=True))
    assert shown["longest standstill or pause"] == "81.0 s"
    assert shown["evicted by operations"] == "60"
