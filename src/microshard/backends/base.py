"""The place an experiment runs at: what it has, how it is reached, and what stays there at the end.

A backend answers what differs between this machine, hosts of one's own and hosts made on EC2; planner, runner and
playbooks are the same for all. docs/architecture.md says how it hangs together.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microshard.backends import crash_diagnostics as autopsy
from microshard.backends import leftovers
from microshard.backends import this_machine as place
from microshard.backends.binaries import Binaries, found_here
from microshard.errors import PlaceError
from microshard.model.plan import Plan, Point
from microshard.playbooks.runner import Listener, Playbooks
from microshard.records.run_folder import RunFolder, write_json
from microshard.workloads import registry

if TYPE_CHECKING:
    from microshard.plan import Inputs

RECORD = "backend.json"  # in the run's folder: which backend it is, for `down`, `status`, `ssh` …


class Backend(ABC):
    """A place. Everything is asked in this order: inputs, ports, check_room, begin, then the playbooks, then clean."""

    name: str  # local, hosts, ec2: what plan/backend.py refuses keys by
    where: str  # how messages call it
    process_manager = "direct"

    @abstractmethod
    def inputs(self, runs: Path) -> Inputs:
        """The facts a plan is made for. May connect, changes nothing. Raises PlaceError by host and next step."""

    @abstractmethod
    def ports(self, count: int) -> contextlib.AbstractContextManager[int]:
        """The first of `count` ports in a row that are free on every host while the context is open."""

    @abstractmethod
    def check_room(self, plan: Plan) -> None:
        """Raise PlaceError when what is free now is not enough, whatever the hosts have in all."""

    @abstractmethod
    def binaries(self, plan: Plan) -> dict[str, Binaries]:
        """Point → the mongod and mongos it uses, as paths on the hosts. Raises PlaceError."""

    @abstractmethod
    def inventory(self, folder: RunFolder) -> Path:
        """What ansible-playbook is given."""

    @abstractmethod
    def host_folder(self, folder: RunFolder) -> Path:
        """Where the run's folder lies on every host."""

    @abstractmethod
    def client_python(self) -> str:
        """The interpreter on the client host that has microshard and pymongo."""

    def limit(self, plan: Plan) -> Sequence[str]:  # noqa: ARG002 - for those who have several
        """Names of the hosts the playbooks are kept to; empty: all of the inventory."""
        return ()

    def playbooks(self, folder: RunFolder, listener: Listener, limit: Sequence[str] = ()) -> Playbooks:
        """Playbooks of a run, kept to some hosts."""
        return Playbooks(folder, listener, self.inventory(folder), limit=limit)

    def limit_of(self, folder: RunFolder) -> Sequence[str]:  # noqa: ARG002
        """The same for a run that is there."""
        return ()

    def prepare(self, folder: RunFolder, playbooks: Playbooks, variables: Path) -> None:  # noqa: B027 - may be nothing
        """Once before the first point: whatever hosts need. Raises PlaybookError, PlaceError."""

    @abstractmethod
    def missing(self, folder: RunFolder, point: Point, playbooks: Playbooks) -> list[str]:
        """A sentence for every planned process or host that is gone, for the message of a failed point."""

    def lost(self, folder: RunFolder) -> Mapping[str, str]:  # noqa: ARG002 - for those who can lose some
        """Hosts that are gone for good, with the reason. Raises MicroshardError when it is not known."""
        return {}

    @abstractmethod
    def clean(self, folder: RunFolder, playbooks: Playbooks) -> list[str]:
        """Stop and remove whatever of the run is left; returns what could not be removed."""

    @abstractmethod
    def running(self, folder: RunFolder) -> list[str]:
        """A word for every process of the run; those of a deployment contain /deployments/POINT/."""

    def variables(self, folder: RunFolder) -> dict[str, Any]:
        """`microshard_run` without the binaries, for vars.json."""
        return {
            "id": folder.run_id,
            "folder": str(self.host_folder(folder)),
            "controller_folder": str(folder.path),
            "python": self.client_python(),
            "process_manager": self.process_manager,
            "backend": self.name,
        }

    def remarks(self) -> list[str]:
        """What a reader should know of the hosts as they are now."""
        return []

    def clock_shifts(self, point: Point) -> Mapping[str, float]:  # noqa: ARG002 - for those whose clocks differ
        """Host → seconds to be added to its times, so that they are the client host's; hosts without are right."""
        return {}

    def record(self, folder: RunFolder) -> None:
        """Write which backend the run has into its folder."""
        write_json(folder / RECORD, {"backend": self.name, **self.recorded(folder)})

    def recorded(self, folder: RunFolder) -> Mapping[str, Any]:  # noqa: ARG002 - for those who need the folder
        """What `of_run` needs to find the place again."""
        return {}


