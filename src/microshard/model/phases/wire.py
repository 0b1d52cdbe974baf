"""Keys of the engine `wire`."""

import importlib.util
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from microshard.model.base import Model, Namespace
from microshard.model.phase import EstimateBasis, KeyFinding, PhaseKeys, PhaseKind, write_concern_findings
from microshard.model.phases.traffic import Traffic
from microshard.model.topology import Topology

Compressor = Literal["snappy", "zlib", "zstd"]


class WireLink(Model):
    """The link between the client and the entry point of the topology."""

    kind: Literal["none", "relay", "netem", "tbf"] = "none"
    """none: as it is; netem, tbf: a network namespace of the run's with this queueing discipline of the kernel (root;
    a kernel without it is refused); relay: a process that carries the bytes late and slowly, without root, but no real
    network."""
    delay_ms: Annotated[float, Field(ge=0, le=10_000, json_schema_extra={"unit": "ms"})] = 0
    """relay, netem: delay in each direction."""
    rate_mbps: Annotated[float, Field(gt=0, le=100_000, json_schema_extra={"unit": "Mbit/s"})] | None = None
    """Rate of each direction, all connections together; null does not limit it."""

    def _contradictions(self) -> Iterator[str]:
        if self.kind == "none" and (self.delay_ms or self.rate_mbps is not None):
            yield "kind: delay_ms and rate_mbps need another kind than none"
        if self.kind == "tbf" and (self.delay_ms or self.rate_mbps is None):
            yield "kind: tbf limits the rate and delays nothing: rate_mbps alone"
        if self.kind == "netem" and not self.delay_ms and self.rate_mbps is None:
            yield "kind: netem needs delay_ms or rate_mbps"


class WirePhase(PhaseKeys):
    """Run a load and count the bytes that compression saves on the wire."""

    changes_data: ClassVar[bool] = True

    engine: Literal["wire"]
    """wire: bytes before and after from serverStatus, throughput and latency."""
    namespace: Namespace
    """Collection the load works on."""
    load: Traffic
    """The load."""
    seconds_long: Annotated[float, Field(gt=0, le=86_400, json_schema_extra={"unit": "s"})]
    """How long it runs."""
    client_compressors: Annotated[list[Compressor], Field(max_length=3)] = Field(default=[])
    """Compressors the client offers; between servers it is topology.network.compressors. Empty: none."""
    link: WireLink = WireLink()
    """The link between client and mongos, or primary of a replica set."""

    def _contradictions(self) -> Iterator[str]:
        if self.load.documents is not None:
            yield "load: documents must be null; the load ends after seconds_long"

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[KeyFinding]:  # noqa: ARG002
        """What the servers do not speak."""
        embedded = topology.kind == "sharded" and topology.mongodb.source == "embedded"
        for index, name in enumerate(self.client_compressors):
            at = ("client_compressors", index)
            if name not in topology.network.compressors:
                yield at, f"topology.network.compressors does not have {name}, so the client would not get it", "error"
            elif embedded and name != "zlib" and importlib.util.find_spec("cramjam") is None:
                message = f"for {name} the embedded mongos needs another package: pip install 'microshard[compression]'"
                yield at, message, "error"
        yield from write_concern_findings(self.load.write_concern, topology, "load", "write_concern")
        yield from self.load.paced_findings("load")

    def seconds(self, expected: EstimateBasis) -> float:  # noqa: ARG002
        """The time of the load."""
        return self.seconds_long

    def figures(self) -> tuple[str, ...]:
        """The metric, and the further figures."""
        return (
            "load rate", "bytes on the wire", "compression ratio", "sent by all servers", "client CPU",
        )  # fmt: skip


KEYS = WirePhase
