"""A plan as text: tables, labels and durations."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from microshard.model.plan import Plan, Point

_MOST_ROWS = 40


def render(plan: Plan, console: Console) -> None:
    """Print a plan: points, processes, cache arithmetic, disk, time, order and warnings."""
    facts = plan.facts
    console.print(f"[bold]{plan.title}[/bold] ({plan.name})", highlight=False)
    ram = f"{facts['ram_mib']:,.0f} MiB of RAM" if facts["ram_mib"] else "RAM unknown"
    where = "on this machine" if plan.backend == "local" else f"on {plan.backend}, the shard hosts"
    console.print(f"{where}: {facts['cores']} cores, {ram}", highlight=False)
    console.print()
    console.print(_points(plan))
    cache = plan.points[0].cache
    of = f" of {cache.ram_mib:,.0f} MiB of RAM" if cache.ram_mib else ""
    console.print(f"Cache policy {cache.policy}{of}; config servers have their own.", highlight=False)
    console.print()
    largest = max(plan.points, key=lambda p: len(p.processes))
    console.print(_processes(largest))
    console.print(_phases(largest))
    console.print(_order(plan), highlight=False, soft_wrap=True)
    redeploy = (
        "each point is deployed and loaded once, and parked while others are measured"
        if plan.redeploy == "per_point"
        else "each point is deployed and loaded anew for every repetition"
    )
    console.print(f"Deployment: {redeploy}; teardown: {plan.teardown}.", highlight=False, soft_wrap=True)
    free = facts["free_disk_bytes"]
    console.print(
        f"At one time: about {plan.memory_mib:,} MiB of RAM and {plan.disk_bytes / 1e9:.1f} GB of disk"
        + (f" ({free / 1e9:.0f} GB are free)" if free else "")
        + f". Time: about {duration(plan.estimate_seconds)}.",
        highlight=False,
        soft_wrap=True,
    )
    for warning in plan.warnings:
        console.print(f"[yellow]note:[/yellow] {warning}", highlight=False)


def _points(plan: Plan) -> Table:
    table = Table(title="Points", title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("", "point"):
        table.add_column(name, no_wrap=True)
    for name in ("procs", "ports", "cache, MiB", "disk, GB", "RAM, MiB", "load", "rep."):
        table.add_column(name, justify="right", no_wrap=True)
    for point in plan.points[:_MOST_ROWS]:
        ports = [p.port for p in point.processes]
        cache = point.cache
        table.add_row(
            point.id,
            point.label,
            str(len(point.processes)),
            f"{min(ports)}–{max(ports)}" if len(ports) > 1 else str(ports[0]),
            f"{cache.processes} × {cache.per_process_mib:,.6g}"
            + (f" + {cache.own_mib:,.6g}" if cache.own_mib else "")
            + f" = {cache.total_mib:,.6g}",
            f"{point.disk_bytes / 1e9:.2f}",
            f"{point.memory_mib:,}",
            duration(point.load_seconds),
            duration(point.measure_seconds),
        )
    if len(plan.points) > _MOST_ROWS:
        table.caption = f"and {len(plan.points) - _MOST_ROWS:,} more (--json shows all)"
    return table


def _processes(point: Point) -> Table:
    table = Table(
        title=f"Processes of {point.id} ({point.label})",
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
        header_style="bold",
    )
    for name in ("name", "role", "host", "port", "replica set", "cache", "cores", "folder in the run"):
        table.add_column(name, justify="right" if name in {"port", "cache", "cores"} else "left")
    for process in point.processes:
        table.add_row(
            process.name,
            process.role,
            process.host,
            str(process.port),
            process.replica_set or "",
            f"{process.cache_mib:,.6g} MiB" if process.cache_mib else "",
            f"{process.cpu_share:.2g}" if process.cpu_share else "",
            process.folder,
        )
    return table


def _phases(point: Point) -> Table:
    table = Table(title="Workload", title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    for _ in range(4):
        table.add_column()
    for phase in point.phases:
        shown = {k: v for k, v in phase.parameters.items() if k != "pipeline" or not phase.parameters["pipeline_name"]}
        table.add_row(phase.name, phase.kind, phase.engine, ", ".join(f"{k} {v}" for k, v in shown.items()))
    return table


def _order(plan: Plan) -> str:
    shown = " ".join(s.point if s.purpose == "measure" else f"{s.point}(drift)" for s in plan.steps[:_MOST_ROWS])
    more = f" … ({len(plan.steps):,} in all)" if len(plan.steps) > _MOST_ROWS else ""
    return f"Order: {shown}{more}"


_MAX_LETTERS = 36  # of a mapping or list


def value_text(value: object) -> str:
    """A value in a few words, for labels: `none`, `true`, `threads 2, batch_size 10 …`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        text = ", ".join(f"{key} {value_text(inner)}" for key, inner in value.items())
    elif isinstance(value, list):
        text = ", ".join(value_text(inner) for inner in value) or "none"
    else:
        return str(value)
    return text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 2].rstrip(' ,')} …"


def duration(seconds: float) -> str:
    """A duration as text: `42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
