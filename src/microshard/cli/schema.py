"""`microshard schema`."""

from __future__ import annotations

import click


@click.command("schema")
def command() -> None:
    """Print the JSON schema of experiment files."""
    from microshard.experiment.schema import schema_text

    click.echo(schema_text(), nl=False)
