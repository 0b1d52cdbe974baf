"""`microshard export`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option


@click.command("export")
@click.argument("name", required=False, metavar="[RUN]")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File; RUN.microshard.tgz here.")
@click.option("--force", is_flag=True, help="Replace the file when it is there.")
@runs_option
def command(name: str | None, output: Path | None, force: bool, runs: Path) -> None:
    """Write a run (the newest when none is named) into one file.

    Definition, lock, plan, results, histograms, telemetry and report are in it; addresses, accounts, users, paths, keys
    and passwords are not. Logs stay here.
    """
    from rich.console import Console
    from rich.progress import Progress

    from microshard.backends.this_machine import project_root
    from microshard.records.bundle import SUFFIX, export
    from microshard.records.redaction import for_run
    from microshard.run.cluster import latest, pick

    run = pick(runs, (name,))[0] if name else latest(runs)
    target = output or Path(f"{run.run_id}{SUFFIX}")
    if target.exists() and not force:
        raise click.UsageError(f"{target} is there already; --force replaces it")
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("writing")
        redact = for_run(run.path, project_root())
        size = export(run, target, redact, lambda done, total: bar.update(task, completed=done, total=total))
    click.echo(f"{target}: {size / 1e6:,.1f} MB")
