"""Reads FTDC (diagnostic.data): what each mongod and mongos noted of itself every second.

The format is MongoDB's, src/mongo/db/ftdc/README.md: files of BSON documents; those of type 1 hold a chunk: its length,
and packed by zlib a document of the first sample, how many numbers it has, how many samples follow, and the differences
of every number from sample to sample as variable-length integers, runs of zeros as a zero and their length. No package
that reads it is both kept and tried with servers' files (pyftdc, ftdc-tools, pymongoftdc; looked up 2026-11).
"""

import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.timestamp import Timestamp

from microshard.model.run_records import STANDS_STILL, Diagnostics, Standstill

SUFFIX = ".diagnostic.tar.gz"
_CHUNK = 1  # type of a document


class RepeatableFields(dict[str, Any]):
    """A document that may have several fields of one name, as serverStatus does; the later ones get a mark."""

    def __setitem__(self, key: str, value: Any) -> None:
        while key in self:
            key += "'"
        super().__setitem__(key, value)


OPTIONS = CodecOptions(RepeatableFields, datetime_conversion=DatetimeConversion.DATETIME_MS)
_WIRED_TIGER = "serverStatus.wiredTiger"
_CHECKPOINTS = (f"{_WIRED_TIGER}.transaction.transaction checkpoint most recent time (msecs)",
                f"{_WIRED_TIGER}.checkpoint.most recent time (msecs)")  # until 7.x, from 8.0 on  # fmt: skip


class FtdcError(ValueError):
    """A chunk that is not as the format says."""


def numbers(document: Mapping[str, Any] | list[Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    """The numbers of a sample by dotted name, as FTDC counts them: whole, times in ms, timestamps as two."""
    for key, value in document.items() if isinstance(document, Mapping) else enumerate(document):
        name = f"{prefix}{key}"
        if isinstance(value, Mapping | list):
            yield from numbers(value, f"{name}.")
        elif isinstance(value, Timestamp):
            yield from ((name, value.time), (f"{name}.inc", value.inc))
        elif isinstance(value, int | float | DatetimeMS):
            whole = not isinstance(value, float) or abs(value) < 1 << 63  # not infinite, not NaN
            yield name, int(value) if whole else 0
        elif isinstance(value, Decimal128):
            yield name, int(value.to_decimal())


def chunks(data: bytes) -> Iterator[bytes]:
    """The chunks of a file; one that is torn at its end ends there."""
    position = 0
    while position + 4 <= len(data):
        (length,) = struct.unpack_from("<i", data, position)
        if length < 5 or position + length > len(data):
            return
        document = bson.decode(data[position : position + length], OPTIONS)
        position += length
        if document.get("type") == _CHUNK:
            yield document["data"]


def samples(chunk: bytes) -> dict[str, list[int]]:
    """The values of every number of a chunk, the first of the first sample. Raises FtdcError."""
    try:
        text = zlib.decompress(chunk[4:])
        (length,) = struct.unpack_from("<i", text)
        names, first = zip(*numbers(bson.decode(text[:length], OPTIONS)), strict=True)
        count, following = struct.unpack_from("<II", text, length)
        if count != len(names):
            raise FtdcError(f"{count} numbers, {len(names)} in its first sample")
        deltas = _differences(text, length + 8, count * following)
    except (zlib.error, struct.error, IndexError, BSONError) as error:
        raise FtdcError(str(error)) from error
    rows = (deltas[n * following : (n + 1) * following] for n in range(count))
    return {
        name: [_signed(value) for value in accumulate(row, initial=start)]
        for name, start, row in zip(names, first, rows, strict=True)
    }


def _differences(text: bytes, position: int, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        value, position = _integer(text, position)
        if value:
            found.append(value)
        else:
            zeros, position = _integer(text, position)
            found += [0] * (zeros + 1)
    return found


def _integer(text: bytes, position: int) -> tuple[int, int]:
    """A variable-length integer: seven bits a byte, the lowest first; and where the next one begins."""
    value = shift = 0
    while True:
        byte = text[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _signed(value: int) -> int:
    """The sum of differences, which are kept without a sign in 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def summarise(files: Iterable[bytes]) -> Diagnostics | None:
    """What the samples of a process say over its whole life, before, between and after all phases; None without any."""
    values: dict[str, list[int]] = {}
    wanted = {"start", "serverStatus.uptimeMillis", *_CHECKPOINTS, *_COUNTED.values(), *_LEVELS}
    for data in files:
        for chunk in chunks(data):
            found = samples(chunk)
            for name in wanted:
                values.setdefault(name, []).extend(found.get(name, [0] * len(found["start"])))
    times = values.get("start", [])
    if not times:
        return None
    born = [time - up for time, up in zip(times, values["serverStatus.uptimeMillis"], strict=True)]
    # A process that was started anew meanwhile has not stood still.
    gaps = [(a, b - a) for (a, b), (x, y) in zip(pairwise(times), pairwise(born), strict=True) if y - x < b - a - 1000]
    dirty, most = (values[name] for name in _LEVELS)
    return Diagnostics(
        samples=len(times),
        began=times[0] / 1000,
        ended=times[-1] / 1000,
        standstills=[Standstill(since / 1000, gap / 1000) for since, gap in gaps if gap / 1000 >= STANDS_STILL],
        checkpoint_longest=max(max(values[name]) for name in _CHECKPOINTS) / 1000,
        dirty_share_max=max((d / m for d, m in zip(dirty, most, strict=True) if m), default=0.0),
        **{key: sum(max(b - a, 0) for a, b in pairwise(values[name])) for key, name in _COUNTED.items()},
    )


_COUNTED = {
    "evicted_by_operations": f"{_WIRED_TIGER}.cache.pages evicted by application threads",
    "flow_control_us": "serverStatus.flowControl.timeAcquiringMicros",
}
_LEVELS = (f"{_WIRED_TIGER}.cache.tracked dirty bytes in the cache", f"{_WIRED_TIGER}.cache.maximum bytes configured")


def read_archive(path: Path) -> list[bytes]:
    """The metrics files of a process's archive, in the order of their times; without what cannot be read."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            members = sorted((m for m in archive if m.isfile() and "/metrics." in m.name), key=lambda m: m.name)
            return [file.read() for member in members if (file := archive.extractfile(member)) is not None]
    except (OSError, EOFError, tarfile.TarError, zlib.error):
        return []
