"""The command advise: the best shard count instead of a whole grid."""

import re
from pathlib import Path
from typing import Any

import click

from microshard.cli.backends import chosen
from microshard.cli.imported import confirm_programs
from microshard.cli.options import experiment_options, on_option, runs_option, share, yes_option
from microshard.cli.user_data import DataOptions, data_options

_MOST_COUNT = 1024


def _counts(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """`1-16` or `1,2,4,8` as numbers."""
    if value is None:
        return None
    found: set[int] = set()
    for part in value.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= low <= high <= _MOST_COUNT:
            raise click.BadParameter(f"{part!r}: numbers of shards such as 1-16 or 1,2,4,8")
        found |= set(range(low, high + 1))
    return tuple(sorted(found))


@click.command("advise")
@experiment_options
@click.option("--counts", callback=_counts, metavar="1-16", help="Shard counts, instead of all between the matrix'.")
@click.option("--phase", metavar="NAME", help="Whose figure decides; by default the first measured phase's.")
@click.option(
    "--points", type=click.IntRange(min=1), help="At most so many measurements. [default: a third of the full grid]"
)
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True),
    help="End after the measurement in which they are over. [default: the experiment's budget.max_hours]",
)
@click.option("--certainty", default="95%", show_default=True, callback=share, help="Of the answer and its interval.")
@click.option("--tolerance", default="3%", show_default=True, callback=share, help="Counts this close are as good.")
@click.option("--seed", type=click.IntRange(min=0), help="Same seed, same choices. [default: order.seed]")
@data_options
@runs_option
@on_option
@yes_option
def advise(
    file: Path, scale: str | None, overrides: dict[str, Any], runs: Path, on: str, yes: bool, **options: Any
) -> int:
    """Search the best shard count of an experiment, instead of measuring every point of its matrix.

    Chooses counts one after the other: doubling until it gets slower, then between, then repetitions where they
    decide. The answer is a sentence with its certainty and its price. Interrupted, `microshard resume` goes on. On this
    machine or on hosts of an inventory; not on EC2 yet.

    With --from it is the answer for your data: a copy of a collection, kept in data/ beside the runs, replaces what the
    experiment loads, and with --queries recorded queries replace what it measures. Your deployment is only read.
    """
    from rich.console import Console

    from microshard.experiment.load import load, scale_for
    from microshard.plan.search_grid import AXIS, SearchOptions, search_of
    from microshard.plan.user_data import changes_for
    from microshard.run.execute import execute
    from microshard.run.prepare import prepared

    if on == "ec2":
        raise click.UsageError("advise does not run on EC2 yet; on hosts you have: --on INVENTORY")
    data = DataOptions.taken_from(options)
    if not 0.5 <= options["certainty"] < 1:
        raise click.BadParameter("50% or more, below 100%", param_hint="--certainty")
    scale, why = scale_for(file, scale, on)
    if why:
        click.echo(why)
    confirm_programs(file, scale, overrides, yes=yes)
    experiment = load(file, scale=scale, overrides=overrides).experiment
    if data.source is not None:
        counts = options["counts"] or experiment.matrix.axes.get(AXIS) or [1]
        found = data.copied(runs / "data", experiment.order.seed, max(map(int, counts)))
        overrides = {**overrides, **changes_for(experiment, found)}
        experiment = load(file, scale=scale, overrides=overrides).experiment
    request, changed = search_of(experiment, SearchOptions(**options))
    changed = {**overrides, **changed}
    with prepared(file, scale=scale, overrides=changed, runs=runs, backend=chosen(on), search=request) as ready:
        return execute(ready, runs, Console())
