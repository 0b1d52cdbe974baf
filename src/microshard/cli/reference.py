"""`microshard reference`."""

from __future__ import annotations

import click


@click.command("reference")
def command() -> None:
    """Print the reference of experiment files."""
    from microshard.experiment.reference import reference_text

    click.echo(reference_text(), nl=False)
