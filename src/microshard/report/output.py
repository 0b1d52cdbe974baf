"""The files of a report: written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from microshard.analysis.bootstrap import Estimate
from microshard.analysis.phase_details import PhaseDetails, figures_of
from microshard.analysis.report_model import CpuSplit, Measurement, PhaseFigures, PointReport, ReportModel
from microshard.analysis.scaling import Refused
from microshard.report import takeaways
from microshard.report.figures import pictures
from microshard.report.html import page

COLUMNS = ("point", "label", "step", "purpose", "order", "phase", "metric", "unit", "value", "valid", "verdict")


def write_all(run_folder: Path, model: ReportModel) -> Path:
    """Write report.html, the pictures, figures.csv and summary.json below RUN/report; returns the page's path."""
    folder = run_folder / "report"
    folder.mkdir(exist_ok=True)
    drawn = pictures(model, folder)
    for picture in drawn:
        _write(folder / f"{picture.name}.png", picture.png)
    for old in folder.glob("*.png"):
        if old.stem not in {picture.name for picture in drawn}:
            old.unlink()  # of an earlier report of this run, which had data this one does not
    _write(folder / "figures.csv", tidy_csv(model).encode("utf-8"))
    _write(folder / "summary.json", (json.dumps(summary(model), default=str) + "\n").encode("utf-8"))
    _write(folder / "report.html", page(model, drawn).encode("utf-8"))  # last: it names the others
    return folder / "report.html"


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
                head += (m.step, m.purpose, m.order, m.phase)
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
    return {
        "microshard": 1,
        "run": model.run_id,
        "experiment": model.experiment,
        "title": model.title,
        "tool_version": model.version,
        "created": model.created,
        "headline": takeaways.headline(model),
        "complete": model.complete,
        "measurements": {"planned": model.steps_planned, "done": model.steps_done},
        "axis": model.axis,
        "main_phase": model.main,
        "notices": [asdict(notice) for notice in model.notices],
        "points": [_point(point) for point in model.points],
        "scaling": {"refused": usl.reason} if isinstance(usl, Refused) else asdict(usl) if usl is not None else None,
        "distance_to_published": asdict(model.distance) if model.distance is not None else None,
        "host": dict(model.host),
        "versions": dict(model.versions),
        "hashes": dict(model.hashes),
    }


def _point(point: PointReport) -> dict[str, Any]:
    return {
        "id": point.id,
        "label": point.label,
        "axes": dict(point.axes),
        "state": point.state,
        "repetitions": {"planned": point.planned, "done": point.done},
        "answers": point.answers,
        "published_speed_up": point.published_speed_up,
        "storage": None if point.storage is None else asdict(point.storage),
        "problems": list(point.problems),
        "invalid": [asdict(entry) for entry in point.invalid],
        "phases": {name: _phase(figures) for name, figures in point.phases.items()},
    }


def _phase(figures: PhaseFigures) -> dict[str, Any]:
    return {
        "metric": figures.metric,
        "unit": figures.unit,
        "better": figures.better,
        "values": list(figures.values),
        "median": _estimate(figures.estimate),
        "speed_up": _estimate(figures.speed_up),
        "efficiency": _estimate(figures.efficiency),
        "efficiency_of_cores": _estimate(figures.efficiency_of_cores),
        "seconds": figures.seconds,
        "cpu": _cpu(figures.cpu),
        "cores_by_role": dict(figures.roles),
        "client_cores": figures.client_cores,
        "verdict": None if figures.verdict is None else asdict(figures.verdict),
        **_further(figures.details),
    }


def _further(more: PhaseDetails | None) -> dict[str, Any]:
    """The optional parts that are figures; nothing where there are none."""
    if more is None:
        return {}
    parts: dict[str, Any] = {
        "figures": [asdict(one) for one in more.figures],
        "latency": {name: asdict(one) for name, one in more.latency.items()},
        "rungs": [asdict(one) for one in more.rungs],
        "stages": [asdict(one) for one in more.stages],
        "knee_threads": more.knee,
    }
    return {name: value for name, value in parts.items() if value}


def _estimate(estimate: Estimate | None) -> Mapping[str, Any] | None:
    return None if estimate is None else asdict(estimate)


def _cpu(split: CpuSplit | None) -> Mapping[str, float] | None:
    return None if split is None else asdict(split)
