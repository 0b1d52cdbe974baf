import gzip
import json
import random
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util

from microshard.workloads.datasets.copied import Crc64, Hashing, SourceError, copy_data, reservoir, without_login
from tests.shop import INDEXES, NAMESPACE, archive, crc64, orders

ORDERS = orders(150)


def copy(source: Path, folder: Path, **changes: Any) -> Any:
    return copy_data(
        str(source), folder / "data", **{"namespace": None, "most": 1000, "hashing": Hashing(), "seed": 1} | changes
    )


def read(copied: Any) -> list[dict[str, Any]]:
    with copied.file.open("rb") as file:
        return list(bson.decode_file_iter(file, bson.CodecOptions(tz_aware=True)))


def as_json(path: Path) -> Path:
    path.write_text("\n".join(map(json_util.dumps, ORDERS)))
    return path


def as_bson(path: Path) -> Path:
    path.write_bytes(b"".join(map(bson.encode, ORDERS)))
    path.with_suffix(".metadata.json").write_text(json.dumps({"indexes": INDEXES}))
    return path


@pytest.mark.parametrize(
    ("name", "make", "indexes"),
    [
        ("a.archive", lambda path: archive(path, ORDERS), 1),
        ("a.archive.gz", lambda path: archive(path, ORDERS), 1),
        ("shop.orders.bson", as_bson, 1),
        ("shop.orders.jsonl", as_json, 0),
    ],
)
def test_a_file_is_copied_with_its_indexes(tmp_path: Path, name: str, make: Any, indexes: int) -> None:
    copied = copy(make(tmp_path / name), tmp_path, namespace=NAMESPACE if "archive" in name else None)
    assert (copied.namespace, copied.documents, copied.of, copied.indexes) == (NAMESPACE, 150, 150, indexes)
    assert read(copied) == ORDERS


def test_which_collection_of_an_archive_is_meant(tmp_path: Path) -> None:
    file = archive(tmp_path / "a", ORDERS, other=7)
    assert copy(file, tmp_path, namespace="shop.products").documents == 7
    for namespace in (None, "shop.nothing"):
        with pytest.raises(SourceError, match=r"has shop\.orders, shop\.products: --namespace"):
            copy(file, tmp_path, namespace=namespace)


def _longer(raw: bytes) -> bytes:
    at = raw.index(bson.encode(ORDERS[100]))
    return raw[:at] + b"\x7f" + raw[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda raw: raw[: len(raw) // 2], "documents of shop.orders"),
        (lambda raw: raw[: raw.index(b"\xff\xff\xff\xff", 9000) + 4], "before their end: it is cut off"),
        (_longer, "after 100 documents of shop.orders"),
        (lambda raw: raw.replace(b"0.1", b"0.9", 1), "version 0.9, and 0.1 is known"),
        (lambda raw: raw.replace(b"shipped", b"shopped", 1), "documents of shop.orders do not have its checksum"),
        (lambda raw: raw[:30], "its header: its length says"),
        (lambda raw: gzip.compress(raw)[:-3000], "cannot be read"),
        (lambda raw: gzip.compress(raw)[:200] + bytes(100) + gzip.compress(raw)[300:], "cannot be read"),
        (lambda raw: b"no" + raw, "document 1, at byte 0"),
    ],
)
def test_a_damaged_archive_is_a_sentence(tmp_path: Path, damage: Any, words: str) -> None:
    file = archive(tmp_path / "shop.bson", ORDERS)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(SourceError) as caught:
        copy(file, tmp_path, namespace=NAMESPACE)
    assert str(file) in str(caught.value)
    assert words in str(caught.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("size", [0, 1, 9, 3000, 65_535, 65_536, 140_000])
def test_the_checksum_is_that_of_its_definition_however_the_bytes_come(size: int) -> None:
    assert crc64(b"123456789") == 0x995DC9BBDF1939FA  # the check value of the CRC catalogue
    data = random.Random(size).randbytes(size)
    for expected, right in ((crc64(data), True), (crc64(data) - 2**64, True), (crc64(data) ^ 1, False)):
        checksum = Crc64()
        for start in range(0, size, 1000):
            checksum.update(data[start : start + 1000])
        assert checksum.matches(expected) is right


def test_a_sample_is_drawn_by_its_seed_and_keeps_the_order(tmp_path: Path) -> None:
    numbers = [str(n).encode() for n in range(2000)]
    total, drawn = reservoir(numbers, 100, 1)
    assert (total, len(drawn), drawn) == (2000, 100, sorted(drawn, key=int))
    assert reservoir(numbers, 100, 1)[1] == drawn != reservoir(numbers, 100, 2)[1]
    assert 800 < sum(map(int, drawn)) / 100 < 1200
    file = as_json(tmp_path / "shop.orders.json")
    assert copy(file, tmp_path, most=20).file == copy(file, tmp_path, most=20).file  # same content, same name


def test_hashed_fields_keep_what_is_equal_and_show_nothing(tmp_path: Path) -> None:
    hashing = Hashing(frozenset({"customer.mail", "customer.id", "items.sku"}))
    found = read(copy(as_json(tmp_path / "shop.orders.json"), tmp_path, hashing=hashing))
    for name in ("mail", "id"):
        pairs = {(one["customer"][name], two["customer"][name]) for one, two in zip(ORDERS, found, strict=True)}
        assert len(pairs) == len({one for one, _ in pairs}) == len({two for _, two in pairs}) > 1
        assert not {one for one, _ in pairs} & {two for _, two in pairs}
    wanted = hashing.query({"$or": [{"customer.mail": ORDERS[3]["customer"]["mail"]}, {"total": {"$gt": 5}}]})
    assert wanted["$or"] == [{"customer.mail": found[3]["customer"]["mail"]}, {"total": {"$gt": 5}}]
    assert hashing.query([{"$match": {"items.sku": {"$in": [ORDERS[0]["items"][0]["sku"]]}}}]) == [
        {"$match": {"items.sku": {"$in": [found[0]["items"][0]["sku"]]}}}
    ]
    assert Hashing(hashing.fields).leaves("x") != hashing.leaves("x")  # another key for another copy
    assert [{k: v for k, v in each.items() if k in {"_id", "total", "at"}} for each in found] == [
        {k: v for k, v in each.items() if k in {"_id", "total", "at"}} for each in ORDERS
    ]


def test_a_source_is_shown_without_its_login() -> None:
    assert without_login("mongodb+srv://me:p%40ss@db.example.com/a.b?tls=true") == "mongodb+srv://db.example.com/a.b"
    assert without_login("dumps/a.archive") == "dumps/a.archive"
