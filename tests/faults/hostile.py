"""Messages no client should send: each wrong in a chosen way, or right but for some changed bytes."""

import random
import struct
from collections.abc import Callable
from typing import Any

import bson
from bson import Binary, Code, Int64, Regex, Timestamp
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId

from microshard.embedded import wire
from microshard.embedded.compression import COMPRESSORS

DATABASE = "faults"
LSID = {"id": Binary(bytes(16), 4)}

# Fields of the servers' own, of sessions and of the Stable API.
EXTRA: dict[str, Any] = {
    "lsid": LSID,
    "txnNumber": Int64(1),
    "autocommit": False,
    "startTransaction": True,
    "stmtId": 1,
    "stmtIds": [1],
    "shardVersion": [Timestamp(1, 0), ObjectId()],
    "databaseVersion": {"uuid": Binary(bytes(16), 4)},
    "$client": {},
    "$configServerState": {"opTime": {}},
    "$clusterTime": {"clusterTime": Timestamp(2**31, 1)},
    "mayBypassWriteBlocking": 1,
    "$readPreference": {"mode": 5},
    "readConcern": {"level": "snapshot"},
    "writeConcern": {"w": 900},
    "maxTimeMS": -5,
    "$audit": {},
    "fromMongos": True,
    "needsMerge": True,
    "use44SortKeys": 1,
    "allowImplicitCollectionCreation": 0,
    "runtimeConstants": {},
    "isTimeseriesNamespace": True,
    "clientOperationKey": Binary(bytes(16), 4),
    "explain": 1,
    "let": {"x": 1},
    "collation": {"locale": "xx"},
    "$_generateV2ResumeTokens": True,
    "bypassDocumentValidation": "x",
    "encryptionInformation": {},
    "exchange": {},
    "batchSize": -1,
    "singleBatch": "yes",
    "tailable": True,
    "noCursorTimeout": 3,
    "$tenant": ObjectId(),
    "originalOpTime": 1,
    "apiVersion": "9",
    "apiStrict": "x",
}

Attack = Callable[[random.Random], bytes]


def _header(length: int, opcode: int = wire.OP_MSG, request: int = 7, response: int = 0) -> bytes:
    return struct.pack("<iiii", length, request, response, opcode)


def message(sections: bytes, flags: int = 0, opcode: int = wire.OP_MSG) -> bytes:
    content = struct.pack("<I", flags) + sections
    return _header(16 + len(content), opcode) + content


def body_of(command: dict[str, Any]) -> bytes:
    return b"\0" + bson.encode(command)


def ping(**more: Any) -> dict[str, Any]:
    return {"ping": 1, **more, "$db": "admin"}


def lengths(rng: random.Random) -> bytes:
    """A length no message has."""
    length = rng.choice([0, -1, -(2**31), 1, 4, 15, 16, 20, 48_000_001, 2**31 - 1, rng.randrange(-(2**31), 2**31)])
    return _header(length) + rng.randbytes(rng.randrange(64))


def opcodes(rng: random.Random) -> bytes:
    """Operations that are gone, were never there, or are only answers."""
    opcode = rng.choice(
        [0, 1, 1000, 2001, 2002, 2004, 2005, 2006, 2007, 2010, 2011, 2012, 2014, -1, rng.getrandbits(31)]
    )
    return message(body_of(ping()) + rng.randbytes(rng.randrange(40)), opcode=opcode)


def sections(rng: random.Random) -> bytes:
    """Sections that are of no kind, do not fit, or are missing."""
    body = body_of(ping())
    sequence = b"documents\0" + bson.encode({"_id": 1})
    return rng.choice(
        [
            message(b""),
            message(body + body),
            message(bytes([rng.randrange(2, 256)]) + body[1:]),
            message(body + b"\x01" + struct.pack("<i", rng.choice([0, 4, 5, -1, 2**31 - 1, 60])) + sequence),
            message(b"\x01" + struct.pack("<i", len(sequence) + 4) + sequence),
            message(body[:-1]),
            message(body[:-1] + b"\x07"),
            message(body + b"\0"),
            message(b"\0" + struct.pack("<i", rng.choice([0, 4, -5, 2**31 - 1])) + body[5:]),
        ]
    )


