"""`microshard show`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option


@click.command("show")
@click.argument("name", required=False, metavar="[RUN]")
@runs_option
def command(name: str | None, runs: Path) -> None:
    """Show a run (the newest when none is named): its figures, its machine and where its files are."""
    from rich.console import Console

    from microshard.report import build
    from microshard.report.table import final
    from microshard.run.catalog import entry
    from microshard.run.cluster import latest, pick

    run = pick(runs, (name,))[0] if name else latest(runs)
    model, about = build(run.path), entry(run)
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
