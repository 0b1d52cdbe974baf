"""The one sentence each picture is about, computed from its data."""

from microshard.analysis.contrasts import OTHERS, counted
from microshard.analysis.report_model import ReportModel
from microshard.report import format as fmt
from microshard.report.checks import DRIFT, drift
from microshard.report.headline import SAME, compared


def value(model: ReportModel, phase: str | None = None) -> str:
    """From the smallest point's value to the best one."""
    rows = counted(model, phase) or model.measured(phase)
    if not rows:
        return "No valid measurement yet"
    if model.axis is None and len(rows) > 1:
        return compared(model, phase)
    first, base, start = rows[0]
    best, _, end = (min if base.better == "lower" else max)(rows, key=lambda row: row[2].value)
    name = base.metric.capitalize()
    if best is first:
        return f"{name} is best at {first.label}: {fmt.with_unit(start.value, base.unit)}"
    begin = fmt.size(start.value) if base.unit == "bytes" else fmt.number(start.value)
    return f"{name} from {begin} to {fmt.with_unit(end.value, base.unit)}, best at {best.label}"


def cpu(model: ReportModel) -> str:
    """How busy the CPU was."""
    rows = [(p, f.cpu) for p, f, _ in model.measured() if f.cpu is not None]
    if not rows:
        return "No telemetry"
    first, start = rows[0]
    point, split = max(rows, key=lambda row: row[1].iowait)
    if split.iowait > 0.2:
        return f"{point.label.capitalize()} waits for the disk {fmt.percent(split.iowait)} % of the time"
    full = next(((p, split) for p, split in rows if split.busy > 0.9), None)
    if full is None:
        point, split = max(rows, key=lambda row: row[1].busy)
        return f"The CPU is never full: at most {fmt.percent(split.busy)} % busy, at {point.label}"
    if full[0] is first:
        return f"The CPU is full at every point ({fmt.percent(start.busy)} % busy at {first.label})"
    share = fmt.per_cent(full[1].busy)
    return f"{fmt.per_cent(start.busy)} of the CPU busy at {first.label}, {share} at {full[0].label}"


def roles(model: ReportModel) -> str:
    """Which processes used the processor."""
    rows = [f.roles for _, f, _ in model.measured() if f.roles]
    if not rows:
        return "No telemetry"
    total = sum(sum(use.values()) for use in rows)
    if total <= 0:
        return "No process used the CPU"
    router, client, others = (max(use.get(role, 0.0) for use in rows) for role in ("router", "client", "others"))
    if model.cores and others > OTHERS * model.cores:
        return f"Background CPU load: up to {others:.1f} of the {model.cores} cores"
    return (
        f"{fmt.percent(sum(use.get('shards', 0.0) for use in rows) / total)} % of the CPU used is the shards'; "
        f"router at most {router:.2f}, client {client:.2f} cores"
    )


def disk(model: ReportModel) -> str:
    """Whether the documents take more room on more shards, and what the processes add."""
    storages = [point.storage for point in model.ordered if point.storage is not None]
    if not storages:
        return "No disk use reported"
    low, high = min(s.total for s in storages), max(s.total for s in storages)
    if low > 0 and high / low < 1 + SAME:
        taken = fmt.size(high) + (" at every point" if len(storages) > 1 else "")
    else:
        taken = f"{fmt.size(low)} to {fmt.size(high)}"
    folders = [storage.db_path for storage in storages if storage.db_path is not None]
    grown = len(folders) > 1 and max(folders) > min(folders) * (1 + SAME)
    growth = f"; the folders grow to {fmt.size(max(folders))}" if grown else ""
    return f"Documents and indexes take {taken}{growth}"


def order(model: ReportModel) -> str:
    """Whether the machine changed while the run went."""
    for point in model.points:
        change = drift(model, point)
        if change is not None and abs(change) > DRIFT:
            what = "higher" if change > 0 else "lower"
            return f"Drift: {point.label} was {fmt.per_cent(abs(change))} {what} at the end than its median"
        if change is not None:
            return f"No drift: {point.label} at the end within {fmt.per_cent(max(abs(change), 0.01))} of its median"
    return "Repetitions in the order they were taken"
