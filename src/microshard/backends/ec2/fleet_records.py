"""What the parts of a run on EC2 have in common: the plan of all fleets, and which hosts measured what.

A part lasts from `run` or `resume` to its end, well or not. Each has hosts of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from microshard.model.plan import Plan, Point
from microshard.plan.merge import merged
from microshard.records.codec import DamagedFileError
from microshard.records.run_folder import RunFolder, read_object, write_json


class PlanBook:
    """plan.json: points of fleets that were made stand with their hosts, the others as they were foreseen."""

    def __init__(self, folder: RunFolder, plans: Sequence[Plan]) -> None:
        self.folder = folder
        self.plans = list(plans)  # one a fleet
        self.made: dict[str, Point] = {}  # by the point's id
        self.before: dict[str, Point] = {}
        with contextlib.suppress(FileNotFoundError, DamagedFileError):
            self.before = {point.id: point for point in folder.plan().points}

    def enter(self, number: int, plan: Plan) -> None:
        """The plan of a fleet whose hosts are there. Raises DiskError."""
        self.plans[number] = plan
        self.made |= {point.id: point for point in plan.points}
        whole = merged(self.plans)
        points = tuple(self.made.get(p.id) or self.before.get(p.id, p) for p in whole.points)
        hosts = tuple(dict.fromkeys(host for point in points for host in point.hosts))
        warnings = tuple(dict.fromkeys([*self._remarks(), *whole.warnings]))
        write_json(self.folder / "plan.json", dataclasses.replace(whole, points=points, hosts=hosts, warnings=warnings))

    def _remarks(self) -> Iterator[str]:
        """On the hosts of all parts."""
        for record in self.folder.journal.records():
            if record.get("event") == "hosts made":
                yield from record.get("remarks", ())


def record_of(folder: RunFolder, fleet: str) -> Path:
    """Where it is written what hosts a fleet has got; the hosts of an earlier part make room, hosts/FLEET-N.json."""
    path = folder / "hosts" / f"{fleet}.json"
    if path.exists():
        path.rename(next(p for n in range(1, 10_000) if not (p := path.with_stem(f"{fleet}-{n}")).exists()))
    return path


def others_before(folder: RunFolder, fleet: str, told: Mapping[str, Any], measured: int) -> Iterator[str]:
    """A sentence where some of the fleet's measurements were taken on the hosts of an earlier part."""
    earlier = sorted((folder / "hosts").glob(f"{fleet}-*.json"), key=lambda path: int(path.stem.rpartition("-")[2]))
    if measured and earlier:
        yield (
            f"taken up again on new hosts, {_in_words(told)}; the {measured} measurement(s) before were taken on "
            f"others ({'; '.join(f'{path.name}: {_in_words(read_object(path))}' for path in earlier)})"
        )


def _in_words(told: Mapping[str, Any]) -> str:
    keys = ("group", "instance_type", "market")
    counted = Counter(tuple(str(host[key]) for key in keys) for host in told.get("hosts", []))
    kinds = [f"{group}: {count} x {kind} {market}" for (group, kind, market), count in counted.items()]
    return f"{', '.join(kinds) or 'not known'} in {told.get('zone', 'a zone not known')}"
