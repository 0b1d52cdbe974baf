"""Keys of the engine `initial_sync`."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from microshard.model.base import Namespace
from microshard.model.phase import EstimateBasis, KeyFinding, PhaseKeys, PhaseKind, write_concern_findings
from microshard.model.phases.traffic import Traffic
from microshard.model.topology import Topology, listed

CLONED_BYTES_PER_SECOND = 25_000_000  # mongod 6.0.5, one core for source and member each


class InitialSyncPhase(PhaseKeys):
    """Add a member to a replica set and watch its initial sync."""

    changes_data: ClassVar[bool] = True

    assumptions: ClassVar[tuple[str, ...]] = (
        f"initial_sync: {CLONED_BYTES_PER_SECOND / 1e6:g} MB/s, one core for source and member each",
    )

    engine: Literal["initial_sync"]
    """initial_sync: stages from `replSetGetStatus.initialSyncStatus`."""
    replica_set: str | None = None
    """Replica set whose member is added; null is the only one that has a member to add."""
    load: Traffic | None = None
    """Write load that runs while the member syncs; null for none."""
    load_runs: bool = True
    """Whether the load runs: with false the same is measured without it, so that it can be an axis."""
    namespace: Namespace | None = None
    """Collection the load writes to."""
    before_seconds: Annotated[float, Field(ge=0, le=86_400, json_schema_extra={"unit": "s"})] = 0
    """How long the load runs before the member is added: what its throughput is compared with."""
    interruptions: Annotated[int, Field(ge=0, le=8)] = 0
    """How often the syncing mongod is ended by SIGKILL and started again; each time it begins anew."""
    interrupt_at: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of the bytes that must have been copied before it is ended."""
    time_limit_seconds: Annotated[float, Field(gt=0, le=2_592_000, json_schema_extra={"unit": "s"})] = 86_400
    """How long the member may take to become SECONDARY."""
    verify: Literal["counts", "hash"] = "counts"
    """At the end: the same documents by number and the same indexes, or also `dbHash` of every database."""

    def _contradictions(self) -> Iterator[str]:
        if (self.load is None) != (self.namespace is None):
            yield "namespace: goes with load, and load needs it"
        if self.before_seconds and self.load is None:
            yield "before_seconds: needs a load"
        if self.load is not None and self.load.documents is not None:
            yield "load: documents must be null; the load ends with the sync"

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[KeyFinding]:  # noqa: ARG002
        """A topology without a member to add."""
        if topology.kind == "standalone":
            yield ("engine",), "initial_sync needs a replica set or shards, not kind: standalone", "error"
            return
        where = "replica_set" if topology.kind == "replica_set" else "shards"
        members = listed(getattr(topology, where).members)
        waiting = [n for n, m in enumerate(members) if not m.initial]
        if len(waiting) != 1:
            message = f"topology.{where}.members must have one member with initial: false, found {len(waiting)}"
            yield ("engine",), message, "error"
        if where == "shards" and topology.shards.count > 1 and self.replica_set is None:
            yield ("engine",), "there are several shards; name the one with replica_set, for example shard01", "error"
        if self.load:
            yield from write_concern_findings(self.load.write_concern, topology, "load", "write_concern")
            yield from self.load.paced_findings("load")

    def restarts(self) -> int:
        """Once for each interruption."""
        return self.interruptions

    def seconds(self, expected: EstimateBasis) -> float:
        """By the bytes to copy, at a thousand a document."""
        once = expected.documents * 1000 / CLONED_BYTES_PER_SECOND + 5
        return (self.before_seconds if self.load_runs else 0) + once * (1 + self.interruptions * self.interrupt_at)

    def figures(self) -> tuple[str, ...]:
        """Every figure it can report; some keys leave some of them out."""
        with_load = "load rate, during over before"
        lost = "lost by interruptions"
        return ("time to SECONDARY", "data copied, over all", "clone", "clone rate", "oplog", lost, with_load)


KEYS = InitialSyncPhase
