"""`microshard ssh`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from microshard.cli.options import runs_option


@click.command("ssh")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.option("--run", metavar="RUN", help="Which run; the newest that is up when left out.")
@click.option("--point", metavar="POINT", help="Which of its deployed points, by id or label.")
@runs_option
def command(name: str, words: tuple[str, ...], run: str | None, point: str | None, runs: Path) -> None:
    """Log in on a host of a run, by its name or that of a process on it; on this machine a shell where it lies."""
    from microshard.run.remote_commands import found, hand_over, shell

    up = found(runs, run, point)
    line, folder = shell(up, name)
    if folder is not None:
        os.chdir(folder)
    line = up.on(up.host_of(name), *words) if words else line
    hand_over(up, line)
