"""The job an engine executes (docs/contracts.md); workloads/job_reader.py reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from microshard.model.plan import PlannedChunk


class JobError(Exception):
    """The job cannot be executed as written: a parameter is missing, wrong or unknown. Exit code 2."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of the workload with all its parameters explicit."""

    name: str
    kind: str
    engine: str
    parameters: dict[str, Any]


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
    # Connects to this process alone, with the login of the servers themselves: a mongod that is not yet a member of a
    # set knows no other, nor does an arbiter. It must never be written anywhere.
    uri: str = ""

    @property
    def bears_data(self) -> bool:
        """Whether documents of the experiment can be in it."""
        return self.role in {"standalone", "member", "shard"}


@dataclass(frozen=True, slots=True)
class ReplicaSetInfo:
    """A replica set of the point."""

    name: str
    role: str
    endpoints: tuple[str, ...]  # of the members that belong to it from the start
    initial: bool  # False: a shard that a phase adds
    later: tuple[Mapping[str, Any], ...] = ()  # members that a phase adds, as the plan describes them
    uri: str = ""  # of the members from the start, with a login as ProcessInfo.uri has it

    @property
    def connection(self) -> str:
        """`name/host:port,…`, the form addShard takes."""
        return f"{self.name}/{','.join(self.endpoints)}"


@dataclass(frozen=True, slots=True)
class JobPoint:
    """The deployed topology."""

    id: str
    shards: int
    topology: str
    cores: int
    processes: tuple[ProcessInfo, ...]
    collections: tuple[CollectionChunks, ...]
    axes: Mapping[str, Any]
    replica_sets: tuple[ReplicaSetInfo, ...] = ()

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
    """Which of several client hosts this is; each runs its share of the clients."""

    index: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    """Phases to execute one after the other against one point."""

    connection_string: str
    point: JobPoint
    phases: tuple[Phase, ...]
    step: str | None
    purpose: str | None
    part: ClientShare = ClientShare()
    # Epoch seconds at which the clients of all hosts begin; "file": read from a file once all are ready.
    start_at: float | Literal["file"] | None = None
    requests_restarts: bool = False  # mongods are restarted by the play, workloads/restarts.py
    after: bool = False  # the clients of all hosts have finished: only count and measure what they left
    tools: Mapping[str, str] = field(default_factory=dict)  # programs of this host by name: java, ycsb_jar
