"""Which options a mongod of an old version knows. The lists and where they are from: options.json."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from microshard.experiment.source import KeyPath

Version = tuple[int, int]

NEWEST_LISTED: Version = (3, 4)
TOKUMX = "storage.tokumx."
# Sections that belong to one storage engine: a mongod without that engine is not given them.
ENGINE_SECTIONS = ("wiredTiger", "mmapv1", "rocksdb", "tokumx", "inMemory")


@functools.cache
def _lists() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("options.json").read_text(encoding="utf-8"))
    return found


def parsed(version: str) -> Version:
    """Major and minor."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@functools.cache
def _since() -> dict[str, Version]:
    """Every listed option of mongod's configuration file with the first version that has it."""
    return {
        option: parsed(version)
        for server in ("mongod", "rocksdb")
        for version, options in _lists()[server]["versions"].items()
        for option in options
    }


def since(option: str) -> Version | None:
    """The first version that knows an option, by its dotted name; None for what no list has."""
    known = _since()
    parts = option.split(".")
    # setParameter and systemLog.component have names of any kind below them.
    return next((known[".".join(parts[:n])] for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in known), None)


def known(engine: str, version: Version) -> frozenset[str]:
    """Options of the configuration file of this engine and version, up to 3.4; of TokuMX its own flat names."""
    if engine == "tokumx":
        return frozenset(_lists()["tokumx"]["versions"]["2.4"])
    rocks = (engine == "rocksdb") or None
    return frozenset(
        name
        for name, first in _since().items()
        if first <= version and (rocks or not name.startswith("storage.rocksdb."))
    )


def tokumx_parameters() -> frozenset[str]:
    """What TokuMX takes by setParameter, besides MongoDB 2.4's own."""
    return frozenset(_lists()["tokumx"]["parameters"])


def leaves(options: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Every option that is set: its path and its dotted name."""
    for key, value in options.items():
        here = (*path, key)
        if isinstance(value, Mapping) and value:
            yield from leaves(value, here)
        else:
            yield here, ".".join(map(str, here))


def unknown(options: Mapping[str, Any], engine: str, version: Version | None) -> Iterator[tuple[KeyPath, str]]:
    """Options this version has not got, of those the process would be given: path below them, sentence."""
    for path, name in leaves(options):
        section = name.split(".")[1] if name.startswith("storage.") else ""
        if section in ENGINE_SECTIONS and section != engine:
            continue
        if name.startswith(TOKUMX):
            flat = str(path[2])
            if flat == "setParameter" and len(path) > 3 and path[3] not in tokumx_parameters():
                yield path, f"TokuMX 2.0 has no parameter {path[3]} (it has {', '.join(sorted(tokumx_parameters()))})"
            elif flat not in known("tokumx", (2, 4)):
                yield path, f"TokuMX 2.0 has no option {flat}"
            continue
        first = since(name)
        if engine != "tokumx" and version is not None and first is not None and version < first:
            came, here = (f"{major}.{minor}" for major, minor in (first, version))
            yield path, f"{name} came with MongoDB {came}; topology.mongodb.version is {here}"
