"""`microshard list`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from microshard.cli.options import runs_option


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@runs_option
def command(as_json: bool, runs: Path) -> None:
    """List the runs there are, the newest last."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from microshard.run.catalog import entries

    found = entries(runs)
    if as_json:
        click.echo(json.dumps([entry.as_json() for entry in found], indent=1))
        return
    if not found:
        click.echo(f"No runs in {runs}.")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in (("run", False), ("state", False), ("measured", True), ("size", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=name == "run", overflow="fold")
    for entry in found:
        table.add_row(entry.run_id, entry.state, f"{entry.done} of {entry.planned}", f"{entry.bytes / 1e6:,.1f} MB")
    Console().print(table)