def flags(rng: random.Random) -> bytes:
    """Bits that nobody knows, and checksums that do not fit."""
    bits = rng.choice([1, 1 << 2, 1 << 15, 0xFFFF, 1 << 16, 1 << 17, 0xFFFFFFFF, 3, rng.getrandbits(32)])
    return message(body_of(ping()) + rng.randbytes(rng.choice([0, 4])), flags=bits)


def compressed(rng: random.Random) -> bytes:
    """Compressed messages that lie about their size, their operation or their compressor."""
    plain = message(body_of(ping()))[16:]
    codec = rng.choice([*COMPRESSORS.values()])
    packed = codec.compress(plain)
    opcode, size, compressor = wire.OP_MSG, len(plain), codec.number
    match rng.randrange(8):
        case 0:
            size = rng.choice([0, 1, len(plain) - 1, len(plain) + 1, -1, 2**31 - 1, 47_000_000])
        case 1:
            opcode = rng.choice([wire.OP_COMPRESSED, 0, 2004, -1])
        case 2:
            compressor = rng.choice([1, 3, 4, 255])
        case 3:
            packed = rng.randbytes(rng.randrange(200))
        case 4:
            packed = packed[: rng.randrange(len(packed))]
        case 5:
            packed = codec.compress(bytes(60_000_000))  # 60 MB in 2 kB to 3 MB
            size = rng.choice([47_999_000, 60_000_000, len(plain)])
        case 6:
            packed, compressor = plain, 0
            size = rng.choice([len(plain), 5])
        case _:
            packed += rng.randbytes(10)
    content = struct.pack("<iiB", opcode, size, compressor) + packed
    return _header(16 + len(content), wire.OP_COMPRESSED) + content


def half(rng: random.Random) -> bytes:
    """The beginning of a right message."""
    whole = message(body_of(_right(rng)))
    return whole[: rng.randrange(1, len(whole))]


def _right(rng: random.Random) -> dict[str, Any]:
    """A command a client may send."""
    found: dict[str, Any] = rng.choice(
        [
            {"find": "numbers", "filter": {"k": {"$lt": 50}}, "$db": DATABASE},
            {"insert": "junk", "documents": [{"x": rng.getrandbits(30)}], "$db": DATABASE},
            {"update": "junk", "updates": [{"q": {"x": 1}, "u": {"$set": {"y": 2}}, "multi": True}], "$db": DATABASE},
            {"delete": "junk", "deletes": [{"q": {"x": rng.getrandbits(8)}, "limit": 0}], "$db": DATABASE},
            {
                "aggregate": "numbers",
                "pipeline": [{"$group": {"_id": "$even", "n": {"$sum": 1}}}],
                "cursor": {},
                "$db": DATABASE,
            },
            {"count": "numbers", "query": {"even": True}, "$db": DATABASE},
            {"distinct": "numbers", "key": "even", "$db": DATABASE},
            {
                "findAndModify": "junk",
                "query": {"_id": 1},
                "update": {"$inc": {"n": 1}},
                "upsert": True,
                "$db": DATABASE,
            },
            {"getMore": Int64(rng.getrandbits(60)), "collection": "numbers", "$db": DATABASE},
            {"killCursors": "numbers", "cursors": [Int64(1)], "$db": DATABASE},
            {"explain": {"find": "numbers", "filter": {}}, "$db": DATABASE},
            {"listCollections": 1, "$db": DATABASE},
            {"collStats": "numbers", "$db": DATABASE},
            {"serverStatus": 1, "$db": "admin"},
            {"hello": 1, "$db": "admin"},
            {"getShardMap": 1, "$db": "admin"},
            {"createIndexes": "junk", "indexes": [{"key": {"x": 1}, "name": "x_1"}], "$db": DATABASE},
        ]
    )
    return dict(found)


def mutated(rng: random.Random) -> bytes:
    """A right message with some of its bytes changed, its length kept right."""
    changed = bytearray(message(body_of(_right(rng))))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(16, len(changed))
        match rng.randrange(3):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.randrange(256)
            case _:
                changed[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(5))
    changed[:4] = struct.pack("<i", len(changed))
    return bytes(changed)


