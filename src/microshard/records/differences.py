"""What differs between two nested values, by dotted key."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that does not hold the same on both sides; None stands for one that is not there."""

    key: str
    base: Any
    other: Any

    def __str__(self) -> str:
        return f"{self.key}: {_short(self.base)} → {_short(self.other)}"


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted key → value; lists stay whole unless they hold mappings."""
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in flat(item, f"{prefix}{key}.").items()}
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return {k: v for index, item in enumerate(value) for k, v in flat(item, f"{prefix}{index}.").items()}
    return {prefix.rstrip("."): value}


def differences(base: Any, other: Any) -> Iterator[Difference]:
    """Dotted keys of two nested values that are not the same, in alphabetical order."""
    a, b = flat(base), flat(other)
    for mine, theirs in ((a, b), (b, a)):  # `topology.mongod: {}` beside topology.mongod.setParameter.x says nothing
        for key in [k for k, v in mine.items() if v in ({}, []) and any(name.startswith(f"{k}.") for name in theirs)]:
            del mine[key]
    for key in sorted({*a, *b}):
        if a.get(key) != b.get(key):
            yield Difference(key, a.get(key), b.get(key))


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
