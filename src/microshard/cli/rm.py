"""`microshard rm`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option


@click.command("rm")
@click.argument("names", nargs=-1, required=True, metavar="RUN...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@runs_option
def command(names: tuple[str, ...], yes: bool, runs: Path) -> None:
    """Remove runs with all their results, logs and reports. Runs with processes are left alone."""
    from microshard.run.catalog import entry, remove
    from microshard.run.cluster import pick

    chosen = pick(runs, names)
    for run in chosen:
        about = entry(run)
        question = f"Remove {run.run_id} ({about.done} of {about.planned} measured, {about.bytes / 1e6:,.1f} MB)?"
        if yes or click.confirm(question):
            remove(run)
            click.echo(f"{run.run_id}: removed")
