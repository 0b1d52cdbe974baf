"""`microshard run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from microshard.cli.options import experiment_options, on_option, runs_option, yes_option


@click.command("run")
@experiment_options
@runs_option
@on_option
@yes_option
@click.option("--keep", is_flag=True, help="Leave the deployments running at the end (teardown: keep).")
def command(
    file: Path, scale: str | None, overrides: dict[str, Any], runs: Path, on: str, yes: bool, keep: bool
) -> int:
    """Run an experiment and write its report."""
    from rich.console import Console

    from microshard.backends.base import chosen
    from microshard.run.execute import execute
    from microshard.run.prepare import prepared
    from microshard.run.trust import ask

    if keep:
        overrides = {**overrides, "teardown": "keep"}
    ask(file, scale, overrides, yes=yes)
    if on == "ec2":
        from microshard.backends.ec2.execute import execute_on_ec2

        return execute_on_ec2(file, scale, overrides, runs, Console())
    with prepared(file, scale=scale, overrides=overrides, runs=runs, backend=chosen(on)) as ready:
        return execute(ready, runs, Console())