def wrong_types(rng: random.Random) -> bytes:
    """A right command in which a field has a value of another type, or one more field of the servers' own."""
    command = _right(rng)
    strange: list[Any] = [
        None,
        True,
        -1,
        2**31,
        Int64(2**62),
        1.5,
        float("nan"),
        float("inf"),
        "",
        "x" * 5000,
        [],
        {},
        [[[[]]]],
        b"",
        Code("1"),
        Regex("a"),
        Timestamp(1, 1),
        Decimal128("NaN"),
        ObjectId(),
        {"$where": "1"},
        {"$expr": {"$function": {}}},
        _deep(rng.choice([50, 99, 100, 101, 150])),
        {"": 1},
        {"$": 1},
        {"a.b": 1},
        bson.MinKey(),
        bson.MaxKey(),
        Binary(b"x", 3),
    ]
    for _ in range(rng.randrange(1, 3)):
        if rng.random() < 0.5:
            key = rng.choice(sorted(EXTRA))
            command[key] = rng.choice([EXTRA[key], rng.choice(strange)])
        else:
            command[rng.choice(sorted(command))] = rng.choice(strange)
    return message(body_of(command))


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def internal(rng: random.Random) -> bytes:
    """The servers' own commands, which no client has a right to."""
    name = rng.choice(
        [
            "clusterFind",
            "clusterAggregate",
            "clusterInsert",
            "clusterUpdate",
            "clusterDelete",
            "clusterCount",
            "clusterGetMore",
            "_configsvrMoveRange",
            "_configsvrAddShard",
            "_configsvrCreateDatabase",
            "_configsvrRemoveShard",
            "_shardsvrDropCollection",
            "_shardsvrMoveRange",
            "_shardsvrCreateCollection",
            "_shardsvrDropDatabase",
            "_recvChunkStart",
            "_flushRoutingTableCacheUpdates",
            "_mergeAuthzCollections",
            "_isSelf",
            "_transferMods",
            "_cloneCatalogData",
            "replSetStepDown",
            "fsync",
            "setFeatureCompatibilityVersion",
            "configureFailPoint",
            "sleep",
            "godinsert",
            "testCommand",
            "startRecordingTraffic",
            "eval",
            "$eval",
            "logRotate",
            "setParameter",
            "dropDatabase",
            "applyOps",
            "moveChunk",
            "split",
            "mergeChunks",
            "flushRouterConfig",
            "explain",
        ]
    )
    value: Any = rng.choice(
        [1, "numbers", f"{DATABASE}.numbers", {}, {"clusterUpdate": "numbers"}, [1], None, Int64(-1)]
    )
    more: dict[str, Any] = rng.choice(
        [{}, {"filter": {}}, {"find": {}, "to": "x"}, {"bounds": [{}, {}]}, {"cursor": {}, "pipeline": []}]
    )
    if name in {"fsync", "dropDatabase", "setParameter"}:
        value = rng.choice([{}, [1], None])  # what they do when they work is their business, not ours
    return message(
        body_of({name: value, **more, "$db": rng.choice(["admin", DATABASE, "config", "local", "$external"])})
    )


def legacy(rng: random.Random) -> bytes:
    """OP_QUERY, of which a server still answers the handshake."""
    name = rng.choice([b"admin.$cmd", b"admin", b"", b"a" * 300, b"\xff\xfe.$cmd", b"test.x"])
    body = rng.choice(
        [bson.encode({"isMaster": 1}), bson.encode({"insert": "x"}), b"\x05\0\0\0\0", rng.randbytes(12), b""]
    )
    content = struct.pack("<i", rng.getrandbits(8)) + name + rng.choice([b"\0", b""]) + struct.pack("<ii", 0, -1) + body
    return _header(16 + len(content), 2004) + content


def noise(rng: random.Random) -> bytes:
    """Anything: other protocols, and bytes of no protocol."""
    return rng.choice(
        [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200),
            b"SSH-2.0-x\r\n",
            rng.randbytes(rng.randrange(1, 3000)),
            b"\0" * rng.randrange(1, 500),
            b"\xff" * 64,
        ]
    )


ATTACKS: dict[str, Attack] = {
    "lengths": lengths,
    "operation codes": opcodes,
    "sections": sections,
    "flags, checksums": flags,
    "compression": compressed,
    "half a message": half,
    "changed bytes": mutated,
    "wrong types": wrong_types,
    "internal commands": internal,
    "legacy queries": legacy,
    "other protocols": noise,
}
