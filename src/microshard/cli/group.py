"""The commands by their names, and what becomes of their errors."""

from __future__ import annotations

import importlib
import keyword

import click

from microshard.errors import EXIT_BUG, EXIT_DEFINITION, EXIT_INTERRUPTED, MicroshardError
from microshard.interrupts import raise_if_interrupted

# Command → its one line of help. Its code is imported only when it is called: a start stays quick.
_COMMANDS = {
    "run": "Run an experiment and write its report.",
    "resume": "Go on with a run that was stopped or broke off.",
    "plan": "Show what an experiment would do here, and do nothing.",
    "validate": "Check experiment files.",
    "up": "Start a point of an experiment and leave it running.",
    "status": "Show what is running.",
    "add-member": "Add a member to a replica set that is up.",
    "down": "Stop what is running and remove its data.",
    "gc": "Remove what runs have left behind.",
    "doctor": "Ask whether a place is fit for experiments.",
    "ssh": "Log in on a host of a run, or where a process of it lies.",
    "logs": "Show the log of a process of a run.",
    "mongosh": "Open mongosh on a run's cluster or on one process.",
    "report": "Write the report of a run again.",
    "list": "List the runs there are.",
    "show": "Show a run: figures, machine, files.",
    "rm": "Remove runs for good.",
    "export": "Write a run into one file to send to others.",
    "import": "Check such a file of somebody's and make it a run here.",
    "compare": "Compare runs point by point.",
    "schema": "Print the JSON schema of experiment files.",
    "reference": "Print the reference of experiment files.",
}


class _Lazy(click.Group):
    # The signatures are click's.
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name.replace("-", "_")
        command = importlib.import_module(f"microshard.cli.{module}").command
        raise_if_interrupted()  # the compiler of imports may have dropped a Ctrl-C
        assert isinstance(command, click.Command)  # noqa: S101 - every file of this package has one
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="microshard")
def microshard() -> None:
    """A laboratory for MongoDB micro-sharding experiments."""


def execute() -> int:
    """Do what the command line says. Returns the exit code: errors for people are told here, never a traceback."""
    from microshard.experiment.errors import DefinitionError

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
        code = EXIT_DEFINITION
    except MicroshardError as error:
        click.echo(f"microshard: {error}", err=True)
        code = error.exit_code
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        click.echo(f"microshard: {name}{error.strerror or error}", err=True)
        code = EXIT_BUG
    return code if isinstance(code, int) else 0
