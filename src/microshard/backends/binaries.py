"""The mongod and mongos a point uses."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.embedded import binary
from microshard.errors import PlaceError
from microshard.model.plan import Point


@dataclass(frozen=True, slots=True)
class Binaries:
    """The mongod and mongos a run uses."""

    mongod: Path
    mongos: Path | None
    embedded: bool  # the mongos is the embedded router
    version: str
    sha256: str = ""  # of the mongod; "" where it is not at hand
    install: dict[str, Any] = field(default_factory=dict)  # how it comes to the hosts; empty: it is there

    def variables(self) -> dict[str, Any]:
        """For vars.json."""
        return {
            "mongod": str(self.mongod),
            "mongos": str(self.mongos) if self.mongos else "",
            "embedded": self.embedded,
            "version": self.version,
            "install": self.install,
        }


@functools.lru_cache
def digest(path: Path) -> str:
    """One look at 140 MB a run is enough."""
    return binary.sha256(path)


def found_here(point: Point) -> Binaries:
    """Find and try the binaries a point asks for on this machine. Raises PlaceError naming what is missing or wrong."""
    wish = point.mongodb
    folder = Path(wish["path"]).expanduser() if wish["path"] else None
    try:
        mongod = binary.find_mongod(folder)
        version = binary.version(mongod).text
        mongos, embedded = None, False
        if point.topology == "sharded":
            mongos, embedded = binary.find_mongos(folder)
    except binary.BinaryError as error:
        raise PlaceError(str(error)) from error
    wanted = wish["version"]
    if wanted and not f"{version}.".startswith(f"{wanted}."):
        raise PlaceError(f"{mongod} is MongoDB {version}, the experiment asks for {wanted} (topology.mongodb.version)")
    return Binaries(mongod, mongos, embedded, version, digest(mongod))
