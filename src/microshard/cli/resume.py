"""`microshard resume`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option, yes_option


@click.command("resume")
@click.argument("name", required=False, metavar="[RUN]")
@click.option(
    "--as-begun", is_flag=True, help="Go on with the run's own copy although the experiment file has changed."
)
@yes_option
@runs_option
def command(name: str | None, as_begun: bool, yes: bool, runs: Path) -> int:
    """Go on with a run that was stopped or broke off (the newest such, when none is named).

    Finished measurements stay and are not taken again; points that failed are tried again.
    """
    from rich.console import Console

    from microshard.errors import RunFolderError
    from microshard.records.run_folder import find_runs
    from microshard.run.cluster import pick
    from microshard.run.resume import broken_off, resume
    from microshard.run.trust import ask

    if name:
        run = pick(runs, (name,))[0]
    else:
        unfinished = broken_off(find_runs(runs))
        if not unfinished:
            raise RunFolderError(f"{runs}: no run has anything left to measure")
        run = unfinished[-1]
    ask(run / "experiment.yml", None, {}, yes=yes)
    return resume(run, Console(), as_begun=as_begun)
