"""`microshard logs`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option


@click.command("logs")
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Go on showing what is added.")
@click.option("-n", "--lines", default=20, show_default=True, help="How many of the last lines.")
@click.option("--run", metavar="RUN", help="Which run; the newest that is up when left out.")
@click.option("--point", metavar="POINT", help="Which of its deployed points, by id or label.")
@runs_option
def command(name: str, follow: bool, lines: int, run: str | None, point: str | None, runs: Path) -> None:
    """Show the log of a process of a run, wherever it runs."""
    from microshard.run.remote_commands import found, hand_over, log

    up = found(runs, run, point)
    hand_over(up, log(up, name, follow=follow, lines=lines))
