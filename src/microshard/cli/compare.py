"""`microshard compare`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from microshard.cli.options import runs_option
from microshard.errors import EXIT_WORSE


def _share(_ctx: click.Context, _parameter: click.Parameter, value: str) -> float:
    text = value.strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise click.BadParameter("a share such as 5% or 0.05, below 100 %")
    return share


@click.command("compare")
@click.argument("names", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--tolerance", default="0%", show_default=True, callback=_share, help="Change that is taken for none.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@runs_option
def command(names: tuple[str, ...], tolerance: float, as_json: bool, runs: Path) -> int:
    """Compare runs with the first one, point by point; names of runs or their folders.

    Ends with exit code 6 when a run is worse than the first one at any point beyond the tolerance.
    """
    if len(names) < 2:
        raise click.UsageError("two runs or more; `microshard list` shows them")
    from rich.console import Console

    from microshard.analysis.comparison import compare
    from microshard.report import comparison as render
    from microshard.run.cluster import pick

    base, *others = pick(runs, names)
    found = [compare(base.path, other.path, tolerance) for other in others]
    if as_json:
        click.echo(json.dumps([render.as_json(item) for item in found], indent=1, default=str))
    else:
        for item in found:
            render.render(item, Console())
    return EXIT_WORSE if any(item.worse for item in found) else 0
