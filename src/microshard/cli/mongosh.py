"""`microshard mongosh`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option


@click.command("mongosh", context_settings={"ignore_unknown_options": True})
@click.argument("name", required=False)
@click.argument("words", nargs=-1, metavar="[OPTION]...")
@click.option("--run", metavar="RUN", help="Which run; the newest that is up when left out.")
@click.option("--point", metavar="POINT", help="Which of its deployed points, by id or label.")
@runs_option
def command(name: str | None, words: tuple[str, ...], run: str | None, point: str | None, runs: Path) -> None:
    """Open mongosh on a run's cluster, or on one process; OPTIONs are mongosh's own."""
    from microshard.run.remote_commands import found, hand_over, mongosh

    if name is not None and name.startswith("-"):
        words = (name, *words)
        name = None
    up = found(runs, run, point)
    hand_over(up, mongosh(up, name, words))
