"""`microshard status`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option


@click.command("status")
@runs_option
@click.option("--all", "everything", is_flag=True, help="Also runs of which nothing is running.")
def command(runs: Path, everything: bool) -> None:
    """Show which runs have processes, and how to reach them."""
    from microshard.run.cluster import status

    shown = [s for s in status(runs) if everything or s.processes]
    if not shown:
        click.echo(f"Nothing is running in {runs}." if not everything else f"No runs in {runs}.")
    for item in shown:
        click.echo(f"{item.run.run_id}: {item.processes} processes, {item.state}")
        for label, connection in item.points:
            click.echo(f"  {label}: {connection}")
