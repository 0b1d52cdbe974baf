import csv
import itertools
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from microshard.report import NotWrittenError, build, write
from microshard.report.figures import pictures
from microshard.report.figures.style import COLOURS, apart
from microshard.report.output import summary, tidy_csv
from tests.report.make_run import Shape, make_run, tear


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(make_run(tmp_path_factory.mktemp("out"))).parent


def test_write_makes_the_page_pictures_large_enough_for_print_and_the_data(report: Path) -> None:
    pictures_ = {"speed-up.png", "time.png", "cpu.png", "roles.png", "load.png", "disk.png", "order.png"}
    assert {path.name for path in report.iterdir()} == {"report.html", "figures.csv", "summary.json", *pictures_}
    for name in pictures_:
        width, height = struct.unpack(">II", (report / name).read_bytes()[16:24])
        assert (width >= 1000, height >= 500) == (True, True), name


def test_page_is_self_contained(report: Path) -> None:
    page = (report / "report.html").read_text(encoding="utf-8")
    for outside in ("http://", "https://", "<script", "<img", "@import", "url(http"):
        assert outside not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "MongoDB 6.0.5 behind microshard&#39;s embedded router" in page
    assert "AMD EPYC 9R45" in page
    assert "SIGSTOP" in page
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_data_is_tidy_and_whole(report: Path) -> None:
    with (report / "figures.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    times = [row for row in rows if row["metric"] == "query time" and row["purpose"] == "measure"]
    assert len(times) == 15
    assert {row["topology.shards.count"] for row in times} == {"1", "2", "4", "8", "16"}
    assert {(row["unit"], row["valid"]) for row in times} == {("s", "true")}
    assert {"cpu user", "cpu of router", "data size", "folder size", "load rate", "wall time"} <= {
        row["metric"] for row in rows
    }


def test_summary_has_the_figures_with_their_intervals(report: Path) -> None:
    content = json.loads((report / "summary.json").read_text(encoding="utf-8"))
    first = content["points"][0]["phases"]["measure"]
    assert first["speed_up"]["value"] == 1.0
    assert first["median"]["interval"]["low"] <= first["median"]["value"] <= first["median"]["interval"]["high"]
    assert content["scaling"]["sigma"]["value"] > 0
    assert content["complete"] is True


def test_verdicts_and_invalid_measurements_are_in_page_and_data(tmp_path: Path) -> None:
    folder = write(make_run(tmp_path, Shape(repeated=2, limit="disk IOPS"))).parent
    page = (folder / "report.html").read_text(encoding="utf-8")
    for text in ("Bottlenecks", "<b>disk IOPS</b>", "98 % busy", "3 of 3", "Invalid measurements"):
        assert text in page
    assert "measured again as r2-2: valid" in page
    with (folder / "figures.csv").open(encoding="utf-8") as file:
        assert {row["verdict"] for row in csv.DictReader(file) if row["phase"] == "measure"} == {"disk IOPS"}
    points = json.loads((folder / "summary.json").read_text())["points"]
    assert points[0]["phases"]["measure"]["verdict"]["figures"] == {"busy": 0.52, "cores": 2}
    assert [entry["step"] for entry in points[1]["invalid"]] == ["r2"]


def test_text_from_the_run_is_escaped_in_page_and_pictures(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(second_axis=("<script>alert(1)</script>", "b & c $x$")))
    page = write(run).read_text(encoding="utf-8")
    assert "<script" not in page
    assert "b &amp; c" in page


def test_a_report_is_the_same_each_time(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    first = {path.name: path.read_bytes() for path in write(run).parent.iterdir()}
    assert {path.name: path.read_bytes() for path in write(run).parent.iterdir()} == first


def test_nothing_is_written_outside_the_report_folder(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs")
    home = tmp_path / "home"
    home.mkdir()
    hidden = {"MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"}
    environment = {k: v for k, v in os.environ.items() if k not in hidden} | {"HOME": str(home), "TMPDIR": str(home)}
    before = {path for path in run.rglob("*") if run / "report" not in path.parents}
    code = f"from pathlib import Path; from microshard.report import write; write(Path({str(run)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert list(home.iterdir()) == []
    assert {path for path in run.rglob("*") if run / "report" not in path.parents} == before
    assert not [path for path in (run / "report").iterdir() if path.name.startswith(".")]


def test_importing_the_report_does_not_import_the_heavy_libraries() -> None:
    code = (
        "import sys, microshard.report, microshard.report.table; "
        "print([m for m in ('matplotlib', 'scipy', 'jinja2') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip() == "[]"
    )


@pytest.mark.parametrize(
    "shape",
    [
        Shape(steps=0),
        Shape(steps=1),
        Shape(failed_point=1),
        Shape(shards=(4,)),
        Shape(shards=(1, 2)),
        Shape(repetitions=1, drift=False, telemetry=False, reference=False),
        Shape(second_axis=("4 KiB", "8 KiB")),
        Shape(second_axis=tuple(f"{n} KiB" for n in range(9)), repetitions=1),
    ],
    ids=["empty", "one result", "base failed", "one point", "two points", "bare", "two axes", "many series"],
)
def test_any_run_has_a_report(tmp_path: Path, shape: Shape) -> None:
    page = write(make_run(tmp_path, shape)).read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")


def test_a_damaged_run_has_a_report_that_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    tear(run)
    (run / "lock.json").write_text("{")
    page = write(run).read_text(encoding="utf-8")
    assert "results/p03/r2.json: not a whole JSON file" in page
    assert "lock.json: not a whole JSON file" in page


def test_pictures_of_an_earlier_report_do_not_stay(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "report" / "gone.png").write_bytes(b"old")
    write(run)
    assert not (run / "report" / "gone.png").exists()


def test_pictures_have_title_caption_numbers_and_colours_of_the_page(tmp_path: Path) -> None:
    for picture in pictures(build(make_run(tmp_path)), tmp_path):
        root = ET.fromstring(picture.svg)  # noqa: S314 - our own picture
        painted = " ".join(value for element in root.iter() for value in element.attrib.values())
        assert "#" not in painted.replace(f"url(#{picture.name}", "").replace(f"#{picture.name}-", "")
        assert (root.get("role"), root.get("aria-label")) == ("img", picture.alt)
        assert picture.title
        assert picture.caption.endswith(".")
        assert picture.table.rows
        assert {len(row) for row in picture.table.rows} == {len(picture.table.columns)}


def test_light_colours_differ_so_that_roles_can_be_distinguished() -> None:
    lights = [light for light, _ in COLOURS.values()]
    assert len(lights) == len(set(lights))


def test_points_without_an_order_have_bars(tmp_path: Path) -> None:
    run = make_run(tmp_path, Shape(shards=(4,), second_axis=("4 KiB", "8 KiB"), drift=False))
    shown = {picture.name: picture for picture in pictures(build(run), tmp_path)}
    assert {"time", "load", "cpu", "disk"} <= set(shown)
    assert "speed-up" not in shown
    assert ">4 KiB<" in shown["time"].svg  # what all labels begin with is left out


def test_labels_are_moved_apart_and_stay_inside() -> None:
    placed = apart([10.0, 10.0, 11.0, 99.0], 12, 0, 100)
    assert placed == sorted(placed)
    assert all(b - a >= 12 for a, b in itertools.pairwise(placed))
    assert apart([98.0, 99.0], 12, 0, 100) == [88.0, 100.0]


def test_summary_and_data_of_an_empty_run_are_valid(tmp_path: Path) -> None:
    model = build(make_run(tmp_path, Shape(steps=0)))
    assert json.loads(json.dumps(summary(model), default=str))["headline"] == "No valid measurement yet"
    assert len(tidy_csv(model).splitlines()) == 1


def test_a_report_that_cannot_be_written_is_reported_with_the_way_to_write_it_later(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "report").rmdir()
    (run / "report").write_text("in the way", encoding="utf-8")
    with pytest.raises(NotWrittenError, match=r"report: the report cannot be written: .*microshard report"):
        write(run)
