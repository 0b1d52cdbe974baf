"""The job an engine is given (docs/contracts.md).

The types are the engines' own and not those of the plan: an engine also runs on client hosts that have no planner,
and must not pay for importing it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from microshard.workloads.access import SYSTEM, with_access


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
class Chunk:
    """A range of the shard key on a shard; None stands for MinKey or MaxKey."""

    shard: str
    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class Collection:
    """A sharded collection and its chunks before the load."""

    namespace: str
    chunks: tuple[Chunk, ...]


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
    # Of this process alone, with what a login needs; never to be written anywhere. The login is the servers' own: a
    # mongod that is no member of a set yet knows no other, nor does an arbiter.
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
    collections: tuple[Collection, ...]
    axes: Mapping[str, Any]
    replica_sets: tuple[ReplicaSetInfo, ...] = ()

    def collection(self, namespace: str) -> Collection | None:
        """The sharded collection of this name, if it is one."""
        return next((c for c in self.collections if c.namespace == namespace), None)

    def key_ranges(self, namespace: str) -> int:
        """How many ranges of `_id`s the plan has placed for this collection; 0 when it has placed none."""
        found = self.collection(namespace)
        lowers = [chunk.lower for chunk in found.chunks] if found else []
        return len(lowers) if lowers[1:] == [k << 32 for k in range(1, len(lowers))] else 0


@dataclass(frozen=True, slots=True)
class Part:
    """Which of several client hosts this is; each runs its share of the clients."""

    index: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    """Phases to run one after the other against one point."""

    connection_string: str
    point: JobPoint
    phases: tuple[Phase, ...]
    step: str | None
    purpose: str | None
    part: Part = Part()
    # Epoch seconds at which the clients of all hosts begin; told: it will stand in a file once all hosts are ready.
    start_at: float | Literal["told"] | None = None
    asks: bool = False  # what is to be done on the servers' hosts is asked of the play, engines/asking.py
    after: bool = False  # all hosts have done their parts: only look at what is there now
    tools: Mapping[str, str] = field(default_factory=dict)  # programs of this host by name: java, ycsb_jar


def _process(data: Mapping[str, Any], reach: Callable[..., str]) -> ProcessInfo:
    return ProcessInfo(
        name=data["name"],
        role=data["role"],
        endpoint=data["endpoint"],
        db_path=data["db_path"],
        pid_path=data["pid_path"],
        host=data["host"],
        replica_set=data.get("replica_set"),
        uri=reach(f"mongodb://{data['endpoint']}/", user=SYSTEM),
    )


def _replica_set(data: Mapping[str, Any], reach: Callable[..., str]) -> ReplicaSetInfo:
    first = tuple(m["endpoint"] for m in data["members"] if m.get("initial", True))
    later = tuple(m for m in data["members"] if not m.get("initial", True))
    uri = reach(f"mongodb://{','.join(first)}/?replicaSet={data['name']}", user=SYSTEM)
    return ReplicaSetInfo(data["name"], data["role"], first, data.get("initial", True), later, uri)


def _collection(data: Mapping[str, Any]) -> Collection:
    return Collection(data["namespace"], tuple(Chunk(c["shard"], c["lower"], c["upper"]) for c in data["chunks"]))


def _with_access(uri: str, secrets: str | None, security: Mapping[str, bool], user: str = "workload") -> str:
    authorization, tls = bool(security.get("authorization")), bool(security.get("tls"))
    try:
        return with_access(uri, Path(secrets) if secrets else None, authorization=authorization, tls=tls, user=user)
    except OSError as error:
        raise JobError(f"the secrets of the run cannot be read: {error}") from None


def read_job(data: Any) -> Job:
    """A job from its JSON form. Raises JobError naming what is missing."""
    try:
        point = data["point"]
        step = data.get("step") or {}
        reach = partial(_with_access, secrets=data.get("secrets"), security=point.get("security") or {})
        return Job(
            connection_string=reach(data["connection_string"]),
            point=JobPoint(
                id=point["id"],
                shards=point["shards"],
                topology=point["topology"],
                cores=point["cores"],
                processes=tuple(_process(p, reach) for p in point["processes"]),
                collections=tuple(_collection(c) for c in point["collections"]),
                axes=dict(point.get("axes") or {}),
                replica_sets=tuple(_replica_set(rs, reach) for rs in point.get("replica_sets") or ()),
            ),
            phases=tuple(Phase(p["name"], p["kind"], p["engine"], dict(p["parameters"])) for p in data["phases"]),
            step=step.get("name"),
            purpose=step.get("purpose"),
            part=Part(**(data.get("part") or {})),
            start_at=data.get("start_at"),
            asks=bool(step.get("restarts")),
            after=bool(data.get("after")),
            tools=dict(data.get("tools") or {}),
        )
    except KeyError as missing:
        raise JobError(f"the job has no {missing.args[0]!r}") from None
    except (TypeError, AttributeError, ValueError) as wrong:
        raise JobError(f"the job has not the form of docs/contracts.md: {wrong}") from None
