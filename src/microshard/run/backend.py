"""What a run needs of the place it runs at: the protocol `Backend`, implemented by microshard.backends.

A backend answers what differs between this machine, hosts reached by SSH and hosts created on EC2; planner, runner
and playbooks are the same for all. docs/architecture.md shows how they work together.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from microshard.model.ec2_facts import EbsOfInstance
from microshard.model.plan import FIRST_PORT, Inputs, Plan, Point
from microshard.model.run_records import BackendRecord
from microshard.model.variables import RunVariables, ServerPrograms
from microshard.records.run_folder import BACKEND, RunFolder, write_json
from microshard.run.ansible import EventHandler, Playbooks, ignore

LAST_PORT = 32000  # from 32768 on the kernel hands out ports for outgoing connections
PORT_BLOCK = 100  # runs on this machine take their ports in blocks of this many
MOST_PORTS = LAST_PORT - FIRST_PORT - 2 * PORT_BLOCK  # of one run: whole blocks, with room for another run's


@dataclass(frozen=True, slots=True)
class Binaries:
    """The mongod and mongos a point uses, as paths on its hosts."""

    mongod: Path
    mongos: Path | None
    embedded: bool  # the mongos is the embedded router
    version: str
    sha256: str = ""  # of the mongod; "" where the controller does not have it
    install: dict[str, Any] = field(default_factory=dict)  # how hosts get it; empty: it is there already

    def variables(self) -> ServerPrograms:
        """`microshard_run.bin` of vars.json."""
        mongos = str(self.mongos) if self.mongos else ""
        return ServerPrograms(str(self.mongod), mongos, self.embedded, self.version, self.install)


State = Literal["ok", "note", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing `microshard doctor` has looked at."""

    what: str
    state: State
    detail: str
    remedy: str = ""  # what to do, unless all is well


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What `microshard doctor` is to look at."""

    file: Path | None = None  # an experiment; None: the place in general
    scale: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    region: str | None = None
    owner: str | None = None
    runs: Path = Path("runs")  # where run folders would be created


class Backend(ABC):
    """A place to run at. A run calls inputs, ports, check_room and binaries, then the playbooks, then clean."""

    name: str  # local, hosts or ec2: plan/support.py refuses keys by it
    where: str  # how messages call it
    remote = True  # hosts are other machines, reached by ssh
    process_manager = "direct"
    tunnel = False  # only ssh reaches the hosts: their ports are closed to this machine

    @abstractmethod
    def inputs(self, runs: Path) -> Inputs:
        """The facts a plan is made for. May connect, changes nothing. Raises PlaceError by host and next step."""

    @abstractmethod
    def ports(self, count: int, preferred: Sequence[int] = ()) -> contextlib.AbstractContextManager[int]:
        """The first of `count` consecutive ports that are free on every host while the context is open."""

    @abstractmethod
    def check_room(self, plan: Plan) -> None:
        """Raise PlaceError when less than the plan needs is free now, whatever the hosts have in all."""

    @abstractmethod
    def binaries(self, plan: Plan) -> dict[str, Binaries]:
        """Point → the mongod and mongos it uses. Raises PlaceError."""

    @abstractmethod
    def host_folder(self, folder: RunFolder) -> Path:
        """The run's folder on every host."""

    @abstractmethod
    def client_python(self, driver: str | None = None) -> str:
        """The interpreter on the client host that has microshard and this pymongo (client.driver)."""

    def no_emulated_volumes(self, filesystems: Sequence[str]) -> str | None:  # noqa: ARG002 - the playbooks will say
        """Why volumes with these file systems cannot be emulated here; None when they can."""
        return None

    def use(self, plan: Plan) -> None:  # noqa: B027 - only inventories have several hosts
        """Limit everything that follows to the hosts of a plan."""

    def playbooks(self, folder: RunFolder, handler: EventHandler) -> Playbooks:
        """The playbooks of a run, limited to its hosts."""
        return Playbooks(folder, handler)

    def prepare(  # noqa: B027 - may be nothing
        self, folder: RunFolder, playbooks: Playbooks, variables: Path, driver: str | None = None
    ) -> None:
        """Prepare the hosts for points with this driver, before the first. Raises PlaybookError, PlaceError."""

    def remove_images(self, names: Sequence[str]) -> None:  # noqa: B027 - on this machine they are beside the runs
        """Remove data images from the hosts. Raises MicroshardError."""

    @abstractmethod
    def missing(self, folder: RunFolder, point: Point) -> list[str]:
        """A sentence for every planned process or host that is gone, for the message of a failed point."""

    def lost(self, folder: RunFolder) -> Mapping[str, str]:  # noqa: ARG002 - only EC2 takes hosts away
        """Hosts that are gone for good, with the reason. Raises MicroshardError when it is not known."""
        return {}

    @abstractmethod
    def clean(self, folder: RunFolder, handler: EventHandler = ignore) -> list[str]:
        """Stop and remove whatever is left of the run; returns what could not be removed."""

    @abstractmethod
    def running(self, folder: RunFolder) -> list[str]:
        """A command line for every process of the run; those of a deployment contain /deployments/POINT/."""

    @abstractmethod
    def leftovers(self, folder: RunFolder) -> tuple[str, ...]:
        """What a run that is over has left at this place, as `microshard gc` names it."""

    @abstractmethod
    def command(self, host: str, words: Sequence[str], *, terminal: bool = False) -> list[str]:
        """The command line that executes `words` on a host; without words a shell."""

    def disconnect(self) -> None:  # noqa: B027 - only ssh keeps connections
        """Close the connections to hosts that are kept."""

    def variables(self, folder: RunFolder, driver: str | None = None) -> RunVariables:
        """`microshard_run` of vars.json for points with this driver, without the binaries."""
        return RunVariables(
            id=folder.run_id,
            folder=str(self.host_folder(folder)),
            controller_folder=str(folder.path),
            python=self.client_python(driver),
            process_manager=self.process_manager,
            backend=self.name,
        )

    def cost(self, folder: RunFolder) -> str:  # noqa: ARG002 - only hosts on EC2 cost something
        """What the hosts of a run cost while they exist, in a sentence; empty where they cost nothing."""
        return ""

    def remarks(self) -> list[str]:
        """What a reader of the results should know of the hosts as they are now."""
        return []

    def clock_shifts(self, point: Point) -> Mapping[str, float]:  # noqa: ARG002 - one machine has one clock
        """Host → seconds to add to its times to get the client host's; hosts that need none are left out."""
        return {}

    def ebs_of(self, instance_type: str) -> EbsOfInstance | None:  # noqa: ARG002 - only EC2 knows
        """What the EBS volumes of an instance type may do together; None where that is not known."""
        return None

    def record(self, folder: RunFolder) -> None:
        """Write which backend the run has into its folder."""
        write_json(folder / BACKEND, self.recorded(folder))

    def recorded(self, folder: RunFolder) -> BackendRecord:  # noqa: ARG002 - one machine needs nothing more
        """What a later command needs to find the hosts again."""
        return BackendRecord(self.name)


BackendOf = Callable[[RunFolder], Backend]  # the backend an existing run was made with; raises PlaceError
