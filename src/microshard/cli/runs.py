"""Commands about run folders: report, list, show, watch, rm, export, import, compare."""

import json
import threading
from dataclasses import asdict
from pathlib import Path

import click

from microshard.cli.backends import has_processes, in_use
from microshard.cli.options import json_option, runs_option, share
from microshard.errors import EXIT_NOT_COMPARABLE, EXIT_WORSE
from microshard.interrupts import Stopped, signals
from microshard.records.run_folder import RunFolder, find_runs
from microshard.run.catalog import NOT_RUNNING, named, named_or_latest, remove, summaries, summary


@click.command("report")
@click.argument("name", required=False, metavar="[RUN]")
@runs_option
def report(name: str | None, runs: Path) -> None:
    """Print the figures of a run (by default the newest) and write its report again."""
    from rich.console import Console

    from microshard.report import build, write
    from microshard.report.table import final

    folder = named_or_latest(runs, name)
    console = Console()
    console.print(final(build(folder.path), width=console.width))
    console.print(f"Report: {write(folder.path)}", soft_wrap=True, highlight=False)


@click.command("list")
@json_option
@runs_option
def list_runs(as_json: bool, runs: Path) -> None:
    """List runs, the newest last."""
    from rich.console import Console

    from microshard.terminal_table import FittingTable, texts

    found = summaries(runs, has_processes)
    if as_json:
        click.echo(json.dumps([asdict(item) for item in found], indent=1))
        return
    if not found:
        click.echo(f"No runs in {runs.absolute()}.")
        return
    columns = [
        texts("run", [item.run_id for item in found], 0),
        texts("state", [item.state for item in found], 1),
        texts("measured", [f"{item.done} of {item.planned}" for item in found], 2, right=True),
        texts("size\nMB", [f"{item.bytes / 1e6:,.1f}" for item in found], 3, right=True),
    ]
    Console().print(FittingTable(columns, None, elsewhere="--json has all", least=max(len(i.run_id) for i in found)))
    for item in found:
        name = RunFolder(runs.absolute() / item.run_id).named
        if item.state in {"orphaned", "aborted"}:
            click.echo(
                f"{item.state}: microshard resume {name} continues it; microshard down {name} removes what is left"
            )
        elif item.state == NOT_RUNNING:
            click.echo(f"{item.state}: microshard down {name} removes what is left")


@click.command("show")
@click.argument("name", required=False, metavar="[RUN]")
@runs_option
def show(name: str | None, runs: Path) -> None:
    """Show a run (by default the newest): its figures, its machine and where its files are."""
    from rich.console import Console

    from microshard.report import build
    from microshard.report.table import final

    run = named_or_latest(runs, name)
    model, about = build(run.path), summary(run, has_processes)
    console = Console()
    console.print(final(model, width=console.width))
    host = ", ".join(f"{key} {value}" for key, value in model.host.items() if value not in {"", None})
    lines = {
        "run": f"{run.run_id}, {about.when}, {about.state}, {about.bytes / 1e6:,.1f} MB",
        "machine": host or "not recorded",
        "microshard": model.version,
        "definition": run / "experiment.yml",
        "again": f"microshard run {run / 'experiment.lock.yml'}",
        "report": run / "report" / "report.html",
    }
    for key, value in lines.items():
        console.print(f"[dim]{key:>10}[/dim]  {value}", highlight=False, soft_wrap=True)


@click.command("watch")
@click.argument("name", required=False, metavar="[RUN]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the page; by default a free one.")
@click.option(
    "--prometheus", type=click.IntRange(0, 65535), metavar="PORT", help="Also serve /metrics there for Prometheus."
)
@runs_option
def watch(name: str | None, port: int, prometheus: int | None, runs: Path) -> int:
    """Serve a page on loopback that shows a run while it goes on, and its report when it has ended.

    By default the run that is being executed, else the newest. The page reads the run's files only; Ctrl-C ends it.
    Whoever has the address sees the page: it contains a token.
    """
    from microshard.run.live import Watch
    from microshard.run.live_server import LiveServer

    executed = [] if name else [run for run in find_runs(runs) if run.is_executed()]
    run = executed[-1] if executed else named_or_latest(runs, name)
    server = LiveServer(Watch(run, has_processes), port, prometheus)
    click.echo(f"{run.run_id}: {server.url}")
    if server.metrics_url:
        click.echo(f"Prometheus: {server.metrics_url}")
    click.echo("Ctrl-C ends this page, not the run.", err=True)
    try:
        with signals():
            threading.Event().wait()
    except Stopped:
        server.close()
    return 0


