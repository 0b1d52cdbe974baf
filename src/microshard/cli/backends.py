"""Which backend a command works with: the one `--on` names, or the one an existing run was made with."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from microshard.backends import local_processes
from microshard.backends.local import LocalBackend
from microshard.errors import RunFolderError
from microshard.records.run_folder import RunFolder
from microshard.run.backend import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from microshard.run.backend import CheckRequest, CheckResult
    from microshard.run.gc import Collector, GcRequest

PLACES = ("local", "ec2")  # that doctor and gc look at, in this order


def chosen(on: str) -> Backend:
    """The backend `--on` names where hosts exist: local, or the path of an Ansible inventory. Raises PlaceError.

    A path where nothing is, is wrong on the command line as a missing experiment file is: click's error, exit code 2.
    """
    if on == "local":
        return LocalBackend()
    if not Path(on).exists():
        raise click.BadParameter(
            f"{on}: no such inventory; give local, ec2 or the path of an inventory", param_hint="--on"
        )
    from microshard.backends.ssh import SshBackend

    return SshBackend.at(Path(on))


def of_run(folder: RunFolder) -> Backend:
    """The backend a run was made with. Raises PlaceError when its inventory is gone."""
    known = folder.backend()
    with contextlib.suppress(OSError, RunFolderError):
        if folder.marker().imported:
            return LocalBackend()  # nothing of it runs anywhere, and somebody else's inventory is never used
    if known.backend == "hosts":
        from microshard.backends.ssh import SshBackend

        return SshBackend.recorded_as(known)
    if known.backend == "ec2":
        from microshard.backends.ec2.backend import Ec2Backend

        return Ec2Backend.recorded_as(known)
    return LocalBackend()


def in_use(folder: RunFolder) -> str | None:
    """Why a run's folder must not be removed yet; None when nothing of the run is left outside of it."""
    from microshard.backends.ec2.resources import regions_in_use

    if regions := {region for each in (folder, *folder.fleets()) for region in regions_in_use(each)}:
        return (
            f"{folder.run_id} has created hosts on EC2 ({', '.join(sorted(regions))}) that are not known to be gone, "
            f"and without its folder nobody finds them before they expire; first: microshard down {folder.named}, or, "
            "where it was aborted, microshard gc --on ec2"
        )
    if (unread := folder.ledger.unread()) and folder.backend().backend == "ec2":
        return f"{folder.run_id}: {unread[0]}: what it names on EC2 may still exist; look there, then mend that line"
    if has_processes(folder):
        return f"{folder.run_id} has processes; first: microshard down {folder.named}"
    return None


def has_processes(folder: RunFolder) -> bool:
    """Whether processes of a run exist on this machine; hosts are not contacted."""
    return bool(local_processes.running(folder))


def say_unread(folder: RunFolder) -> None:
    """Print what of a run's records cannot be read: what they name may still be there."""
    try:
        folder.marker()
    except (OSError, RunFolderError) as error:
        click.echo(f"{folder.run_id} is passed over: {error}", err=True)
    for sentence in folder.ledger.unread():
        click.echo(f"{folder.run_id}: {sentence}; what it names is only found by its tags and names", err=True)


def collector(place: str, request: GcRequest) -> Collector:
    """What finds and removes leftovers at a place of PLACES."""
    if place == "ec2":
        from microshard.backends.ec2.backend import Ec2Leftovers

        return Ec2Leftovers(request)
    from microshard.run.gc import RunFolderCollector

    return RunFolderCollector(request, of_run)


def checks(place: str) -> Callable[[CheckRequest], Iterator[CheckResult]]:
    """What checks a place of PLACES; it creates and changes nothing."""
    if place == "ec2":
        from microshard.backends.ec2.checks import examine
    else:
        from microshard.backends.local_checks import examine
    return examine
