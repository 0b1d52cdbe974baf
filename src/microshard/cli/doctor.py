"""`microshard doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option
from microshard.errors import EXIT_PLACE

_MARKS = {"ok": "ok", "note": "note", "wrong": "WRONG", "unknown": "?"}


@click.command("doctor")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--on",
    "places",
    multiple=True,
    type=click.Choice(["here", "ec2"]),
    default=["here"],
    show_default=True,
    help="Where to look.",
)
@click.option("--region", metavar="REGION", help="EC2 region; that of FILE or of the AWS configuration when left out.")
@runs_option
def command(file: Path | None, places: tuple[str, ...], region: str | None, runs: Path) -> int:
    """Ask whether a place is fit for experiments, or for the one in FILE; make nothing."""
    from microshard.run.doctor import EXAMINATIONS, Question

    wrong = False
    for place in places:
        for finding in EXAMINATIONS[place](Question(file, region, runs=runs)):
            wrong = wrong or finding.state == "wrong"
            click.echo(f"{_MARKS[finding.state]:5}  {finding.what}: {finding.told}")
            if finding.remedy and finding.state != "ok":
                click.echo(f"       → {finding.remedy}")
    return EXIT_PLACE if wrong else 0
