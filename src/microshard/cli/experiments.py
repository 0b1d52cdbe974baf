"""Commands about experiments: run, resume, plan, validate, experiments, new, import-mlaunch, schema, reference."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from microshard.cli.backends import chosen, of_run
from microshard.cli.imported import confirm_programs
from microshard.cli.options import (
    FILE,
    experiment_options,
    json_option,
    on_option,
    only_on_ec2,
    parallel_option,
    runs_option,
    yes_option,
)
from microshard.errors import EXIT_DEFINITION, RunFolderError

if TYPE_CHECKING:
    from rich.console import Console

    from microshard.model.plan import Plan
    from microshard.run.prepare import PreparedRun


@click.command("run")
@experiment_options
@runs_option
@on_option
@yes_option
@click.option("--keep", is_flag=True, help="Leave the deployments running at the end (teardown: keep).")
@parallel_option
def run(
    file: Path, scale: str | None, overrides: dict[str, Any], runs: Path, on: str, yes: bool, keep: bool, parallel: int
) -> int:
    """Run an experiment and write its report."""
    from rich.console import Console

    from microshard.experiment.load import scale_for
    from microshard.run.execute import execute
    from microshard.run.prepare import prepared

    only_on_ec2(parallel, on)
    if keep:
        overrides = {**overrides, "teardown": "keep"}
    scale, why = scale_for(file, scale, on)
    if why:
        Console().print(why, highlight=False, markup=False)
    confirm_programs(file, scale, overrides, yes=yes)
    if on == "ec2":
        from microshard.backends.ec2.runs import run_on_ec2

        return run_on_ec2(file, scale, overrides, runs, Console(), parallel=parallel)
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
        from microshard.backends.ec2.runs import resume_on_ec2

        return resume(folder, backend, Console(), as_begun=as_begun, remaining=resume_on_ec2)
    return resume(folder, backend, Console(), as_begun=as_begun)


@click.command("plan")
@experiment_options
@runs_option
@on_option
@json_option
@click.option("--as", "form", type=click.Choice(["mlaunch"]), help="Print each point as a command of mlaunch (mtools).")
@parallel_option
def plan(
    file: Path,
    scale: str | None,
    overrides: dict[str, Any],
    runs: Path,
    on: str,
    as_json: bool,
    form: str | None,
    parallel: int,
) -> None:
    """Show processes, ports, caches, disk, time and order, on EC2 hosts, volumes and prices; creates nothing."""
    from rich.console import Console

    from microshard.experiment.load import scale_for
    from microshard.plan.render import render
    from microshard.run.prepare import prepared

    only_on_ec2(parallel, on)
    if form and (as_json or on != "local"):
        raise click.UsageError("--as mlaunch goes with neither --json nor --on: mlaunch starts processes here")
    scale, why = scale_for(file, scale, on)
    if on == "ec2":
        _plan_on_ec2(file, scale, overrides, Console(), why=why, as_json=as_json, parallel=parallel)
        return
    if why and not as_json and not form:
        Console().print(why, highlight=False, markup=False)
    with prepared(file, scale=scale, overrides=overrides, runs=runs, backend=chosen(on)) as ready:
        if form:
            _show_mlaunch(ready.plan)
        elif as_json:
            click.echo(json.dumps(dataclasses.asdict(ready.plan), indent=1, default=str))
        else:
            render(ready.plan, Console())
            _show_data_images(ready, runs)


def _show_data_images(ready: PreparedRun, runs: Path) -> None:
    """Print which points would be restored, and the disk that data images take."""
    if all(point.data_image.mode == "never" for point in ready.plan.points):
        return
    from microshard.run.data_images import data_sentences

    for sentence in data_sentences(ready.plan, ready.backend.binaries(ready.plan), runs):
        click.echo(sentence)


def _show_mlaunch(plan: Plan) -> None:
    """Print lines for a shell: a command for each point, and as comments what it leaves out."""
    from microshard.plan.mlaunch import mlaunch_commands

    for point, (command, left_out) in zip(
        plan.points, mlaunch_commands(plan, Path(sys.executable).parent), strict=True
    ):
        click.echo(f"# {point.id}: {point.label}")
        for what in left_out:
            click.echo(f"# without: {what}")
        click.echo(command)


def _plan_on_ec2(
    file: Path,
    scale: str | None,
    overrides: dict[str, Any],
    console: Console,
    *,
    why: str,  # this scale
    as_json: bool,
    parallel: int,
) -> None:
    from microshard.backends.ec2.ec2_plan import plan_ec2
    from microshard.backends.ec2.render import show
    from microshard.plan.render import render

    planned = plan_ec2(file, scale=scale, overrides=overrides, parallel=parallel)
    if as_json:
        whole = {**dataclasses.asdict(planned.plan), "ec2": planned.estimate.as_json()}
        click.echo(json.dumps(whole, indent=1, default=str))
    else:
        for line in planned.not_run():
            console.print(line, highlight=False, soft_wrap=True, markup=False)
        if why:
            console.print(why, highlight=False, markup=False)
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


@click.command("experiments")
def experiments() -> None:
    """List the experiments that come with microshard; `run`, `plan`, `up` and `validate` take their names."""
    from microshard.experiment.yaml_reader import read
    from microshard.this_machine import project_root

    files = sorted((project_root() / "experiments").glob("*.yml"))
    width = max(len(file.stem) for file in files)
    for file in files:
        click.echo(f"{file.stem:{width}}  {read(file)[0].data['title']}")


@click.command("new")
@click.argument("name")
def new(name: str) -> None:
    """Write NAME.yml, a commented experiment that runs as it is: an aggregation on 1, 2 and 4 shards."""
    _write_new(name, _template(name))


@click.command("import-mlaunch")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("name", required=False)
def import_mlaunch(folder: Path, name: str | None) -> None:
    """Write NAME.yml with the topology that mlaunch has in FOLDER (its --dir), by default named like the folder.

    Its workload is that of `microshard new`; processes and data of mlaunch are not touched.
    """
    from microshard.plan.mlaunch import topology_text

    name = name or folder.resolve().name
    before, _, after = _template(name).partition("topology:\n")
    workload, _, _ = after[after.index("workload:") :].partition("# Every combination")
    _write_new(name, f"{before}# As in {folder}/.mlaunch_startup.\n{topology_text(folder)}\n{workload.rstrip()}\n")


def _template(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,62}", name):
        raise click.BadParameter(f"{name!r}: a name has lower-case letters, digits and hyphens, as in my-shards")
    text = resources.files("microshard.experiment").joinpath("new.yml").read_text(encoding="utf-8")
    return text.replace("NAME", name, 1)


def _write_new(name: str, text: str) -> None:
    path = Path(f"{name}.yml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{path} exists already; take another name, or move it away") from None
    click.echo(f"{path}: change it, then microshard run {path}")


@click.command("schema")
def schema() -> None:
    """Print the JSON schema of experiment files."""
    from microshard.experiment.schema import schema_text

    click.echo(schema_text(), nl=False)


@click.command("reference")
@click.argument("key", required=False)
def reference(key: str | None) -> None:
    """Print the reference of experiment files, or what KEY (topology.shards.count, say) takes."""
    from microshard.experiment.reference import key_text, reference_text

    click.echo(key_text(key) if key else reference_text(), nl=False)
