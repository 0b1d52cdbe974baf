"""`microshard plan`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from microshard.cli.options import experiment_options, runs_option


@click.command("plan")
@experiment_options
@runs_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan as JSON.")
def command(file: Path, scale: str | None, overrides: dict[str, Any], runs: Path, as_json: bool) -> None:
    """Show processes, ports, caches, disk, time and order; do nothing."""
    from rich.console import Console

    from microshard.plan.render import render
    from microshard.run.prepare import prepared

    with prepared(file, scale=scale, overrides=overrides, runs=runs) as ready:
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(ready.plan), indent=1, default=str))
        else:
            render(ready.plan, Console())
