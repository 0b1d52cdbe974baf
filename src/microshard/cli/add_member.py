"""`microshard add-member`."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from microshard.cli.options import runs_option
from microshard.errors import EXIT_INTERRUPTED


@click.command("add-member")
@click.argument("name", required=False, metavar="[RUN]")
@click.option("--set", "replica_set", metavar="NAME", help="The replica set, where there are several: shard01.")
@runs_option
def command(name: str | None, replica_set: str | None, runs: Path) -> int:
    """Add a member to a replica set that is up, and wait until it is SECONDARY.

    A process that waits (`initial: false`) becomes one; where there is none, another is started. `down` removes it too.
    Ctrl-C ends the waiting, not the member.
    """
    from rich.console import Console

    from microshard.errors import RunFolderError
    from microshard.interrupts import Stopped, signals
    from microshard.run.cluster import pick
    from microshard.run.members import add_member
    from microshard.run.stage_line import StageLine

    chosen = pick(runs, (name,) if name else ())
    if not chosen:
        raise RunFolderError(f"{runs}: nothing is up; first: microshard up FILE")
    console = Console(stderr=True)
    try:
        with signals(), StageLine(console) as line:
            added = add_member(chosen[-1], replica_set, line)
    except Stopped as stopped:
        console.print("No longer waited for; the member goes on with its initial sync.")
        return EXIT_INTERRUPTED if stopped.number == signal.SIGINT else 128 + stopped.number
    click.echo(f"{added.name} is a member of {added.replica_set}: {added.endpoint}")
    return 0
