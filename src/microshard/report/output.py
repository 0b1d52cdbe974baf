"""The files of a report: written whole or not at all."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from microshard.analysis.phase_details import figures_of
from microshard.analysis.report_model import Measurement, PhaseFigures, PointReport, ReportModel
from microshard.analysis.scaling import Refused
from microshard.records.codec import encode
from microshard.records.run_folder import write_atomic
from microshard.report import headline
from microshard.report.figures import pictures
from microshard.report.html import page

_OF_PHASE = (
    "metric", "unit", "better", "values", "speed_up", "efficiency", "efficiency_of_cores", "seconds", "cpu",
    "client_cores", "verdict",
)  # fmt: skip
COLUMNS = ("point", "label", "step", "purpose", "order", "phase", "metric", "unit", "value", "valid", "verdict")


def write_all(run_folder: Path, model: ReportModel) -> Path:
    """Write report.html, the pictures, figures.csv and summary.json below RUN/report; returns the page's path."""
    folder = run_folder / "report"
    folder.mkdir(exist_ok=True)
    drawn = pictures(model, folder)
    for picture in drawn:
        write_atomic(folder / f"{picture.name}.png", picture.png)
    for old in folder.glob("*.png"):
        if old.stem not in {picture.name for picture in drawn}:
            old.unlink()  # of an earlier report of this run, which had data this one does not
    write_atomic(folder / "figures.csv", tidy_csv(model).encode("utf-8"))
    write_atomic(folder / "summary.json", (json.dumps(summary(model), default=str) + "\n").encode("utf-8"))
    write_atomic(folder / "report.html", page(model, drawn).encode("utf-8"))  # last: it names the others
    return folder / "report.html"


def tidy_csv(model: ReportModel) -> str:
    """One value a line: point, its axes, step, phase, metric, unit, value, valid."""
    axes = sorted({key for point in model.points for key in point.axes})
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*COLUMNS[:2], *axes, *COLUMNS[2:]])
    for point in model.points:
        for figures in point.phases.values():
            for m in figures.measurements:
                head = (point.id, point.label, *(point.axes.get(axis, "") for axis in axes))
                head += (m.step, m.purpose, m.order, m.result.name)
                tail = ("true" if m.valid else "false", m.result.verdict.name if m.result.verdict else "")
                writer.writerows((*head, *value, *tail) for value in _values(m))
    return buffer.getvalue()


def _values(m: Measurement) -> Iterator[tuple[str, str, float]]:
    if m.value is not None:
        yield m.metric, m.unit, m.value
    for number, sample in enumerate(m.result.samples, start=1):
        yield f"{m.metric}, sample {number}", m.unit, sample
    if m.seconds is not None:
        yield "wall time", "s", m.seconds
    if m.result.client_cpu_seconds is not None:
        yield "client CPU time", "s", m.result.client_cpu_seconds
    if m.cpu is not None:
        for name in ("user", "sys", "iowait", "idle", "steal"):
            yield f"cpu {name}", "share", getattr(m.cpu, name)
    for role, cores in m.roles.items():
        yield f"cpu of {role}", "cores", cores
    yield from _parts(m)
    if m.storage is not None:
        yield "data size", "bytes", m.storage.data
        yield "index size", "bytes", m.storage.index
        if m.storage.db_path is not None:
            yield "folder size", "bytes", m.storage.db_path


def _parts(m: Measurement) -> Iterator[tuple[str, str, float]]:
    """What the engine reports besides: figures, percentiles, stages, rungs. Curves stay in the result files."""
    more = figures_of([m.result])
    for figure in more.figures:
        yield figure.name, figure.unit, figure.range.value
    for operation, latency in more.latency.items():
        for name, value in latency.percentiles.items():
            yield f"{operation} p{name}", "us", value
    for stage in more.stages:
        yield f"stage {stage.name}", "s", stage.seconds.value
    for rung in more.rungs:
        yield f"{m.metric}, {rung.threads} threads", m.unit, rung.range.value
        for name, percentile in (("p95", rung.p95), ("p99", rung.p99)):
            if percentile is not None:
                yield f"{name}, {rung.threads} threads", "us", percentile


def summary(model: ReportModel) -> dict[str, Any]:
    """The figures of the report for other programs: medians, intervals, notices, fit and distance."""
    usl = model.usl
    found: dict[str, Any] = encode({
        "microshard": 1,
        "run": model.run_id,
        "experiment": model.experiment,
        "title": model.title,
        "tool_version": model.version,
        "created": model.created,
        "headline": headline.headline(model),
        "complete": model.complete,
        "measurements": {"planned": model.steps_planned, "done": model.steps_done},
        "axis": model.axis,
        "main_phase": model.main,
        "notices": model.notices,
        "points": [_point(point) for point in model.points],
        "scaling": {"refused": usl.reason} if isinstance(usl, Refused) else usl,
        "distance_to_published": model.distance,
        "host": model.host,
        "versions": model.versions,
        "hashes": model.hashes,
    })  # fmt: skip
    return found


def _point(point: PointReport) -> dict[str, Any]:
    return {
        **{name: getattr(point, name) for name in ("id", "label", "axes", "state")},
        "repetitions": {"planned": point.planned, "done": point.done},
        **{name: getattr(point, name) for name in ("answers", "published_speed_up", "storage", "problems", "invalid")},
        "phases": {name: _phase(figures) for name, figures in point.phases.items()},
    }


def _phase(figures: PhaseFigures) -> dict[str, Any]:
    more = figures.details
    named = {"median": figures.estimate, "cores_by_role": figures.roles}
    details = {
        **{name: getattr(more, name) for name in ("figures", "latency", "rungs", "stages")},
        "knee_threads": more.knee,
    }
    return {
        **{name: getattr(figures, name) for name in _OF_PHASE},
        **named,
        **{name: value for name, value in details.items() if value},
    }
