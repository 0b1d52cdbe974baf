"""Commands about experiments: run, resume, plan, validate, schema, reference."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from microshard.cli.backends import chosen, of_run
from microshard.cli.imported import confirm_programs
from microshard.cli.options import FILE, experiment_options, json_option, on_option, runs_option, yes_option
from microshard.errors import EXIT_DEFINITION, RunFolderError

if TYPE_CHECKING:
    from rich.console import Console


@click.command("run")
@experiment_options
@runs_option
@on_option
@yes_option
@click.option("--keep", is_flag=True, help="Leave the deployments running at the end (teardown: keep).")
def run(file: Path, scale: str | None, overrides: dict[str, Any], runs: Path, on: str, yes: bool, keep: bool) -> int:
    """Run an experiment and write its report."""
    from rich.console import Console

    from microshard.run.execute import execute
    from microshard.run.prepare import prepared

    if keep:
        overrides = {**overrides, "teardown": "keep"}
    confirm_programs(file, scale, overrides, yes=yes)
    if on == "ec2":
        from microshard.backends.ec2.execute import run_on_ec2

        return run_on_ec2(file, scale, overrides, runs, Console())
    with prepared(file, scale=scale, overrides=overrides, runs=runs, backend=chosen(on)) as ready:
        return execute(ready, runs, Console())


@click.command("resume")
@click.argument("name", required=False, metavar="[RUN]")
@click.option("--as-begun", is_flag=True, help="Use the run's copy of the experiment although the file has changed.")
@yes_option
@runs_option
def resume(name: str | None, as_begun: bool, yes: bool, runs: Path) -> int:
    """Resume a run that was stopped or aborted (by default the newest such run).

    Finished measurements stay and are not repeated; points that failed are tried again.
    """
    from rich.console import Console

    from microshard.records.run_folder import find_runs
    from microshard.run.catalog import named
    from microshard.run.resume import resume, unfinished

    found = named(runs, [name]) if name else unfinished(find_runs(runs))
    if not found:
        raise RunFolderError(f"{runs}: no run has anything left to measure")
    folder = found[-1]
    confirm_programs(folder / "experiment.yml", None, {}, yes=yes)
    backend = of_run(folder)
    if backend.name == "ec2":
        from microshard.backends.ec2.execute import resume_on_ec2

        return resume(folder, backend, Console(), as_begun=as_begun, remaining=resume_on_ec2)
    return resume(folder, backend, Console(), as_begun=as_begun)


@click.command("plan")
@experiment_options
@runs_option
@on_option
@json_option
def plan(file: Path, scale: str | None, overrides: dict[str, Any], runs: Path, on: str, as_json: bool) -> None:
    """Show processes, ports, caches, disk, time and order, on EC2 hosts, volumes and prices; creates nothing."""
    from rich.console import Console

    from microshard.plan.render import render
    from microshard.run.prepare import prepared

    if on == "ec2":
        _plan_on_ec2(file, scale, overrides, Console(), as_json=as_json)
        return
    with prepared(file, scale=scale, overrides=overrides, runs=runs, backend=chosen(on)) as ready:
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(ready.plan), indent=1, default=str))
        else:
            render(ready.plan, Console())


def _plan_on_ec2(file: Path, scale: str | None, overrides: dict[str, Any], console: Console, *, as_json: bool) -> None:
    from microshard.backends.ec2.ec2_plan import plan_ec2
    from microshard.backends.ec2.render import show
    from microshard.plan.render import render

    planned = plan_ec2(file, scale=scale, overrides=overrides)
    if as_json:
        whole = {**dataclasses.asdict(planned.plan), "ec2": planned.estimate.as_json()}
        click.echo(json.dumps(whole, indent=1, default=str))
    else:
        render(planned.plan, console)
        console.print()
        show(planned.estimate, console)
    planned.raise_on_violations()


@click.command("validate")
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option("--scale", metavar="NAME", help="Check the experiment with this scale applied.")
def validate(files: tuple[Path, ...], scale: str | None) -> int:
    """Check experiment files: every key, every value, every point of the matrix."""
    from microshard.backends.ec2.limits import refuse_what_ec2_lacks
    from microshard.experiment.errors import DefinitionError, render
    from microshard.experiment.load import load
    from microshard.experiment.matrix import expand

    wrong = 0
    for file in files:
        try:
            loaded = load(file, scale=scale)
            points = expand(loaded)
            refuse_what_ec2_lacks(loaded, points)
            for name in () if scale else loaded.experiment.scales:
                of_scale = load(file, scale=name)
                refuse_what_ec2_lacks(of_scale, expand(of_scale))
        except DefinitionError as error:
            wrong += 1
            click.echo(str(error), err=True)
        else:
            if loaded.warnings:
                click.echo(render(loaded.warnings), err=True)
            for warning in dict.fromkeys(w for point in points for w in point.warnings):
                click.echo(f"{file}: warning: {warning}", err=True)
            click.echo(f"{file}: ok, {len(points)} point{'' if len(points) == 1 else 's'}")
    return EXIT_DEFINITION if wrong else 0


@click.command("schema")
def schema() -> None:
    """Print the JSON schema of experiment files."""
    from microshard.experiment.schema import schema_text

    click.echo(schema_text(), nl=False)


@click.command("reference")
def reference() -> None:
    """Print the reference of experiment files."""
    from microshard.experiment.reference import reference_text

    click.echo(reference_text(), nl=False)
