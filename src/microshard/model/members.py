"""The members of a replica set: how many, or each with what is its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from microshard.model.base import Model

Compressor = Literal["none", "snappy", "zlib", "zstd"]

# MongoDB's limits, manual "Replica Set Members": 50 members, 7 of them with a vote.
_MOST_VOTES = 7


class Member(Model):
    """A member of a replica set. What it does not give is as for the others."""

    priority: Annotated[float, Field(ge=0, le=1000)] | None = None
    """Priority in elections; null is 1, and 0 for a member that is hidden, delayed, without a vote or an arbiter."""
    votes: Annotated[int, Field(ge=0, le=1)] = 1
    """Votes in elections; a set has at most 7."""
    hidden: bool = False
    """Whether clients do not see it."""
    delay_seconds: Annotated[int, Field(ge=0, le=31_536_000, json_schema_extra={"unit": "s"})] = 0
    """How long behind the primary it stays (`secondaryDelaySecs`, before 5.0 `slaveDelay`)."""
    arbiter: bool = False
    """An arbiter votes and bears no data."""
    initial: bool = True
    """false: the process is started and is no member; a phase adds it later (initial sync)."""
    block_compressor: Compressor | None = None
    """Compressor of its collection data; null is topology.storage.block_compressor."""
    index_prefix_compression: bool | None = None
    """Prefix compression of its indexes; null is topology.storage.index_prefix_compression."""
    cache_mb: Annotated[float, Field(gt=0, json_schema_extra={"unit": "MiB"})] | None = None
    """Its own WiredTiger cache; null is its part of topology.storage.cache."""
    mongod: dict[str, Any] = Field(default={})
    """Options of mongod's configuration file for it alone, laid over topology.mongod."""

    @model_validator(mode="after")
    def _fits_together(self) -> Member:
        passive = next((why for why, is_so in self._passive().items() if is_so), None)
        if passive and self.priority:
            raise ValueError(f"priority: {passive} has the priority 0, not {self.priority:g}")
        if self.arbiter:
            if self.votes == 0:
                raise ValueError("votes: an arbiter is there to vote")
            for key in ("hidden", "delay_seconds", "block_compressor", "index_prefix_compression", "cache_mb"):
                if getattr(self, key) not in {None, False}:
                    raise ValueError(f"{key}: an arbiter bears no data and serves no clients")
        return self

    def _passive(self) -> dict[str, bool]:
        return {
            "an arbiter": self.arbiter,
            "a hidden member": self.hidden,
            "a delayed member": self.delay_seconds > 0,
            "a member without a vote": self.votes == 0,
        }

    @property
    def effective_priority(self) -> float:
        """The priority with its default."""
        if self.priority is not None:
            return self.priority
        return 0 if any(self._passive().values()) else 1


_PLAIN = Member()
MemberCount = Annotated[int, Field(ge=1, le=_MOST_VOTES)]
Members = Annotated[list[Member], Field(min_length=1, max_length=50)]


def listed(members: int | list[Member]) -> list[Member]:
    """Every member, also where only their number was given."""
    return [_PLAIN] * members if isinstance(members, int) else members


def copies(members: int | list[Member]) -> int:
    """How many members hold every document from the start."""
    return sum(m.initial and not m.arbiter for m in listed(members))


def electable_together(members: int | list[Member]) -> None:
    """ValueError unless these members can be a set whose first member leads and goes on leading."""
    every = listed(members)
    if sum(m.votes for m in every) > _MOST_VOTES:
        raise ValueError(f"members: at most {_MOST_VOTES} members vote; give the others votes: 0")
    first, *others = every
    if not first.initial or first.effective_priority == 0:
        raise ValueError("members: the first member becomes the primary, so it is initial and has a priority above 0")
    if any(m.effective_priority > first.effective_priority for m in others):
        # A member with more would take over some seconds after the deployment, in the middle of a measurement.
        raise ValueError("members: the first member becomes the primary, so no other has a higher priority")


def given_one_by_one(
    sections: Iterable[tuple[str, int | list[Member]]],
) -> Iterator[tuple[tuple[str | int, ...], Member]]:
    """Members that were given as mappings, each with its path below `topology`."""
    for section, members in sections:
        for number, member in enumerate([] if isinstance(members, int) else members):
            yield (section, "members", number), member
