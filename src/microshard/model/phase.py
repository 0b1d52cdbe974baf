"""What the keys of a phase are, whatever its engine: the model an engine's own keys derive from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from microshard.model.base import Model
from microshard.model.topology import Topology, data_members

PhaseKind = Literal["load", "warm_up", "measure"]
Rule = tuple[tuple[str | int, ...], str, Literal["error", "warning"]]  # path below the phase, sentence, severity


@dataclass(frozen=True, slots=True)
class PhaseContext:
    """What a phase may know when it is planned. Nothing of it is found out by the phase itself: planning is pure."""

    cores: int  # of the client host
    client_hosts: int = 1
    mongos: int = 0
    key_ranges: Mapping[str, int] = field(default_factory=dict)  # namespace → chunks the plan places before the load
    pipelines: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # by name
    folder: Path | None = None  # of the experiment file, for files it names


@dataclass(frozen=True, slots=True)
class EstimateBasis:
    """What a phase may take for granted when it estimates its time."""

    documents: int  # in the collections by then
    workers: int  # shards that can work at the same time: no more than there are cores
    cores: int
    copies: int  # members that hold each document
    client_cores: int  # of the hosts of client and mongos; on one machine they are the same cores


def unfulfillable(concern: Mapping[Any, Any], topology: Topology) -> str | None:
    """Why a write concern can never be met by this topology; None when it can."""
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

    spreads: ClassVar[bool] = False
    """Whether several client hosts can do the phase together, each its part."""

    moves_chunks: ClassVar[bool] = False
    """Whether this engine has chunks moved itself, so that migrations do not make its measurement invalid."""

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

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterable[Rule]:  # noqa: ARG002
        """Rules between these keys and the topology that do not hold."""
        return ()

    def restarts(self) -> int:
        """How often the phase has mongods restarted. On other hosts the play does it when the engine asks."""
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
        """Its own keys that the phase itself goes through the values of, as a ladder does with threads."""
        return ()

    def question(self) -> Any:
        """What decides the answer of the phase besides the data: two phases with equal questions must agree."""
        return None

    def data(self) -> Any:
        """What decides which documents the phase leaves behind; None when it leaves none."""
        return None
