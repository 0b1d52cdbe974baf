"""Point operations as they come over the wire: which messages are one, and where their shard key is.

Messages are not decoded: their fields are found in the BSON. A client sends the same operation again and again with
other values: a message that has the `fixed_parts` of another has its shard key at the same offsets.
"""

import hashlib
import math
import struct
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import bson

from microshard.embedded import wire

MAX_MESSAGE = 1 << 20  # bytes of an operation that is examined
_OPERATION_CODE = 12  # its offset in a message, after length, number and the number it answers
BODY = 21  # offset of the BSON in a plain OP_MSG
NAME = BODY + 4  # the type of its first element

# A value as the server orders it: the rank of its type, then the value. Ranks are the server's canonical types.
Ordered = tuple[int, Any] | tuple[int]
ValueReader = Callable[[bytes], Ordered | None]
_NUMBER, _STRING, _BINARY, _OBJECT_ID, _BOOL, _DATE = 10, 15, 30, 35, 40, 45
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_EXACT = float(1 << 53)

# Fields that change nothing about where an operation goes, and that a shard understands as a mongos does.
_ANY = frozenset({b"$db", b"$clusterTime", b"$readPreference", b"comment", b"maxTimeMS", b"writeConcern"})
FIELDS: Mapping[str, frozenset[bytes]] = {
    "find": _ANY | {b"find", b"filter", b"projection", b"sort", b"skip", b"limit", b"batchSize", b"singleBatch",
                    b"hint"},
    "insert": _ANY | {b"insert", b"documents", b"ordered", b"bypassDocumentValidation"},
    "update": _ANY | {b"update", b"updates", b"ordered", b"bypassDocumentValidation"},
    "delete": _ANY | {b"delete", b"deletes", b"ordered"},
}  # fmt: skip
_STATEMENT: Mapping[str, frozenset[bytes]] = {
    "update": frozenset({b"q", b"u", b"multi", b"upsert"}),
    "delete": frozenset({b"q", b"limit"}),
}
_FIRST = b"\x030\0"
_ONE = (_NUMBER, 1)
_LIST = {"insert": b"documents", "update": b"updates", "delete": b"deletes"}
_PRIMARY = frozenset(bson.encode({"mode": mode}) for mode in ("primary", "primaryPreferred"))
_UNACKNOWLEDGED = tuple(bson.encode({"w": zero})[4:-1] for zero in (0, 0.0, bson.Int64(0)))


def _double(data: bytes, at: int) -> float | None:
    value: float = _DOUBLE.unpack_from(data, at)[0]
    return None if math.isnan(value) else value


def _string(data: bytes, at: int) -> bytes:
    return data[at + 4 : at + 3 + _INT32.unpack_from(data, at)[0]]


def _binary(data: bytes, at: int) -> tuple[int, bytes] | None:
    size = _INT32.unpack_from(data, at)[0]
    return None if data[at + 4] == 2 else (size, data[at + 4 : at + 5 + size])  # subtype 2 has a second length


# By type: its rank, and what reads a value so that it compares as the server compares it; None for one that does not.
_READERS: Mapping[int, tuple[int, Callable[[bytes, int], Any]]] = {
    0x01: (_NUMBER, _double),
    0x02: (_STRING, _string),
    0x05: (_BINARY, _binary),
    0x07: (_OBJECT_ID, lambda data, at: data[at : at + 12]),
    0x08: (_BOOL, lambda data, at: data[at]),
    0x09: (_DATE, lambda data, at: _INT64.unpack_from(data, at)[0]),
    0x10: (_NUMBER, lambda data, at: _INT32.unpack_from(data, at)[0]),
    0x12: (_NUMBER, lambda data, at: _INT64.unpack_from(data, at)[0]),
}
_UNKNOWN: tuple[int, Callable[[bytes, int], Any]] = (0, lambda _data, _at: None)