@click.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="RUN...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@runs_option
def rm(names: tuple[str, ...], yes: bool, runs: Path) -> None:
    """Remove runs with all their results, logs and reports. Runs with processes are left alone."""
    for run in named(runs, names):
        about = summary(run, has_processes)
        question = f"Remove {run.run_id} ({about.done} of {about.planned} measured, {about.bytes / 1e6:,.1f} MB)?"
        if yes or click.confirm(question):
            remove(run, in_use)
            click.echo(f"{run.run_id}: removed")


@click.command("export")
@click.argument("name", required=False, metavar="[RUN]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File; default RUN.microshard.tgz."
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@runs_option
def export(name: str | None, output: Path | None, force: bool, runs: Path) -> None:
    """Export a run (by default the newest) as a shareable bundle, one file.

    It has definition, lock, plan, results, histograms, telemetry and report; addresses, accounts, users, paths, keys
    and passwords are removed, and logs are left out.
    """
    from rich.console import Console
    from rich.progress import Progress

    from microshard.records import bundle
    from microshard.records.redaction import for_run
    from microshard.this_machine import project_root

    run = named_or_latest(runs, name)
    target = output or Path(f"{run.run_id}{bundle.SUFFIX}")
    if target.exists() and not force:
        raise click.UsageError(f"{target} exists already; --force replaces it")
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("writing")
        redact = for_run(run.path, project_root())
        size = bundle.export(run, target, redact, lambda done, total: bar.update(task, completed=done, total=total))
    click.echo(f"{target}: {size / 1e3:,.0f} kB")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@runs_option
def import_bundle(file: Path, runs: Path) -> None:
    """Import a bundle: check a file of `microshard export`, add it to the runs and show it.

    It can then be shown, compared, and run again by its experiment.lock.yml.
    """
    from rich.console import Console

    from microshard.records.bundle import unpack
    from microshard.report import build, write
    from microshard.report.table import final

    run = unpack(file, runs)
    console = Console()
    console.print(final(build(run.path), width=console.width))
    click.echo(f"Imported: {run.path}")
    click.echo(f"Report, made here of its results: {write(run.path)}")
    if (run / "experiment.lock.yml").exists():
        click.echo(f"Run it again: microshard run {run / 'experiment.lock.yml'}")
    click.echo(f"Compare: microshard compare {run.run_id} RUN")


@click.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="RUN RUN...")
@click.option(
    "--tolerance", default="0%", show_default=True, callback=share, help="Changes up to this share are ignored."
)
@json_option
@runs_option
def compare(names: tuple[str, ...], tolerance: float, as_json: bool, runs: Path) -> int:
    """Compare runs with the first one, point by point; names of runs or their folders.

    Ends with exit code 6 when a run is worse than the first one at any point by more than the tolerance, and with 7
    when points cannot be compared because other data was loaded or another query measured.
    """
    if len(names) < 2:
        raise click.UsageError("two runs or more; `microshard list` shows them")
    from rich.console import Console

    from microshard.analysis import comparison
    from microshard.report import comparison as render

    base, *others = named(runs, names)
    found = [comparison.compare(base.path, other.path, tolerance) for other in others]
    if as_json:
        click.echo(json.dumps([render.as_json(item) for item in found], indent=1, default=str))
    else:
        for item in found:
            render.render(item, Console())
    if any(item.worse for item in found):
        return EXIT_WORSE
    return EXIT_NOT_COMPARABLE if any(item.incomparable for item in found) else 0
