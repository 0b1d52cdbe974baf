"""`microshard plan`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from microshard.cli.options import experiment_options, on_option, runs_option


@click.command("plan")
@experiment_options
@runs_option
@on_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan as JSON.")
def command(file: Path, scale: str | None, overrides: dict[str, Any], runs: Path, on: str, as_json: bool) -> None:
    """Show processes, ports, caches, disk, time and order, on EC2 hosts, volumes and prices; do nothing."""
    from rich.console import Console

    from microshard.backends.base import chosen
    from microshard.plan.render import render
    from microshard.run.prepare import prepared

    if on == "ec2":
        _on_ec2(file, scale, overrides, as_json=as_json)
        return
    with prepared(file, scale=scale, overrides=overrides, runs=runs, backend=chosen(on)) as ready:
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(ready.plan), indent=1, default=str))
        else:
            render(ready.plan, Console())


def _on_ec2(file: Path, scale: str | None, overrides: dict[str, Any], *, as_json: bool) -> None:
    from rich.console import Console

    from microshard.backends.ec2.ec2_plan import plan_ec2
    from microshard.backends.ec2.render import show
    from microshard.plan.render import render

    seen = plan_ec2(file, scale=scale, overrides=overrides)
    if as_json:
        told = {**dataclasses.asdict(seen.plan), "ec2": seen.view.as_json()}
        click.echo(json.dumps(told, indent=1, default=str))
    else:
        console = Console()
        render(seen.plan, console)
        console.print()
        show(seen.view, console)
    seen.refuse_broken()
