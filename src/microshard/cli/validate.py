"""`microshard validate`."""

from __future__ import annotations

from pathlib import Path

import click

from microshard.errors import EXIT_DEFINITION


@click.command("validate")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--scale", metavar="NAME", help="Check the experiment as this scale makes it.")
def command(files: tuple[Path, ...], scale: str | None) -> int:
    """Check experiment files: every key, every value, every point of the matrix."""
    from microshard.experiment.errors import DefinitionError, render
    from microshard.experiment.load import load
    from microshard.experiment.matrix import expand

    wrong = 0
    for file in files:
        try:
            loaded = load(file, scale=scale)
            points = expand(loaded)
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
