"""Commands about clusters that are up: up, status, add-member, down, ssh, logs, mongosh."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from microshard.cli.backends import chosen, of_run, say_unread
from microshard.cli.imported import confirm_programs
from microshard.cli.options import experiment_options, on_option, point_option, run_option, runs_option, yes_option
from microshard.errors import EXIT_FAILED, EXIT_LEFT, RunFolderError
from microshard.interrupts import Stopped, signals

if TYPE_CHECKING:
    from rich.console import Console

    from microshard.model.plan import Point, Step
    from microshard.model.result import StepResult


class StageLine:
    """One line of the terminal that shows what a short command is doing; a Listener of the runner."""

    def __init__(self, console: Console) -> None:
        self.status = console.status("starting")

    def __enter__(self) -> StageLine:
        self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.status.stop()

    def stage(self, step: Step | None, stage: str) -> None:  # noqa: ARG002 - the listener's signature
        """A stage begins."""
        self.status.update(stage)

    def event(self, event: dict[str, Any]) -> None:
        """Ansible begins a task."""
        if event.get("event") == "task" and event.get("task"):
            self.status.update(str(event["task"]))

    def step_done(self, step: Step, result: StepResult) -> None:
        """Short commands have no steps."""

    def point_failed(self, point: Point, message: str) -> None:
        """Short commands raise instead."""


@click.command("up")
@experiment_options
@runs_option
@on_option
@yes_option
@click.option("--point", metavar="POINT", help="Which point, by id or label (p03, '4 shards'); by default the first.")
def up(
    file: Path, scale: str | None, overrides: dict[str, Any], runs: Path, on: str, yes: bool, point: str | None
) -> int:
    """Start a point of an experiment and print its connection string; it stays until `down`."""
    from rich.console import Console

    from microshard.experiment.load import scale_for
    from microshard.run import cluster
    from microshard.run.prepare import prepared

    scale, _ = scale_for(file, scale, on)
    confirm_programs(file, scale, overrides, yes=yes)
    console = Console(stderr=True)
    try:
        if on == "ec2":
            from microshard.backends.ec2.bring_up import up_on_ec2

            with StageLine(console) as line:
                folder, only = up_on_ec2(file, scale, overrides, runs, point, console, line)
        else:
            with prepared(file, scale=scale, overrides=overrides, runs=runs, backend=chosen(on)) as ready:
                one = dataclasses.replace(ready, plan=cluster.choose(ready.plan, point))
                with StageLine(console) as line:
                    folder = cluster.up(one, runs, line)
                (only,) = one.plan.points
    except Stopped as stopped:
        console.print("Stopped; everything that was started is stopped.")
        return stopped.exit_code
    console.print(
        f"Up: {only.label}, in {folder.path}; empty, for the workload is not run.\n"
        f"A shell: microshard mongosh --run {folder.named}\nStop it: microshard down {folder.named}",
        highlight=False,
        soft_wrap=True,
    )
    click.echo(only.connection_string)
    return 0


@click.command("status")
@runs_option
@click.option("--all", "everything", is_flag=True, help="Also runs of which nothing is running.")
def status(runs: Path, everything: bool) -> int:
    """Show which runs have processes, and how to reach them.

    Ends with exit code 3 when a process of a cluster that is up does not run.
    """
    from microshard.run import cluster
    from microshard.run.catalog import NOT_RUNNING

    found = cluster.status(runs, of_run)
    shown = [item for item in found if everything or item.processes or item.cost or item.state == NOT_RUNNING]
    missing = False
    if not shown:
        click.echo(f"Nothing is running in {runs.absolute()}." if not everything else f"No runs in {runs.absolute()}.")
    for item in shown:
        click.echo(f"{item.run.run_id}: {item.processes} process{'' if item.processes == 1 else 'es'}, {item.state}")
        if item.state == "orphaned":
            click.echo(f"  microshard resume {item.run.named} continues it; microshard down {item.run.named} ends it")
        elif item.state == NOT_RUNNING:
            click.echo(f"  microshard down {item.run.named} removes what is left")
        if item.cost:
            click.echo(f"  {item.cost}")
        for point in item.points:
            click.echo(f"  {point.label}: {point.connection_string}")
            width = max(len(name) for name, *_ in point.processes)
            for name, endpoint, runs_now, pid in point.processes:
                missing = missing or not (runs_now or item.state == "running")
                word = f"PID {pid}" if pid else "runs" if runs_now else "NOT RUNNING"
                click.echo(f"    {name:{width}}  {endpoint}  {word}")
    for path in cluster.elsewhere(runs):
        click.echo(f"Elsewhere: {path.name}; microshard status --runs-dir {shlex.quote(str(path.parent))}")
    return EXIT_FAILED if missing else 0


@click.command("add-member")
@click.argument("name", required=False, metavar="[RUN]")
@click.option("--replica-set", metavar="NAME", help="Which one, where there are several: shard01.")
@runs_option
def add_member(name: str | None, replica_set: str | None, runs: Path) -> int:
    """Add a member to a replica set that is up, and wait until it is SECONDARY.

    A process that waits (`initial: false`) becomes one; where there is none, another is started. `down` removes it too.
    Ctrl-C ends the waiting, not the member.
    """
    from rich.console import Console

    from microshard.run import cluster
    from microshard.run.catalog import named

    found = named(runs, [name]) if name else cluster.still_up(runs, of_run)
    if not found:
        raise RunFolderError(f"{runs}: nothing is up; first: microshard up FILE")
    console = Console(stderr=True)
    try:
        with signals(), StageLine(console) as line:
            added = cluster.add_member(found[-1], of_run(found[-1]), replica_set, line)
    except Stopped as stopped:
        console.print("No longer waiting; the member continues its initial sync.")
        return stopped.exit_code
    click.echo(f"{added.name} is a member of {added.replica_set}: {added.endpoint}")
    return 0


@click.command("down")
@click.argument("names", nargs=-1, metavar="[RUN]...")
@runs_option
def down(names: tuple[str, ...], runs: Path) -> int:
    """Stop runs (by default all with processes) and remove their data; results and logs stay."""
    from rich.console import Console

    from microshard.run import cluster
    from microshard.run.catalog import named

    left = []
    found = named(runs, names) if names else cluster.still_up(runs, of_run, unclean=True)
    for folder in found:
        say_unread(folder)
        with StageLine(Console(stderr=True)) as line:
            left += cluster.down(folder, of_run, line)
        click.echo(f"{folder.run_id}: down")
    if not found:
        click.echo(f"Nothing is running in {runs.absolute()}.")
    for path in () if names else cluster.elsewhere(runs):
        click.echo(f"Elsewhere: {path.name}; microshard down --runs-dir {shlex.quote(str(path.parent))}")
    for item in left:
        click.echo(f"left behind: {item}", err=True)
    return EXIT_LEFT if left else 0


@click.command("ssh")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@run_option
@point_option
@runs_option
def ssh(name: str, words: tuple[str, ...], run: str | None, point: str | None, runs: Path) -> None:
    """Log in on a host of a run, by its name or that of a process on it; on this machine a shell in its folder."""
    from microshard.run import remote_commands

    found = remote_commands.find_running(runs, of_run, run, point)
    line, folder = remote_commands.shell(found, name, words)
    if folder is not None:
        os.chdir(folder)
    remote_commands.exec_command(found, line)


@click.command("logs")
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Continue to show what is added.")
@click.option("-n", "--lines", default=20, show_default=True, help="How many of the last lines.")
@run_option
@point_option
@runs_option
def logs(name: str, follow: bool, lines: int, run: str | None, point: str | None, runs: Path) -> None:
    """Show the log of a process of a run, on whatever host it runs."""
    from microshard.run import remote_commands

    found = remote_commands.find_running(runs, of_run, run, point)
    remote_commands.exec_command(found, remote_commands.log(found, name, follow=follow, lines=lines))


@click.command("mongosh", context_settings={"ignore_unknown_options": True})
@click.argument("name", required=False)
@click.argument("words", nargs=-1, metavar="[OPTION]...")
@run_option
@point_option
@runs_option
def mongosh(name: str | None, words: tuple[str, ...], run: str | None, point: str | None, runs: Path) -> None:
    """Open mongosh on a run's cluster, or on one process; OPTIONs are those of mongosh."""
    from microshard.run import remote_commands

    if name is not None and name.startswith("-"):
        words = (name, *words)
        name = None
    found = remote_commands.find_running(runs, of_run, run, point)
    remote_commands.exec_command(found, remote_commands.mongosh(found, name, words))
