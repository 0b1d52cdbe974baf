"""Whether a place is fit for an experiment: one examination for each kind of place, each a row of findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["ok", "note", "wrong", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    told: str
    remedy: str = ""  # what to do, unless all is well


@dataclass(frozen=True, slots=True)
class Question:
    """What is examined, and for what."""

    file: Path | None = None  # an experiment; None: the place in general
    region: str | None = None
    owner: str | None = None
    runs: Path = Path("runs")  # where run folders would lie


Examination = Callable[[Question], Iterator[Finding]]


def _ec2(question: Question) -> Iterator[Finding]:
    from microshard.backends.ec2.checks import examine  # noqa: PLC0415 (boto3 only where EC2 is meant)

    return examine(question)


def _here(question: Question) -> Iterator[Finding]:
    from microshard.backends.local_checks import examine  # noqa: PLC0415 (only where this machine is meant)

    return examine(question)


# Place → its examination; none makes or changes anything.
EXAMINATIONS: dict[str, Examination] = {"here": _here, "ec2": _ec2}
