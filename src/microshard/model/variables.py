"""The variables Ansible is given for a point: points/POINT/vars.json of a run's folder.

playbooks/group_vars/all.yml fills the variables of the roles from them. Paths are absolute, on the hosts unless they
say otherwise.
"""

from dataclasses import dataclass, field
from typing import Any

from microshard.model.data_images import DataImageVariables
from microshard.model.plan import Point, Process


@dataclass(frozen=True, slots=True)
class ServerPrograms:
    """MongoDB's programs on the hosts."""

    mongod: str
    mongos: str  # "" where the point needs none
    embedded: bool  # mongos is the embedded one
    version: str
    install: dict[str, Any] = field(default_factory=dict)  # how hosts get it; empty: it is there already


@dataclass(frozen=True, slots=True)
class RunVariables:
    """What all points of a run share, and the programs of this one."""

    id: str
    folder: str  # of the run, on the hosts
    controller_folder: str  # of the run, on the controller
    python: str  # interpreter of the client host that has microshard and pymongo
    process_manager: str  # direct or systemd
    backend: str
    bin: ServerPrograms | None = None  # none where no point is concerned
    # From here on of hosts only.
    software: str = ""  # folder of programs that are sent, by checksum
    client_folder: str = ""  # of the client's virtual environment
    client_wheels: str = ""  # archive of the client's wheels, on the controller
    client_pythons: dict[str, str] = field(default_factory=dict)  # host → interpreter of that environment
    make_base: list[str] = field(default_factory=list)  # hosts where root has to create the folder of all runs


@dataclass(frozen=True, slots=True)
class ProcessVariables(Process):
    """A process with its address, and where its files are when not in its folder."""

    endpoint: str = ""
    volumes: dict[str, str] = field(default_factory=dict)  # data, journal, log → folder on a volume
    cgroup: str = ""  # folder of the control group it is started in


@dataclass(frozen=True, slots=True)
class PointVariables(Point):
    """The point of the plan."""

    processes: tuple[ProcessVariables, ...]
    connection_string: str = ""


@dataclass(frozen=True, slots=True)
class StepVariables:
    """The step to measure."""

    index: int
    repetition: int
    attempt: int
    purpose: str
    name: str
    deploy: bool
    pause: bool  # the processes are paused (SIGSTOP) after this step
    phases: list[str]  # names of those to execute
    restarts: int  # how often the engine requests restarts of mongods; 0 on this machine, where it restarts them itself
    results: str  # file
    telemetry: str  # folder
    progress: str  # file


@dataclass(frozen=True, slots=True)
class Variables:
    """points/POINT/vars.json."""

    microshard_run: RunVariables
    microshard_point: PointVariables
    microshard_step: StepVariables | None = field(default=None, metadata={"optional": True})  # where one is measured
    microshard_data_image: DataImageVariables | None = field(default=None, metadata={"optional": True})
