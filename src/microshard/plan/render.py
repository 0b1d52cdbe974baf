"""A plan as text: tables, labels and durations."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from microshard.model.plan import Plan, Point

_MOST_ROWS = 40


def render(plan: Plan, console: Console) -> None:
    """Print a plan: points, processes, cache arithmetic, disk, time, order and warnings."""

    def line(text: str = "") -> None:
        console.print(text, highlight=False, soft_wrap=True)

    facts, cache = plan.facts, plan.points[0].cache
    line(f"[bold]{plan.title}[/bold] ({plan.name})")
    ram = f"{facts['ram_mib']:,.0f} MiB of RAM" if facts["ram_mib"] else "RAM unknown"
    where = "on this machine" if plan.backend == "local" else f"on {plan.backend}, the shard hosts"
    line(f"{where}: {facts['cores']} cores, {ram}")
    line()
    console.print(_points(plan))
    of = f" of {cache.ram_mib:,.0f} MiB of RAM" if cache.ram_mib else ""
    line(f"Cache policy {cache.policy}{of}; config servers are not included.")
    line()
    largest = max(plan.points, key=lambda p: len(p.processes))
    console.print(_processes(largest))
    console.print(_phases(largest))
    line(_order(plan))
    once = "each point is deployed and loaded once, and paused (SIGSTOP) while others are measured"
    redeploy = once if plan.redeploy == "per_point" else "each point is deployed and loaded for every repetition"
    line(f"Deployment: {redeploy}; teardown: {plan.teardown}.")
    free = f" ({facts['free_disk_bytes'] / 1e9:.0f} GB are free)" if facts["free_disk_bytes"] else ""
    line(
        f"Peak: about {plan.memory_mib:,} MiB of RAM and {plan.disk_bytes / 1e9:.1f} GB of disk{free}. "
        f"Time: about {duration(plan.estimate_seconds)}."
    )
    for warning in plan.warnings:
        console.print(f"[yellow]note:[/yellow] {warning}", highlight=False)


def _table(title: str, *, header: bool = True) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.show_header = header
    return table


def _points(plan: Plan) -> Table:
    table = _table("Points")
    for name in ("", "point"):
        table.add_column(name, no_wrap=True)
    for name in ("procs", "ports", "cache, MiB", "disk, GB", "RAM, MiB", "load", "rep."):
        table.add_column(name, justify="right", no_wrap=True)
    for point in plan.points[:_MOST_ROWS]:
        ports, cache = [p.port for p in point.processes], point.cache
        fixed = f" + {cache.own_mib:,.6g}" if cache.own_mib else ""
        table.add_row(
            point.id,
            point.label,
            str(len(point.processes)),
            f"{min(ports)}–{max(ports)}" if len(ports) > 1 else str(ports[0]),
            f"{cache.processes} × {cache.per_process_mib:,.6g}{fixed} = {cache.total_mib:,.6g}",
            f"{point.disk_bytes / 1e9:.2f}",
            f"{point.memory_mib:,}",
            duration(point.load_seconds),
            duration(point.measure_seconds),
        )
    if len(plan.points) > _MOST_ROWS:
        table.caption = f"and {len(plan.points) - _MOST_ROWS:,} more (--json shows all)"
    return table


def _processes(point: Point) -> Table:
    table = _table(f"Processes of {point.id} ({point.label})")
    for name in ("name", "role", "host", "port", "replica set", "cache", "cores", "folder in the run"):
        table.add_column(name, justify="right" if name in {"port", "cache", "cores"} else "left")
    for process in point.processes:
        cache = f"{process.cache_mib:,.6g} MiB" if process.cache_mib else ""
        cores = f"{process.cpu_share:.2g}" if process.cpu_share else ""
        named = (process.name, process.role, process.host, str(process.port), process.replica_set or "")
        table.add_row(*named, cache, cores, process.folder)
    return table


def _phases(point: Point) -> Table:
    table = _table("Workload", header=False)
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
