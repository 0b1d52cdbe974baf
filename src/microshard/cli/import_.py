"""`microshard import`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@runs_option
def command(file: Path, runs: Path) -> None:
    """Check a file of `microshard export`, make it a run here and show it.

    It can then be shown, compared, and run again by its experiment.lock.yml.
    """
    from rich.console import Console

    from microshard.records.import_bundle import unpack
    from microshard.report import build
    from microshard.report.table import final

    run = unpack(file, runs)
    console = Console()
    console.print(final(build(run.path), width=console.width))
    click.echo(f"Imported: {run.path}")
    if (run / "experiment.lock.yml").exists():
        click.echo(f"Run it again: microshard run {run / 'experiment.lock.yml'}")
    click.echo(f"Compare: microshard compare {run.run_id} RUN")
