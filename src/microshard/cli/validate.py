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
    from microshard.definition.errors import DefinitionError
    from microshard.definition.load import load
    from microshard.definition.matrix import expand

    wrong = 0
    for file in files:
        try:
            points = expand(load(file, scale=scale))
        except DefinitionError as error:
            wrong += 1
            click.echo(str(error), err=True)
        else:
            click.echo(f"{file}: ok, {len(points)} point{'' if len(points) == 1 else 's'}")
    return EXIT_DEFINITION if wrong else 0
