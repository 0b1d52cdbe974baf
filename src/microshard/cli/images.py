"""The command about data images: listed and removed."""

import json
import time
from pathlib import Path

import click

from microshard.cli.options import json_option, runs_option
from microshard.errors import RunFolderError


@click.group("images", invoke_without_command=True)
@json_option
@runs_option
@click.pass_context
def images(ctx: click.Context, as_json: bool, runs: Path) -> None:
    """List data images, loaded data that are restored instead of loaded again; the one used last at the end."""
    from microshard.records.data_images import folder_of, kept_images

    if ctx.invoked_subcommand:
        return
    found = kept_images(runs)
    if as_json:
        from microshard.records.codec import encode

        click.echo(json.dumps([{"used": kept.used, **encode(kept.image)} for kept in found if kept.image], indent=1))
        return
    if not found:
        click.echo(f"No data images in {folder_of(runs)}.")
        return
    from rich.console import Console

    from microshard.terminal_table import FittingTable, texts

    whole = [(kept, kept.image) for kept in found]
    data = [
        (", ".join(f"{count:,} {name}" for name, count in image.documents.items()) or "empty cluster")
        if image
        else "cannot be read"
        for _, image in whole
    ]
    columns = [
        texts("image", [kept.path.name[:12] for kept, _ in whole], 0),
        texts("experiment", [image.experiment if image else "" for _, image in whole], 3),
        texts("point", [image.label if image else "" for _, image in whole], 1),
        texts("documents", data, 2),
        texts("mongod", [image.recipe.mongod if image else "" for _, image in whole], 5),
        texts("size\nMB", [f"{kept.bytes / 1e6:,.0f}" for kept, _ in whole], 1, right=True),
        texts("loading\ntook s", [f"{image.load_seconds:,.0f}" if image else "" for _, image in whole], 4, right=True),
        texts("last used", [time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.used)) for kept, _ in whole], 2),
    ]
    Console().print(FittingTable(columns, None, elsewhere="--json has all", least=12))


@images.command("rm")
@click.argument("names", nargs=-1, metavar="IMAGE...")
@click.option("--all", "every", is_flag=True, help="All of them.")
@runs_option
def remove(names: tuple[str, ...], every: bool, runs: Path) -> None:
    """Remove data images, by their names or the first digits of them."""
    from microshard.backends.ssh import SshBackend
    from microshard.records.data_images import kept_images, remove_image

    found = kept_images(runs)
    if every == bool(names):
        raise click.UsageError("name images, or give --all")
    for name in names:
        if len([kept for kept in found if kept.path.name.startswith(name)]) != 1:
            raise RunFolderError(f"{name} is not the name of one data image; `microshard images` lists them")
    chosen = [kept for kept in found if every or any(kept.path.name.startswith(name) for name in names)]
    for inventory in {kept.image.inventory for kept in chosen if kept.image} - {""}:
        there = [kept.path.name for kept in chosen if kept.image and kept.image.inventory == inventory]
        SshBackend.at(Path(inventory)).remove_images(there)
    for kept in chosen:
        remove_image(kept.path)
        click.echo(f"{kept.path.name}: removed, {kept.bytes / 1e6:,.0f} MB")
