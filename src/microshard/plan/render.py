"""A plan as text: tables, labels and durations."""

import io

from rich.console import Console
from ruamel.yaml import YAML

from microshard.model.plan import Plan, Point
from microshard.terminal_table import FittingTable, texts

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
    line()
    line("[bold]Workload[/bold]")
    console.print(_phases(largest), highlight=False, soft_wrap=True, markup=False)
    line()
    line(_order(plan))
    once = "each point is deployed and loaded once, and paused (SIGSTOP) while others are measured"
    redeploy = once if plan.redeploy == "per_point" else "each point is deployed and loaded for every repetition"
    line(f"Deployment: {redeploy}; teardown: {plan.teardown}.")
    free = f" ({facts['free_disk_bytes'] / 1e9:.0f} GB are free)" if facts["free_disk_bytes"] else ""
    line(
        f"Peak: about {plan.memory_mib:,} MiB of RAM and {plan.disk_bytes / 1e9:.1f} GB of disk{free}. "
        f"Time: about {duration(plan.estimate_seconds)}."
    )
    line("The time assumes, measured on 2 cores with mongod 6.0.5 where nothing else is said (a run shows its own):")
    for assumption in plan.assumptions:
        line(f"  {assumption}")
    for warning in plan.warnings:
        console.print(f"[yellow]note:[/yellow] {warning}", highlight=False)


def _points(plan: Plan) -> FittingTable:
    shown = plan.points[:_MOST_ROWS]
    ports = [[process.port for process in point.processes] for point in shown]
    columns = [
        texts("point", [f"{point.id} {point.label}" for point in shown], 0),
        texts("processes", [str(len(point.processes)) for point in shown], 1, right=True),
        texts("ports", [f"{min(p)}–{max(p)}" if len(p) > 1 else str(p[0]) for p in ports], 6, right=True),
        texts("cache\nMiB", [_cache(point) for point in shown], 2, right=True),
        texts("disk\nGB", [f"{point.disk_bytes / 1e9:.2f}" for point in shown], 5, right=True),
        texts("RAM\nMiB", [f"{point.memory_mib:,}" for point in shown], 3, right=True),
        texts("load", [duration(point.load_seconds) for point in shown], 4, right=True),
        texts("repetition", [duration(point.measure_seconds) for point in shown], 4, right=True),
    ]
    more = f"and {len(plan.points) - _MOST_ROWS:,} more (--json shows all)" if len(plan.points) > _MOST_ROWS else ""
    return FittingTable(columns, None, "Points", more, elsewhere="--json has all")


def _cache(point: Point) -> str:
    cache = point.cache
    fixed = f" + {cache.own_mib:,.6g}" if cache.own_mib else ""
    return f"{cache.processes} × {cache.per_process_mib:,.6g}{fixed} = {cache.total_mib:,.6g}"


def _processes(point: Point) -> FittingTable:
    of = point.processes
    columns = [
        texts("name", [process.name for process in of], 0),
        texts("role", [process.role for process in of], 2),
        texts("host", [process.host for process in of], 1),
        texts("port", [str(process.port) for process in of], 1, right=True),
        texts("replica set", [process.replica_set or "" for process in of], 3),
        texts("cache", [f"{p.cache_mib:,.6g} MiB" if p.cache_mib else "" for p in of], 4, right=True),
        texts("cores", [f"{p.cpu_share:.2g}" if p.cpu_share else "" for p in of], 5, right=True),
        texts("folder in the run", [process.folder for process in of], 6),
    ]
    return FittingTable(
        columns, None, f"Processes of {point.id} ({point.label})", _limits(point), elsewhere="--json has all"
    )


def _limits(point: Point) -> str:
    """A line for each set of limits, with the processes that have it."""
    names: dict[str, list[str]] = {}
    for process in point.processes:
        limits = ", ".join(f"{key} {value:g}" for key, value in process.limits.items())
        names.setdefault(limits, []).append(process.name)
    return "\n".join(f"limits of {', '.join(of)}: {limits}" for limits, of in names.items() if limits)


def _phases(point: Point) -> str:
    """The workload as YAML, as it would stand in the experiment with every default."""
    phases = [
        {"phase": phase.name, "kind": phase.kind, "engine": phase.engine}
        | {k: v for k, v in phase.parameters.items() if k != "pipeline" or not phase.parameters["pipeline_name"]}
        for phase in point.phases
    ]
    yaml, text = YAML(), io.StringIO()
    yaml.default_flow_style = False
    yaml.width = 100
    yaml.representer.add_representer(type(None), lambda to, _: to.represent_scalar("tag:yaml.org,2002:null", "null"))
    yaml.dump(phases, text)
    return text.getvalue().rstrip()


def _order(plan: Plan) -> str:
    shown = " ".join(s.point if s.purpose == "measure" else f"{s.point}(drift)" for s in plan.steps[:_MOST_ROWS])
    more = f" … ({len(plan.steps):,} in all)" if len(plan.steps) > _MOST_ROWS else ""
    return f"Order: {shown}{more}"


def count(value: int, singular: str, plural: str | None = None) -> str:
    """`1 shard`, `2 shards`."""
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    """A duration as text: `42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
