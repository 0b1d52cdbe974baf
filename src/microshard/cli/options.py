"""Options that several commands share."""

import glob
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class ExperimentFile(click.Path):
    """The path of an experiment file, or the name of an experiment that comes with microshard, such as quickstart."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path; for a word without a dot and a slash that is no file, that of the shipped experiment."""
        path = Path(value)
        if path.suffix or len(path.parts) != 1 or path.exists():
            return path
        from microshard.experiment.errors import nearest_name
        from microshard.this_machine import project_root

        shipped = {file.stem: file for file in (project_root() / "experiments").glob("*.yml")}
        if path.name not in shipped:
            near = nearest_name(path.name, shipped)
            hint = f"; did you mean {near}?" if near else ""
            self.fail(f"{path} is no file, and none of `microshard experiments` has that name{hint}", param, ctx)
        return shipped[path.name]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Files, and the names of the shipped experiments."""
        from microshard.this_machine import project_root

        shipped = (project_root() / "experiments").glob(f"{glob.escape(incomplete)}*.yml") if incomplete else ()
        names = [CompletionItem(file.stem) for file in sorted(shipped)]
        return [*names, *super().shell_complete(ctx, param, incomplete)]


FILE = ExperimentFile(path_type=Path)


def _overrides(_ctx: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    from microshard.experiment.load import parse_overrides

    return parse_overrides(values)


def share(_ctx: click.Context, _parameter: click.Parameter, value: str) -> float:
    """The callback of an option that takes a share: 5% or 0.05."""
    text = value.strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise click.BadParameter("a share such as 5% or 0.05, below 100 %")
    return share


def experiment_options(function: Callable[..., Any], *, required: bool = True) -> Callable[..., Any]:
    """FILE, --scale and --set: which experiment, and what is changed this time."""
    function = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_overrides,
        help="Change a key of the experiment.",
    )(function)
    function = click.option(
        "--scale",
        metavar="NAME",
        help="Apply one of the experiment's `scales`; as-written: none. [default: laptop on this machine, today on "
        "EC2, where the file has it]",
    )(function)
    return click.argument("file", type=FILE, required=required)(function)


def optional_experiment(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same where FILE may be left out."""
    return experiment_options(function, required=False)


yes_option = click.option(
    "-y", "--yes", is_flag=True, help="Execute programs of an imported experiment without confirmation."
)
runs_option = click.option(
    "--runs-dir",
    "runs",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    show_default=True,
    help="The folder of all run folders.",
)
on_option = click.option(
    "--on",
    "on",
    metavar="PLACE",
    default="local",
    show_default=True,
    help="Where: local (this machine), the path of an Ansible inventory (hosts reached by SSH), or ec2.",
)
parallel_option = click.option(
    "--parallel",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="On EC2: measure up to N groups of points that need different hosts side by side, as quotas and budget allow.",
)
run_option = click.option("--run", metavar="RUN", help="Which run; by default the newest that is up.")
point_option = click.option("--point", metavar="POINT", help="Which of its deployed points, by id or label.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")


def only_on_ec2(parallel: int, on: str) -> None:
    """Raise UsageError for --parallel where hosts exist."""
    if parallel > 1 and on != "ec2":
        raise click.UsageError("--parallel goes with --on ec2 only: hosts that exist measure one point at a time")
