"""This machine as the place of a run: one host, everything below the run's folder, processes on loopback."""

import contextlib
import errno
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from microshard import this_machine
from microshard.backends import binaries, client_install, local_processes
from microshard.errors import PlaceError
from microshard.hostlib import emulated_volumes
from microshard.hostlib.numa import host_cores
from microshard.hostlib.ports import is_free
from microshard.model.plan import FIRST_PORT, Inputs, Plan, Point
from microshard.records.run_folder import RunFolder
from microshard.run.ansible import EventHandler, ignore
from microshard.run.backend import LAST_PORT, PORT_BLOCK, Backend, Binaries

_LOOPBACK = "127.0.0.1"


class LocalBackend(Backend):
    """This machine."""

    name = "local"
    where = "this machine"
    remote = False

    def inputs(self, runs: Path) -> Inputs:
        """Cores, RAM and disk of this machine."""
        return Inputs(
            cores=this_machine.cores(),
            ram_mib=this_machine.memory_mib(),
            free_disk_bytes=this_machine.free_disk_bytes(runs),
            numa_nodes=tuple(host_cores().by_node),
            numactl=shutil.which("numactl") is not None,
        )

    @contextlib.contextmanager
    def ports(self, count: int, preferred: Sequence[int] = ()) -> Iterator[int]:
        """A block that other runs on this machine keep out of."""
        try:
            with port_block(count, preferred) as base:
                yield base
        except OSError as error:
            if error.errno is not None:
                raise
            raise PlaceError(f"{error}; set topology.network.base_port to a free range") from error

    def check_room(self, plan: Plan) -> None:
        """Refuse what would push this machine into swapping, or what an engine cannot do here."""
        from microshard.workloads.base import find_engine  # noqa: PLC0415 - `down` and `status` need no engine

        for phase in (phase for point in plan.points for phase in point.phases):
            lacking = find_engine(phase.engine).lacks(phase.parameters)
            if lacking:
                raise PlaceError(lacking)
        available = this_machine.memory_mib("MemAvailable")
        if plan.memory_mib > available:
            raise PlaceError(
                f"the plan needs about {plan.memory_mib:,} MiB of RAM at its peak, {available:,.0f} MiB are available "
                "now; close something, use fewer shards, or set order.redeploy: per_repetition"
            )

    def no_emulated_volumes(self, filesystems: Sequence[str]) -> str | None:
        """What this machine lacks for loop devices with these file systems."""
        return emulated_volumes.why_not(filesystems)

    def binaries(self, plan: Plan) -> dict[str, Binaries]:
        """Binaries found and tried on this machine; the environments of other drivers are made."""
        for driver in {point.driver for point in plan.points} - {None}:
            client_install.make_local_environment(str(driver))
        return {point.id: binaries.on_this_machine(point) for point in plan.points}

    def host_folder(self, folder: RunFolder) -> Path:
        """The run's folder itself."""
        return folder.path

    def client_python(self, driver: str | None = None) -> str:
        """The interpreter of this process, or of the environment with another driver."""
        return str(client_install.local_environment(driver) / "bin" / "python") if driver else sys.executable

    def missing(self, folder: RunFolder, point: Point) -> list[str]:
        """Processes that do not run any more, with the end of their logs."""
        return local_processes.missing(folder, point)

    def clean(self, folder: RunFolder, handler: EventHandler = ignore) -> list[str]:  # noqa: ARG002 - no playbook
        """Processes and data of the run, found by its folder's name."""
        return local_processes.clean(folder)

    def running(self, folder: RunFolder) -> list[str]:
        """Command lines that name the run's folder."""
        return [process.command_line for process in local_processes.running(folder)]

    def leftovers(self, folder: RunFolder) -> tuple[str, ...]:
        """Processes, volumes and folders."""
        found = [f"process {command[:80]}" for command in self.running(folder)]
        if emulated_volumes.absent(folder.path, check=True)[0]:
            found.append("volumes")
        for name in local_processes.FOLDERS:
            with contextlib.suppress(OSError):
                if (folder / name).is_dir():
                    found.append(f"folder {name}")
        return tuple(found)

    def command(self, host: str, words: Sequence[str], *, terminal: bool = False) -> list[str]:  # noqa: ARG002
        """The words themselves; without words the user's shell."""
        return list(words) or [os.environ.get("SHELL", "/bin/sh")]


@contextlib.contextmanager
def port_block(count: int, preferred: Sequence[int] = ()) -> Iterator[int]:
    """A range of `count` free ports on loopback; yields the first. `preferred`: first ports that are tried before all.

    While the context is open a socket on the port just before the range keeps other runs of microshard
    out of the block. Raises OSError when nothing is free below the kernel's range, PlaceError without loopback.
    """
    blocks = -(-(count + 1) // PORT_BLOCK)
    starts = range(FIRST_PORT, LAST_PORT - blocks * PORT_BLOCK, PORT_BLOCK)
    for start in (*(port - 1 for port in preferred if port - 1 in starts), *starts):
        with socket.socket() as guard:
            try:
                guard.bind((_LOOPBACK, start))
                guard.listen(1)  # without it SO_REUSEADDR lets a second run bind the port too
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise PlaceError(
                        f"this machine has no address {_LOOPBACK}, where the servers of a run listen: "
                        f"ip address add {_LOOPBACK}/8 dev lo; ip link set lo up"
                    ) from error
                continue
            if all(is_free(_LOOPBACK, port) for port in range(start + 1, start + 1 + count)):
                yield start + 1
                return
    raise OSError(f"no {count} consecutive free ports between {FIRST_PORT} and {LAST_PORT}")