def value_reader(data: bytes, at: int, name_length: int, *, hashed: bool = False) -> ValueReader:
    """What reads the value of the element at an offset, comparable as the server compares it; with `hashed`, its hash.

    It reads it in every message that has an element of the same name, type and length there. It returns None for a
    value that an equality does not fix to one place (null, arrays, regular expressions), or whose order is not known
    here (NaN, Decimal128, documents).
    """
    kind = data[at]
    at += name_length + 2
    rank, reader = _READERS.get(kind, _UNKNOWN)
    # As the server hashes a value: the first 64 bits of the MD5 of a seed of 0, the canonical type and the value.
    prefix = _INT64.pack(rank << 32)
    end = element_end(data, kind, at) if rank else at

    def plain(data: bytes) -> Ordered | None:
        value = reader(data, at)
        return None if value is None else (rank, value)

    def hash_of_number(data: bytes) -> Ordered | None:
        value = reader(data, at)
        # Numbers of every type hash as the 64-bit integer they are cut to.
        if value is None or (kind == 0x01 and not -_EXACT < value < _EXACT):
            return None
        return _NUMBER, _hash(prefix + _INT64.pack(int(value)))

    def hash_of_bytes(data: bytes) -> Ordered | None:
        return _NUMBER, _hash(prefix + data[at:end])

    def hash_of_binary(data: bytes) -> Ordered | None:
        return None if reader(data, at) is None else hash_of_bytes(data)

    if not hashed or not rank:
        return plain
    return {_NUMBER: hash_of_number, _BINARY: hash_of_binary}.get(rank, hash_of_bytes)


def ordered(data: bytes, at: int, name_length: int, *, hashed: bool = False) -> Ordered | None:
    """The value of the element at an offset as its `value_reader` reads it."""
    return value_reader(data, at, name_length, hashed=hashed)(data)


def _hash(data: bytes) -> int:
    number: int = _INT64.unpack_from(hashlib.md5(data, usedforsecurity=False).digest())[0]
    return number


def element_end(data: bytes, kind: int, at: int) -> int:
    """Where a value of a BSON type ends that begins at an offset. LookupError, ValueError, struct.error."""
    size = wire.FIXED_SIZES.get(kind)
    if size is not None:
        return at + size
    if kind == wire.REGEX:
        return data.index(0, data.index(0, at) + 1) + 1
    length: int = _INT32.unpack_from(data, at)[0]
    if length < 0:
        raise ValueError("negative length")
    return at + length + wire.PREFIXED_SIZES[kind]


def fields(data: bytes, at: int) -> dict[bytes, int]:
    """The elements of the document at an offset: name → offset of the type byte.

    ValueError when a name occurs twice or the document does not end where it says. LookupError, struct.error.
    """
    end = at + _INT32.unpack_from(data, at)[0] - 1
    at += 4
    found: dict[bytes, int] = {}
    count = 0
    while kind := data[at]:
        value = data.index(0, at + 1) + 1
        found[data[at + 1 : value - 1]] = at
        count += 1
        size = wire.FIXED_SIZES.get(kind)  # of most fields of a command: a call less
        at = element_end(data, kind, value) if size is None else value + size
    if at != end or count != len(found):
        raise ValueError("a field occurs twice, or the document does not end where it says")
    return found


def _only_document(data: bytes, name: bytes, at: int | None, body_end: int) -> int:
    """Where the one document of a write begins: in the array in its body, or in the sequence after it. ValueError."""
    if at is not None:
        at += len(name) + 2
        start = at + 7  # length of the array, type and name "0" of its element
        end = at + _INT32.unpack_from(data, at)[0] - 1
        if data[at - len(name) - 2] != 0x04 or len(data) != body_end or data[at + 4 : start] != _FIRST:
            raise ValueError("not an array with a document, or a sequence besides")
    else:
        start = body_end + 6 + len(name)
        end = body_end + 1 + _INT32.unpack_from(data, body_end + 1)[0]
        if end != len(data) or data[body_end + 5 : start] != name + b"\0":
            raise ValueError("not the one sequence of this command")
    if start + _INT32.unpack_from(data, start)[0] != end:
        raise ValueError("not one document")
    return start


def _key_fields(data: bytes, at: int, names: tuple[bytes, ...]) -> dict[bytes, int]:
    """The first elements of these names in the document at an offset. LookupError, ValueError, struct.error."""
    at += 4
    found: dict[bytes, int] = {}
    while kind := data[at]:
        name_end = data.index(0, at + 1)
        name = data[at + 1 : name_end]
        if name in names and name not in found:
            found[name] = at
            if len(found) == len(names):
                break
        at = element_end(data, kind, name_end + 1)
    return found


def _document(data: bytes, found: Mapping[bytes, int], name: bytes) -> int:
    """Where the embedded document of a field begins. ValueError when the field is none, LookupError when absent."""
    at = found[name]
    if data[at] != 0x03:
        raise ValueError("not a document")
    return at + len(name) + 2


