"""`microshard report`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option


@click.command("report")
@click.argument("name", required=False, metavar="[RUN]")
@runs_option
def command(name: str | None, runs: Path) -> None:
    """Print the figures of a run (the newest when none is named) and write its report again."""
    from rich.console import Console

    from microshard.report import build, write
    from microshard.report.table import final
    from microshard.run.cluster import latest, pick

    folder = pick(runs, (name,))[0] if name else latest(runs)
    console = Console()
    console.print(final(build(folder.path), width=console.width))
    console.print(f"Report: {write(folder.path)}", soft_wrap=True, highlight=False)
