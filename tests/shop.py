"""A shop that looks real: orders whose customers, states and prices are as uneven as they are, and queries of them."""

import gzip
import json
import random
import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
from bson import json_util
from bson.objectid import ObjectId

NAMESPACE = "shop.orders"
STATES = ("delivered", "delivered", "delivered", "delivered", "shipped", "paid", "cancelled")


def orders(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Orders of a year, the oldest first: a few customers order often, most of them once."""
    rng, begin = random.Random(seed), datetime(2025, 1, 1, tzinfo=UTC)
    made = []
    for n in range(count):
        items = [{"sku": rng.randrange(500), "price": rng.randrange(100, 9900)} for _ in range(rng.randint(1, 5))]
        made.append(
            {
                "_id": ObjectId(struct.pack(">IQ", 0x67748580 + n, n)),
                "customer": {"id": int(rng.paretovariate(0.7)) % 5000, "mail": f"c{rng.randrange(5000)}@example.com"},
                "state": rng.choice(STATES),
                "at": begin + timedelta(minutes=n),
                "items": items,
                "total": sum(item["price"] for item in items),
            }
        )
    return made


def queries(count: int, seed: int = 1) -> list[tuple[str, Any]]:
    """What the shop asks: an order or a customer's orders mostly, at times what was sold."""
    rng, wanted = random.Random(seed), list[tuple[str, Any]]()
    for each in rng.choices(orders(200), k=count):
        sold = [{"$match": {"state": each["state"]}}, {"$group": {"_id": "$state", "sum": {"$sum": "$total"}}}]
        finds = (
            [{"customer.id": each["customer"]["id"]}] * 6 + [{"_id": each["_id"]}] * 2 + [{"at": {"$gt": each["at"]}}]
        )
        wanted.append(rng.choice([*(("find", found) for found in finds), ("aggregate", sold)]))
    return wanted


INDEXES: list[dict[str, Any]] = [
    {"v": 2, "key": {"_id": 1}, "name": "_id_"},
    {"v": 2, "key": {"customer.id": 1}, "name": "customer.id_1"},
]


def crc64(data: bytes) -> int:
    """CRC-64-ECMA as Go and xz know it, by its definition."""
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = (crc >> 1) ^ (0xC96C5795D7870F42 if crc & 1 else 0)  # noqa: PLW2901
        table.append(crc)
    crc = 2**64 - 1
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 255]
    return crc ^ (2**64 - 1)


def archive(path: Path, documents: Iterable[Mapping[str, Any]], *, other: int = 30) -> Path:
    """As `mongodump --archive` (with --gzip where the name ends so) writes two collections, in turns."""
    end, out = b"\xff\xff\xff\xff", [struct.pack("<I", 0x8199E26D)]
    out.append(bson.encode({"concurrent_collections": 4, "version": "0.1", "server_version": "6.0.5"}))
    names = ("orders", "products")
    for name in names:
        metadata = json_util.dumps({"indexes": INDEXES if name == "orders" else INDEXES[:1], "type": "collection"})
        out.append(bson.encode({"db": "shop", "collection": name, "metadata": metadata, "size": 0}))
    out.append(end)
    products = [{"_id": n, "name": f"product {n}"} for n in range(other)]
    waiting: dict[str, list[Mapping[str, Any]]] = {"orders": list(documents), "products": [*products]}
    written = {name: b"".join(map(bson.encode, some)) for name, some in waiting.items()}
    while any(waiting.values()):
        for name in names:
            some, waiting[name] = waiting[name][:40], waiting[name][40:]
            head = {"db": "shop", "collection": name, "EOF": False, "CRC": bson.Int64(0)}
            if some:
                out += [bson.encode(head), *map(bson.encode, some), end]
    for name, whole in written.items():
        checksum = crc64(whole)
        signed = checksum - 2**64 if checksum >= 2**63 else checksum
        out += [bson.encode({"db": "shop", "collection": name, "EOF": True, "CRC": bson.Int64(signed)}), end]
    path.write_bytes(gzip.compress(b"".join(out)) if path.suffix == ".gz" else b"".join(out))
    return path


def log_line(command: Mapping[str, Any], namespace: str = NAMESPACE, **more: Any) -> str:
    """A slow query as mongod 4.4 and later logs it."""
    attributes = {"type": "command", "ns": namespace, "command": dict(command), "durationMillis": 120}
    attributes |= {"appName": more.pop("app", "shop")}
    entry = {"s": "I", "c": "COMMAND", "id": 51803, "ctx": "conn1", "msg": "Slow query", "attr": attributes}
    return json.dumps(json.loads(json_util.dumps(entry | more)))
