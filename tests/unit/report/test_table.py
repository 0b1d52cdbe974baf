import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from microshard.analysis.report_model import ReportModel
from microshard.report import build, table
from tests.report.make_run import Shape, make_run

SHAPES = {
    "whole": Shape(),
    "troubled": Shape(failed_point=8, wrong_answer=4, steps=14),
    "one repetition": Shape(repetitions=1, drift=False, telemetry=False, reference=False),
    "two axes": Shape(second_axis=("4 KiB", "a rather long name of a block size")),
    "empty": Shape(steps=0),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ReportModel]:
    return {name: build(make_run(tmp_path_factory.mktemp("run"), shape)) for name, shape in SHAPES.items()}


def so_far(model: ReportModel) -> list[table.LivePoint]:
    found = []
    for point in model.points:
        figures = model.figures(point)
        values = figures.values if figures else ()
        found.append(
            table.LivePoint(point.label, point.state, len(values), point.planned, values, model.metric, model.unit)
        )
    return found


def printed(renderable: RenderableType, width: int, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict", write_through=True)
    Console(file=stream, width=width, no_color=True, force_terminal=False, legacy_windows=False).print(renderable)
    return raw.getvalue().decode(encoding).rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
@pytest.mark.parametrize("name", SHAPES)
def test_no_line_is_wider_than_the_terminal_and_every_point_has_one(
    models: dict[str, ReportModel], name: str, width: int
) -> None:
    model = models[name]
    for renderable in (table.final(model, width), table.live(so_far(model), width)):
        lines = printed(renderable, width)
        assert max(map(len, lines)) <= width
        rule = next(i for i, line in enumerate(lines) if set(line.strip()) == {"─"})
        rows = lines[rule + 1 : rule + 1 + len(model.points)]
        for point, row in zip(model.points, rows, strict=True):
            assert row.startswith(point.label[:10])


@pytest.mark.parametrize("width", [80, 100, 140])
def test_figures_are_never_cut(models: dict[str, ReportModel], width: int) -> None:
    text = "\n".join(printed(table.final(models["whole"], width), width))
    assert "…" not in text
    for needed in ("query time", "speed-up", "effic.", "pub-", "answer", "✓"):
        assert needed in text


def test_columns_leave_by_priority(models: dict[str, ReportModel]) -> None:
    def has(width: int) -> set[str]:
        shown = "\n".join(printed(table.final(models["whole"], width), width))
        text, _, missing = shown.partition("not shown")
        assert (width < 140) == ("disk" in missing)
        return {name for name in ("speed-up", "docs/s", "us/sy/wa/id", "iowait", "disk") if name in text}

    assert has(80) == {"speed-up"}
    assert has(100) == {"speed-up", "docs/s", "us/sy/wa/id"}
    assert has(140) == {"speed-up", "docs/s", "iowait", "disk"}


def test_trouble_is_said_in_words(models: dict[str, ReportModel]) -> None:
    text = "\n".join(printed(table.final(models["troubled"], 100), 100))
    for word in ("✗ differs", "failed", "partial", "ERROR", "warning", "14 of 16 measurements"):
        assert word in text


def test_a_terminal_without_unicode_gets_ascii(models: dict[str, ReportModel]) -> None:
    text = "\n".join(printed(table.final(models["troubled"], 100), 100, "ascii"))
    assert "NO" in text
    assert "[1.86-1.93]" in text


def test_live_table_shows_the_median_so_far() -> None:
    points = [
        table.LivePoint("1 shard", "done", 3, 3, (2.4, 2.5, 2.3), "query time", "s"),
        table.LivePoint("2 shards", "measuring", 1, 3, (1.3,), "query time", "s", "41,210 documents/s"),
        table.LivePoint("4 shards", "waiting", 0, 3),
    ]
    lines = printed(table.live(points, 100), 100)
    assert "query time so far" in lines[0]
    row = next(line for line in lines if line.startswith("1 shard"))
    assert "3 of 3" in row
    assert "2.40" in row
    assert "2.30–2.50" in row
    assert "41,210 documents/s" in "\n".join(lines)


def test_live_table_of_many_points_shows_where_something_happens() -> None:
    points = [table.LivePoint(f"point {n}", "done" if n < 500 else "waiting", 0, 3) for n in range(1000)]
    points[700] = table.LivePoint("point 700", "measuring", 1, 3)
    text = "\n".join(printed(table.live(points, 80), 80))
    assert "point 700" in text
    assert "point 499" in text
    assert "point 500" in text
    assert "980 more points; 499 of 1,000 wait" in text


def test_final_table_of_many_points_names_how_many_are_left_out(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(repetitions=1, drift=False, second_axis=tuple(map(str, range(20))))))
    assert "… and 40 more points" in "\n".join(printed(table.final(model, 80), 80))


def test_the_verdict_is_in_both_tables(models: dict[str, ReportModel]) -> None:
    lines = printed(table.final(models["whole"], 100), 100)
    assert any("bound" in line for line in lines)
    assert sum(" CPU " in line for line in lines) == 5
    busy = table.LivePoint("2 shards", "measuring", 1, 3, (1.5,), "query time", "s", bottleneck="cache")
    assert "cache" in "\n".join(printed(table.live([busy]), 100))
