"""Keys of the engine `member_sizes`."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from microshard.model.base import Namespace
from microshard.model.phase import EstimateBasis, KeyFinding, PhaseKeys, PhaseKind
from microshard.model.topology import Topology, listed

CLONED_BYTES_PER_SECOND = 25_000_000  # of one member with a core for it and one for its source, mongod 6.0.5


class MemberSizesPhase(PhaseKeys):
    """Fill hidden members by initial sync and compare what the same data takes in each."""

    changes_data: ClassVar[bool] = True

    assumptions: ClassVar[tuple[str, ...]] = (f"member_sizes: {CLONED_BYTES_PER_SECOND / 1e6:g} MB/s of initial sync",)

    engine: Literal["member_sizes"]
    """member_sizes: storageSize and totalIndexSize of every member after a checkpoint; `dbHash` must agree."""
    namespace: Namespace
    """Collection to compare."""
    time_limit_seconds: Annotated[float, Field(gt=0, le=2_592_000, json_schema_extra={"unit": "s"})] = 86_400
    """How long the members may take to become SECONDARY, all together."""

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[KeyFinding]:  # noqa: ARG002
        """A topology without members to fill, or with such as cannot be added all at once."""
        if topology.kind != "replica_set":
            yield ("engine",), f"member_sizes needs kind: replica_set, not {topology.kind}", "error"
            return
        waiting = [(n, m) for n, m in enumerate(listed(topology.replica_set.members)) if not m.initial]
        if not waiting:
            message = "topology.replica_set.members needs members with initial: false, which are then filled"
            yield ("engine",), message, "error"
        for number, member in waiting:
            if member.votes or not member.hidden or member.delay_seconds or member.arbiter:
                # A reconfiguration may change one vote at a time (MongoDB 4.4 on); clients must not read them.
                where = f"topology.replica_set.members.{number}"
                message = f"{where}: a member to compare needs hidden: true, votes: 0 and no delay"
                yield ("engine",), message, "error"

    def seconds(self, expected: EstimateBasis) -> float:
        """By the bytes to copy, at a thousand a document; the members share the cores."""
        return 5 + (expected.copies + 3) * expected.documents * 1000 / (CLONED_BYTES_PER_SECOND * expected.cores)

    def figures(self) -> tuple[str, ...]:
        """The metric, and the further figures."""
        return ("data and indexes of all added members", "data and indexes", "data", "indexes", "time to SECONDARY")

    def sweeps(self) -> tuple[str, ...]:
        """Its figures are those of each added member: "data, zstd"."""
        return ("members",)


KEYS = MemberSizesPhase