class Local(Backend):
    """This machine: one host, everything below the run's folder, processes on loopback."""

    name = "local"
    where = "this machine"

    def inputs(self, runs: Path) -> Inputs:
        """Cores, RAM and disk of this machine."""
        from microshard.plan import Inputs  # noqa: PLC0415 - `down` needs no plan

        return Inputs(
            cores=place.cores(),
            ram_mib=place.memory_mib(),
            free_disk_bytes=place.free_disk_bytes(runs),
            numa_nodes=place.numa_nodes(),
            numactl=shutil.which("numactl") is not None,
        )

    @contextlib.contextmanager
    def ports(self, count: int) -> Iterator[int]:
        """A block other runs on this machine keep out of."""
        try:
            with place.port_block(count) as base:
                yield base
        except OSError as error:
            if error.errno is not None:
                raise
            raise PlaceError(f"{error}; give topology.network.base_port a range of your own") from error

    def check_room(self, plan: Plan) -> None:
        """Refuse to start what would push this machine into swapping, or what an engine cannot do here."""
        for phase in (phase for point in plan.points for phase in point.phases):
            lacking = registry.find(phase.engine).lacks(phase.parameters)
            if lacking:
                raise PlaceError(lacking)
        available = place.memory_mib("MemAvailable")
        if plan.memory_mib > available:
            raise PlaceError(
                f"about {plan.memory_mib:,} MiB of RAM are needed at one time, {available:,.0f} MiB are available now; "
                "close something, use fewer shards, or set order.redeploy: per_repetition"
            )

    def binaries(self, plan: Plan) -> dict[str, Binaries]:
        """Found and tried on this machine."""
        return {point.id: found_here(point) for point in plan.points}

    def inventory(self, folder: RunFolder) -> Path:  # noqa: ARG002 - the same for every run
        """inventories/local."""
        return place.project_root() / "inventories" / "local"

    def host_folder(self, folder: RunFolder) -> Path:
        """The run's own folder."""
        return folder.path

    def client_python(self) -> str:
        """The one that runs this."""
        return sys.executable

    def missing(self, folder: RunFolder, point: Point, playbooks: Playbooks) -> list[str]:  # noqa: ARG002
        """Processes that do not run any more, with the end of their logs."""
        return autopsy.missing(folder, point)

    def clean(self, folder: RunFolder, playbooks: Playbooks) -> list[str]:  # noqa: ARG002 - by the ledger alone
        """Processes and data of the run, found by its folder's name."""
        return leftovers.clean(folder)

    def running(self, folder: RunFolder) -> list[str]:
        """Command lines that name the run's folder."""
        return [process.command for process in leftovers.running(folder)]


def chosen(on: str) -> Backend:
    """The backend `--on` names: local, ec2, or the path of an Ansible inventory. Raises PlaceError."""
    from microshard.backends.ssh import Hosts  # noqa: PLC0415 - it derives from Backend

    if on == "local":
        return Local()
    if on == "ec2":
        raise PlaceError(
            "--on ec2: hosts are made and removed by one command, microshard run; to work with them by hand let it "
            "keep them: microshard run FILE --on ec2 --keep"
        )
    return Hosts.at(Path(on))


def of_run(folder: RunFolder) -> Backend:
    """The backend a run was made with. Raises PlaceError when its place is gone."""
    try:
        known = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Local()  # a run from before there were others
    with contextlib.suppress(OSError, ValueError):
        if "imported" in folder.marker():
            return Local()  # nothing of it runs anywhere, and an inventory of somebody else's is never used
    # They derive from Backend, and are of no use to a run of this machine.
    if known["backend"] == "hosts":
        from microshard.backends.ssh import Hosts  # noqa: PLC0415

        return Hosts.recorded_as(known)
    if known["backend"] == "ec2":
        from microshard.backends.ec2.backend import Ec2  # noqa: PLC0415

        return Ec2.recorded_as(known)
    return Local()
