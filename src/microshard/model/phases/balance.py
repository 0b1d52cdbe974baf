"""Keys of the engine `balance`."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from microshard.model.base import Namespace
from microshard.model.phase import EstimateBasis, KeyFinding, PhaseKeys, PhaseKind, write_concern_findings
from microshard.model.phases.traffic import Traffic
from microshard.model.topology import Topology

MOVED_BYTES_PER_SECOND = 5_000_000  # by one migration after another, 2 cores, mongod 6.0.5


class BalancePhase(PhaseKeys):
    """Measure the balancer at work during a load, until the cluster is balanced."""

    changes_data: ClassVar[bool] = True
    moves_chunks: ClassVar[bool] = True

    assumptions: ClassVar[tuple[str, ...]] = (
        f"balance: {MOVED_BYTES_PER_SECOND / 1e6:g} MB/s, one migration after another",
    )

    engine: Literal["balance"]
    """balance: chunks, documents and bytes by shard each second, from the config database and the shards."""
    namespace: Namespace
    """The sharded collection."""
    event: Literal["load", "balancer", "shards"] = "load"
    """What starts the balancing: the load itself, the start of the balancer, or the addition of shards."""
    load: Traffic | None = None
    """The load during the balancing; null for none."""
    before_seconds: Annotated[float, Field(ge=0, le=86_400, json_schema_extra={"unit": "s"})] = 0
    """How long the load runs before the event: what its throughput and latency are compared with."""
    after_seconds: Annotated[float, Field(ge=0, le=86_400, json_schema_extra={"unit": "s"})] = 0
    """How long a load without `documents` goes on after the cluster is balanced."""
    quiet_seconds: Annotated[float, Field(ge=1, le=86_400, json_schema_extra={"unit": "s"})] = 15
    """The cluster is balanced when a load with an end has ended, the server calls the collection balanced, and no
    migration was committed for this time. The time to balanced ends with the last migration."""
    time_limit_seconds: Annotated[float, Field(gt=0, le=2_592_000, json_schema_extra={"unit": "s"})] = 3600
    """Longest time from the event until the cluster is balanced."""
    unsettled: Literal["fail", "record"] = "fail"
    """A cluster that is not balanced by then: fail the phase, or record a result (metric imbalance or load_rate)."""
    metric: Literal["time_to_balanced", "imbalance", "load_rate"] = "time_to_balanced"
    """The figure: seconds from the event to the last migration; documents of the fullest shard over the mean when the
    load ends; or documents per second of the load from the event on."""
    mover: Literal["balancer", "client"] = "balancer"
    """Who moves chunks: the server's balancer, or this engine by moveRange (moveChunk before 6.0)."""
    concurrent_migrations: Annotated[int, Field(ge=1, le=512)] | None = None
    """mover client: migrations at a time. A balancer does as many as there are pairs of shards (one before 3.4)."""
    mover_throttle: bool = False
    """mover client: `secondaryThrottle` of each migration."""

    def _contradictions(self) -> Iterator[str]:
        if (self.mover == "client") != (self.concurrent_migrations is not None):
            yield "concurrent_migrations: goes with mover: client, and mover: client needs it"
        if self.mover_throttle and self.mover != "client":
            yield "mover_throttle: the balancer has topology.balancer.secondary_throttle"
        if self.metric == "time_to_balanced" and self.unsettled == "record":
            yield "unsettled: record needs a metric that an unbalanced cluster has: imbalance or load_rate"
        if self.metric == "load_rate" and self.load is None:
            yield "metric: load_rate needs a load"
        if self.event == "load" and self.load is None:
            yield "event: load needs a load"
        if self.before_seconds and (self.load is None or self.event == "load"):
            yield "before_seconds: needs a load, and an event other than it"

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[KeyFinding]:  # noqa: ARG002
        """Keys with which nothing would be balanced."""
        if topology.kind != "sharded":
            yield ("engine",), f"balance needs a sharded cluster, not kind: {topology.kind}", "error"
            return
        if self.namespace not in {c.namespace for c in topology.collections}:
            yield ("namespace",), f"{self.namespace} is not among topology.collections, so it is never moved", "error"
        shards = topology.shards
        later = shards.count - (shards.initial or shards.count)
        if self.event == "shards" and not later:
            yield ("event",), "no shard waits to be added; set topology.shards.initial below shards.count", "error"
        if self.event != "shards" and later:
            yield ("event",), "the shards above topology.shards.initial are never added; set event: shards", "warning"
        if self.event == "balancer" and topology.balancer.enabled:
            yield ("event",), "the balancer is at work from the start; set topology.balancer.enabled: false", "error"
        if self.mover == "client" and topology.balancer.enabled:
            yield ("mover",), "the balancer would move chunks too; set topology.balancer.enabled: false", "error"
        if self.load:
            yield from write_concern_findings(self.load.write_concern, topology, "load", "write_concern")
            yield from self.load.paced_findings("load")

    def adds(self) -> int:
        """Documents of a load that ends by itself."""
        return (self.load.documents or 0) if self.load else 0

    def raw_bytes(self) -> int:
        """BSON bytes of them."""
        return self.adds() * self.load.document_bytes if self.load else 0

    def seconds(self, expected: EstimateBasis) -> float:
        """By the bytes that must move: half of the data."""
        size = self.raw_bytes() or expected.documents * (self.load.document_bytes if self.load else 1000)
        waiting = self.before_seconds + self.after_seconds + self.quiet_seconds
        moving = size / 2 / MOVED_BYTES_PER_SECOND
        return waiting + min(moving * expected.copies, self.time_limit_seconds)

    def figures(self) -> tuple[str, ...]:
        """Every figure it can report; some keys leave some of them out."""
        even = "fullest shard over the mean"
        with_load = ("load rate while balancing", "load rate, during over before")
        return ("time to balanced", even, f"{even}, at the end", "bytes moved", *with_load)


KEYS = BalancePhase
