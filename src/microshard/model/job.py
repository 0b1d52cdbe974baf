"""The job an engine executes, job.json (docs/contracts.md); workloads/connections.py reads it and adds the logins."""

from dataclasses import dataclass, field
from typing import Any

from microshard.model.plan import PlannedChunk, PlannedMember, PlannedPhase, PlannedReplicaSet


class JobError(Exception):
    """The job cannot be executed as written: a parameter is missing, wrong or unknown. Exit code 2."""


@dataclass(frozen=True, slots=True)
class CollectionChunks:
    """A sharded collection and its chunks before the load."""

    namespace: str
    chunks: tuple[PlannedChunk, ...]


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A mongod or mongos of the point as far as an engine needs it; paths are absolute, on `host`."""

    name: str
    role: str
    endpoint: str
    db_path: str | None
    pid_path: str
    host: str
    replica_set: str | None = None
    # Added when the job is read. Connects to this process alone, with the login of the servers themselves: a mongod
    # that is not yet a member of a set knows no other, nor does an arbiter. It must never be written anywhere.
    uri: str = ""

    @property
    def bears_data(self) -> bool:
        """Whether documents of the experiment can be in it."""
        return self.role in {"standalone", "member", "shard"}


@dataclass(frozen=True, slots=True)
class ReplicaSetInfo(PlannedReplicaSet):
    """A replica set of the point."""

    uri: str = ""  # added when the job is read: of the members from the start, with a login as ProcessInfo.uri has it

    @property
    def first(self) -> PlannedMember:
        """The member that leads."""
        return self.members[0]

    @property
    def later(self) -> tuple[PlannedMember, ...]:
        """The members that a phase adds."""
        return tuple(member for member in self.members if not member.initial)


@dataclass(frozen=True, slots=True)
class JobPoint:
    """The deployed topology."""

    id: str
    shards: int
    topology: str
    cores: int
    processes: tuple[ProcessInfo, ...]
    collections: tuple[CollectionChunks, ...]
    axes: dict[str, Any] = field(default_factory=dict)
    replica_sets: tuple[ReplicaSetInfo, ...] = ()
    security: dict[str, bool] = field(default_factory=dict)  # authorization, tls

    def collection(self, namespace: str) -> CollectionChunks | None:
        """The sharded collection of this name; None when it is not sharded."""
        return next((c for c in self.collections if c.namespace == namespace), None)

    def key_ranges(self, namespace: str) -> int:
        """How many ranges of `_id`s the plan has placed for this collection; 0 when it has placed none."""
        found = self.collection(namespace)
        lowers = [chunk.lower for chunk in found.chunks] if found else []
        return len(lowers) if lowers[1:] == [k << 32 for k in range(1, len(lowers))] else 0


@dataclass(frozen=True, slots=True)
class ClientShare:
    """Which of several client hosts this is; each does its share of the phase."""

    index: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True)
class JobStep:
    """The step the phases belong to."""

    name: str | None = None
    purpose: str | None = None
    restarts: int = 0  # how often the play restarts mongods for it (workloads/restarts.py); 0: the engine does it


@dataclass(frozen=True, slots=True)
class Job:
    """Phases to execute one after the other against one point."""

    connection_string: str
    point: JobPoint
    phases: tuple[PlannedPhase, ...]
    step: JobStep = JobStep()
    part: ClientShare = ClientShare()
    # Epoch seconds at which all client hosts begin; "file": read from a file once all are ready.
    start_at: float | str | None = None
    after: bool = False  # all client hosts have finished: only verify what they left
    tools: dict[str, str] = field(default_factory=dict)  # programs of this host by name: java, ycsb_jar
    secrets: str | None = None  # folder of the run's logins and certificates
