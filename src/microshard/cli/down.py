"""`microshard down`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option
from microshard.errors import EXIT_LEFT


@click.command("down")
@click.argument("names", nargs=-1, metavar="[RUN]...")
@runs_option
def command(names: tuple[str, ...], runs: Path) -> int:
    """Stop runs (all with processes when none is named) and remove their data; results and logs stay."""
    from rich.console import Console

    from microshard.run.cluster import down, pick
    from microshard.run.stage_line import StageLine

    left = []
    chosen = pick(runs, names, unclean=True)
    for folder in chosen:
        with StageLine(Console(stderr=True)) as line:
            left += down(folder, line)
        click.echo(f"{folder.run_id}: down")
    if not chosen:
        click.echo(f"Nothing is running in {runs}.")
    for item in left:
        click.echo(f"left behind: {item}", err=True)
    return EXIT_LEFT if left else 0
