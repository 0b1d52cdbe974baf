"""What all phases share: the model from which the keys of each engine derive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from microshard.model.base import Model
from microshard.model.topology import Topology, data_members

PhaseKind = Literal["load", "warm_up", "measure"]
KeyFinding = tuple[tuple[str | int, ...], str, Literal["error", "warning"]]  # path below the phase, sentence, severity


@dataclass(frozen=True, slots=True)
class PhaseContext:
    """Facts a phase is planned with."""

    cores: int  # of the client host
    client_hosts: int = 1
    mongos: int = 0
    key_ranges: Mapping[str, int] = field(default_factory=dict)  # namespace → chunks the plan places before the load
    pipelines: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # by name
    folder: Path | None = None  # of the experiment file, for files it names


@dataclass(frozen=True, slots=True)
class EstimateBasis:
    """Facts a phase bases the estimate of its time on."""

    documents: int  # in the collections by then
    workers: int  # shards that can work at the same time: no more than there are cores
    cores: int
    copies: int  # members that hold each document
    client_cores: int  # of the hosts of client and mongos; on one machine they are the same cores
    volume_mibps: float | None = None  # of all data volumes together; None where they have no known rate
    disk_share: float = 1.0  # of a document's BSON bytes that its compressor leaves


def write_concern_findings(concern: Mapping[Any, Any], topology: Topology, *path: str | int) -> Iterator[KeyFinding]:
    """The reason why this topology can never meet a write concern, if there is one; `path` is that of the key."""
    if reason := _unmet(concern, topology):
        yield path, reason, "error"


def _unmet(concern: Mapping[Any, Any], topology: Topology) -> str | None:
    wanted, members = concern.get("w"), data_members(topology)
    if isinstance(wanted, bool) or (isinstance(wanted, int) and wanted < 0):
        return 'needs a number of members or "majority"'
    if wanted == 0:
        return "w 0 is not acknowledged, so nothing could be counted"
    if isinstance(wanted, int) and wanted > members:
        only = "is one member" if members == 1 else f"are {members} members"
        return f"waits for {wanted} members where there {only}, so no insert would end"
    return None


class PhaseKeys(Model):
    """The keys of a phase. An engine derives its own, gives them types, units and defaults, and calls them KEYS."""

    engine: str
    """Which engine executes the phase."""

    changes_data: ClassVar[bool] = False
    """Whether a measurement by this engine leaves other data behind than it found; the point is then deployed and
    loaded anew for every repetition."""

    reports_latency: ClassVar[bool] = False
    """Whether results have latencies of single operations."""

    spreads: ClassVar[bool] = False
    """Whether several client hosts can do the phase together, each its part."""

    moves_chunks: ClassVar[bool] = False
    """Whether this engine has chunks moved itself, so that migrations do not make its measurement invalid."""

    assumptions: ClassVar[tuple[str, ...]] = ()
    """Measured rates the estimate of its time rests on, each with its source."""

    def of_kind(self, kind: PhaseKind) -> PhaseKeys:  # noqa: ARG002
        """These keys as they stand under load, warm_up or measure, for engines to which it makes a difference."""
        return self

    def writes(self) -> bool:
        """Whether these keys change the data; an engine that can do both looks at them."""
        return self.changes_data

    def parameters(self, context: PhaseContext) -> dict[str, Any]:  # noqa: ARG002 - for those who override it
        """Everything the engine is given, complete: no default is left to the engine."""
        return self.model_dump(mode="json", exclude={"engine"})

    def problems(self, context: PhaseContext) -> Iterable[tuple[str, str]]:  # noqa: ARG002
        """What keeps the phase from being planned: (key of the phase, sentence)."""
        return ()

    def leaves_hosts_idle(self, key: str, clients: int, context: PhaseContext) -> Iterator[tuple[str, str]]:
        """For `problems`: fewer clients, given by `key`, than client hosts."""
        if clients < context.client_hosts:
            yield key, f"{clients} on {context.client_hosts} client hosts (infrastructure) leave some without any"

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterable[KeyFinding]:  # noqa: ARG002
        """Contradictions between these keys and the topology."""
        return ()

    def restarts(self) -> int:
        """How often the phase has mongods restarted; on other hosts the play restarts them."""
        return 0

    def adds(self) -> int:
        """Documents the phase adds to the data."""
        return 0

    def raw_bytes(self) -> int:
        """BSON bytes the phase adds to the data, before compression."""
        return 0

    def seconds(self, expected: EstimateBasis) -> float:  # noqa: ARG002
        """Estimated duration; for a measurement, of one repetition."""
        return 0.0

    def target(self) -> str | None:
        """The collection the phase works on, if it is one: by convention the key `namespace`."""
        return getattr(self, "namespace", None)

    def sweeps(self) -> tuple[str, ...]:
        """Keys whose values the phase itself iterates over, as a ladder does with threads."""
        return ()

    def figures(self) -> tuple[str, ...] | None:
        """Names of the figures the engine reports, its metric first; None where they are not known beforehand."""
        return None

    def question(self) -> Any:
        """What determines the answer besides the data: phases with equal questions must have equal answers."""
        return None

    def data(self) -> Any:
        """What decides which documents the phase leaves behind; None when it leaves none."""
        return None