def _embedded(data: bytes, at: int, name: bytes) -> bytes:
    at += len(name) + 2
    return data[at : at + _INT32.unpack_from(data, at)[0]]


def plain_options(data: bytes, found: Mapping[bytes, int]) -> bool:
    """Whether the operation is for the primary, and acknowledged."""
    at = found.get(b"$readPreference")
    if at is not None and _embedded(data, at, b"$readPreference") not in _PRIMARY:
        return False
    at = found.get(b"writeConcern")
    if at is None:
        return True
    concern = _embedded(data, at, b"writeConcern")
    return not any(element in concern for element in _UNACKNOWLEDGED)


class KeyPlace(NamedTuple):
    """Where an operation has its shard key: by field the offset of its element, and a range no decision depends on."""

    offsets: Mapping[bytes, int]
    free: tuple[int, int]


_NOTHING = (0, 0)


def namespace_of(data: bytes, name_end: int, database: int) -> bytes:
    """`database.collection` of a command whose name ends, and whose $db begins, at these offsets. ValueError."""
    # Both are strings: length, bytes, zero byte; $db has 5 bytes of type and name before it.
    if data[NAME] != 0x02 or data[database] != 0x02:
        raise ValueError("the collection or $db is no string")
    size = _INT32.unpack_from(data, database + 5)[0]
    name = data[database + 9 : database + 8 + size] + b"."
    size = _INT32.unpack_from(data, name_end + 1)[0]
    return name + data[name_end + 5 : name_end + 4 + size]


def key_place(
    data: bytes, body_end: int, command: str, found: Mapping[bytes, int], names: tuple[bytes, ...]
) -> KeyPlace | None:
    """Where an operation fixes shard key fields of these names; None when it is none that goes straight to a shard.

    `found` are the fields of its body. LookupError, ValueError, struct.error when it is malformed.
    """
    if command == "find":
        return _in_filter(data, _document(data, found, b"filter"), _NOTHING)
    name = _LIST[command]
    start = _only_document(data, name, found.get(name), body_end)
    if command != "insert":
        return _in_statement(data, start, command)
    offsets = _key_fields(data, start, names)
    rest = max((_value_range(data, at)[1] for at in offsets.values()), default=len(data))
    return KeyPlace(offsets, (rest, start + _INT32.unpack_from(data, start)[0]))


def _in_filter(data: bytes, at: int, free: tuple[int, int]) -> KeyPlace | None:
    query = fields(data, at)
    for name in query:
        if name[:1] == b"$":
            return None
    return KeyPlace(query, free)


def _in_statement(data: bytes, at: int, command: str) -> KeyPlace | None:
    statement = fields(data, at)
    if not statement.keys() <= _STATEMENT[command]:
        return None
    free = _NOTHING
    if command == "delete":
        # A delete of many could be refused half-way.
        if ordered(data, statement[b"limit"], len(b"limit")) != _ONE:
            return None
    else:
        for name in (b"multi", b"upsert"):
            given = statement.get(name)
            if given is not None and (data[given] != 0x08 or data[given + len(name) + 2]):
                return None
        # Update operators only: a replacement may belong to another shard.
        update = _document(data, statement, b"u")
        if data[update + 5] != 0x24:
            return None
        free = update + 6, update + _INT32.unpack_from(data, update)[0]
    return _in_filter(data, _document(data, statement, b"q"), free)


def _value_range(data: bytes, at: int) -> tuple[int, int]:
    """Where the value of the element at an offset begins, after its length if it has one, and where it ends."""
    kind, value = data[at], data.index(0, at + 1) + 1
    return value if kind in wire.FIXED_SIZES else value + 4, element_end(data, kind, value)


def fixed_parts(
    data: bytes, found: Mapping[bytes, int], place: KeyPlace, names: tuple[bytes, ...]
) -> list[tuple[slice, bytes]]:
    """What another message of this length has to have in common to differ only in values no decision depends on.

    `found` are the fields of its body, `names` those of its shard key. LookupError, ValueError, struct.error when it
    is malformed.
    """
    free = [place.free, *(_value_range(data, place.offsets[name]) for name in names)]
    clock = found.get(b"$clusterTime")
    if clock is not None and data[clock] == 0x03:
        free.append(_value_range(data, clock))
    edges = [_OPERATION_CODE, *(edge for ends in sorted(free) if ends != _NOTHING for edge in ends), len(data)]
    return [(slice(start, end), data[start:end]) for start, end in list(pairwise(edges))[::2]]
