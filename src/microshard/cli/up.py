"""`microshard up`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from microshard.cli.options import experiment_options, on_option, runs_option, yes_option


@click.command("up")
@experiment_options
@runs_option
@on_option
@yes_option
@click.option(
    "--point", metavar="POINT", help="Which point, by id or label (p03, '4 shards'); the first when left out."
)
def command(
    file: Path, scale: str | None, overrides: dict[str, Any], runs: Path, on: str, yes: bool, point: str | None
) -> int:
    """Start a point of an experiment and print its connection string; it stays until `down`."""
    from rich.console import Console

    from microshard.backends.base import chosen
    from microshard.interrupts import Stopped
    from microshard.run.cluster import choose, up
    from microshard.run.prepare import prepared
    from microshard.run.stage_line import StageLine
    from microshard.run.trust import ask

    ask(file, scale, overrides, yes=yes)
    console = Console(stderr=True)
    with prepared(file, scale=scale, overrides=overrides, runs=runs, backend=chosen(on)) as ready:
        picked = dataclasses.replace(ready, plan=choose(ready.plan, point))
        try:
            with StageLine(console) as line:
                folder = up(picked, runs, line)
        except Stopped as stopped:
            console.print("Stopped; everything that was started is stopped.")
            return stopped.exit_code
    (only,) = picked.plan.points
    console.print(
        f"{only.label} are up in {folder.path}; stop with: microshard down {folder.run_id}",
        highlight=False,
        soft_wrap=True,
    )
    click.echo(only.connection_string)
    return 0
