"""Options several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def _overrides(_ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    from microshard.experiment.load import parse_overrides

    return parse_overrides(values)


def experiment_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """FILE, --scale and --set: which experiment, and what is different this time."""
    function = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_overrides,
        help="Change a key of the experiment.",
    )(function)
    function = click.option(
        "--scale", metavar="NAME", help="Apply one of the experiment's `scales`, for example laptop."
    )(function)
    return click.argument("file", type=click.Path(path_type=Path))(function)


def yes_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--yes: programs of an imported experiment are executed unasked."""
    return click.option(
        "-y", "--yes", is_flag=True, help="Do not ask before programs of an imported experiment are executed."
    )(function)


def runs_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--runs-dir: where run folders lie."""
    return click.option(
        "--runs-dir",
        "runs",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path("runs"),
        show_default=True,
        help="Folder the run's folder is made in.",
    )(function)


def on_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """--on: the place the experiment runs at."""
    return click.option(
        "--on",
        "on",
        metavar="PLACE",
        default="local",
        show_default=True,
        help="Where: local (this machine), the path of an Ansible inventory (hosts reached by SSH), or ec2.",
    )(function)
