"""The command advise: the best shard count instead of a whole grid."""

import re
from pathlib import Path
from typing import Any

import click

from microshard.cli.backends import chosen
from microshard.cli.imported import confirm_programs
from microshard.cli.options import (
    experiment_options,
    on_option,
    only_on_ec2,
    parallel_option,
    runs_option,
    share,
    yes_option,
)
from microshard.cli.user_data import DataOptions, data_options

_MOST_COUNT = 1024
_POSITIVE = click.FloatRange(min=0, min_open=True)


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
@click.option("--cost", type=_POSITIVE, metavar="USD", help="On EC2: end before this is exceeded, at listed prices.")
@click.option(
    "--objective",
    metavar="FIGURE",
    help="What is to be best: a figure of the phase such as 'query time', throughput or 'p99 latency', at the rate the "
    "experiment has; 'load time'; on EC2 'cost per operation'. [default: the question's, else the phase's metric]",
)
@click.option("--max-ram", type=_POSITIVE, metavar="GIB", help="Only points whose servers use no more on any host.")
@click.option("--max-disk", type=_POSITIVE, metavar="GIB", help="The same of the disk space of their data folders.")
@click.option("--max-p99", type=_POSITIVE, metavar="MS", help="Only points with this latency or less in the phase.")
@data_options
@runs_option
@on_option
@parallel_option
@yes_option
def advise(
    file: Path,
    scale: str | None,
    overrides: dict[str, Any],
    runs: Path,
    on: str,
    parallel: int,
    yes: bool,
    **options: Any,
) -> int:
    """Search the best shard count of an experiment, instead of measuring every point of its matrix.

    Chooses counts one after the other: doubling until it gets slower, then between, then repetitions where they
    decide. Up to three other axes of the matrix are searched with it, by successive halving: of compressors, cache
    policies, readahead, NUMA policies, instance or volume types the better half stays after each round. The answer is a
    sentence with its certainty and its price. Interrupted, `microshard resume` goes on.

    With --from it is the answer for your data: a copy of a collection, kept in data/ beside the runs, replaces what the
    experiment loads, and with --queries recorded queries replace what it measures. Your deployment is only read.
    """
    from rich.console import Console

    from microshard.experiment.load import load, scale_for
    from microshard.model.advice import COST
    from microshard.plan.search_grid import AXIS, SearchOptions, search_of
    from microshard.plan.user_data import changes_for
    from microshard.run.execute import execute
    from microshard.run.prepare import prepared

    only_on_ec2(parallel, on)
    if on != "ec2" and (options["cost"] is not None or options["objective"] == COST):
        raise click.UsageError(f"--cost and --objective '{COST}' need prices: --on ec2")
    data = DataOptions.taken_from(options)
    if not 0.5 <= options["certainty"] < 1:
        raise click.BadParameter("50% or more, below 100%", param_hint="--certainty")
    scale, why = scale_for(file, scale, on)
    if why:
        Console().print(why, highlight=False, markup=False)
    confirm_programs(file, scale, overrides, yes=yes)
    experiment = load(file, scale=scale, overrides=overrides).experiment
    if data.source is not None:
        counts = options["counts"] or experiment.matrix.axes.get(AXIS) or [1]
        found = data.copied(runs / "data", experiment.order.seed, max(map(int, counts)))
        overrides = {**overrides, **changes_for(experiment, found)}
        experiment = load(file, scale=scale, overrides=overrides).experiment
    request, changed = search_of(experiment, SearchOptions(**options))
    changed = {**overrides, **changed}
    if on == "ec2":
        from microshard.backends.ec2.runs import run_on_ec2

        return run_on_ec2(file, scale, changed, runs, Console(), parallel=parallel, search=request)
    with prepared(file, scale=scale, overrides=changed, runs=runs, backend=chosen(on), search=request) as ready:
        return execute(ready, runs, Console())
