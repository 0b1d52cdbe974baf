"""`microshard gc`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.cli.options import runs_option
from microshard.errors import EXIT_LEFT


@click.command("gc")
@click.option(
    "--on", "places", multiple=True, type=click.Choice(["here", "ec2"]), help="Look there only; everywhere else."
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option("--owner", metavar="NAME", help="Whose runs (infrastructure.ec2.owner); the user's name when left out.")
@click.option("--region", "regions", multiple=True, metavar="REGION", help="An EC2 region to look in as well.")
@runs_option
def command(places: tuple[str, ...], dry_run: bool, owner: str | None, regions: tuple[str, ...], runs: Path) -> int:
    """Remove what runs that are over or past their expiry have left behind."""
    from microshard.backends.this_machine import user
    from microshard.run import gc

    failed = False
    nothing = True
    for place, collector in gc.COLLECTORS.items():
        if places and place not in places:
            continue
        wish = gc.Wish(runs, owner or user(), regions, explicit=place in places)
        if dry_run:
            for found in collector(wish).look():
                nothing = False
                click.echo(f"{found.run} ({found.where}) is {found.reason}: {', '.join(found.things)}")
            continue
        for done in collector(wish).collect():
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
