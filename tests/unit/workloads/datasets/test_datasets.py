"""Data sets: the same in whichever interval, of the stated size and, for texts, of the stated statistics."""

import zlib
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import bson
import numpy as np
import pytest
from bson import json_util

from microshard.model.datasets import DataError, dataset_info
from microshard.workloads import datasets
from microshard.workloads.datasets import Dataset
from microshard.workloads.datasets.texts import VOCABULARY, document_random, text, vocabulary, words

SEED = 5
OPTIONS: dict[str, Any] = {"padding": 256, "documents": 7_500, "file": None}


def _there(name: str) -> bool:
    try:
        dataset_info(name, OPTIONS).check_available()
    except DataError:
        return False
    return True


ALL = [
    *("mot", "mot_compact", "pairs", "purchases", "mails", "tweets", "chunks"),
    *(
        pytest.param(name, marks=pytest.mark.skipif(not _there(name), reason=f"{name} is not installed: make data"))
        for name in ("flights", "tpch")
    ),
]


@cache
def made(name: str) -> Dataset[Any]:
    """One for all tests: tpchgen-cli takes seconds to begin."""
    return datasets.make(name, OPTIONS)


def documents(dataset: Dataset[Any], first: int, count: int, seed: int = SEED) -> list[bytes]:
    raw, edges = dataset.encode(first, np.arange(first, first + count), seed)
    return [raw[a:b] for a, b in pairwise(edges.tolist())]


@pytest.mark.parametrize("name", ALL)
def test_documents_do_not_depend_on_the_interval_and_are_as_large_as_stated(name: str) -> None:
    dataset = made(name)
    found = documents(dataset, 0, 3000)
    assert documents(dataset, 130, 30) == found[130:160]
    assert len({bson.decode(d)["_id"] for d in found[:60]}) == 60
    assert sum(map(len, found)) / len(found) == pytest.approx(dataset.average_bytes, rel=0.08)
    assert len(dataset.info.indexes) == 3


@pytest.mark.parametrize("name", ["mot", "mot_compact", "pairs", "purchases", "mails", "tweets"])
def test_another_seed_is_other_data(name: str) -> None:
    dataset = datasets.make(name, OPTIONS)
    assert documents(dataset, 0, 5, 1) != documents(dataset, 0, 5, 2)


def test_words_have_the_frequencies_of_zipf_and_mandelbrot() -> None:
    counts = Counter(words(document_random(1, 1, 1), 300_000))
    assert len(vocabulary()) == len(set(vocabulary())) == VOCABULARY
    shares = [counts[word] / 300_000 for word in vocabulary()[:100]]
    for rank in (1, 10, 100):
        expected = (1 + 2.7) ** 1.07 / (rank + 2.7) ** 1.07
        assert shares[rank - 1] / shares[0] == pytest.approx(expected, rel=0.15)
    # English: the hundred most frequent words are about half of all; here they are a little fewer.
    assert 0.35 < sum(shares) < 0.55


def test_text_has_sentences_and_compresses_as_english_does() -> None:
    page = " ".join(text(document_random(1, 1, n), 400) for n in range(12))[:32_768]
    lengths = [len(s.split()) for s in page.replace("?", ".").split(".") if s.strip()]
    assert 10 < sum(lengths) / len(lengths) < 17
    letters = [len(word.strip(".,?")) for word in page.split()]
    assert 4.3 < sum(letters) / len(letters) < 6.5
    assert 0.36 < len(zlib.compress(page.encode())) / len(page) < 0.50


def test_mails_quote_and_repeat_their_headers() -> None:
    found = [bson.decode(d) for d in documents(datasets.make("mails", {}), 0, 2000)]
    quoting = sum("-----Original Message-----" in mail["body"] for mail in found) / len(found)
    assert quoting == pytest.approx(0.35, abs=0.04)
    written = sorted(len(m["body"].split("-----Original")[0].split()) for m in found)
    assert written[1000] == pytest.approx(110, rel=0.15)
    assert len({mail["mailbox"] for mail in found}) <= 150
    assert len(found[0]["headers"]) == 15


def test_tweets_are_as_long_as_they_may_be_and_point_into_their_text() -> None:
    found = [bson.decode(d) for d in documents(datasets.make("tweets", {}), 0, 2000)]
    assert max(len(tweet["text"]) for tweet in found) == 140
    for tweet in found:
        for kind, key, sign in (("hashtags", "text", "#"), ("user_mentions", "screen_name", "@")):
            for entity in tweet["entities"][kind]:
                start, end = entity["indices"]
                assert tweet["text"][start:end] == sign + entity[key]
    assert 0.25 < sum(bool(t["entities"]["user_mentions"]) for t in found) / 2000 < 0.55


def test_chunks_are_whole_and_lie_beside_one_another() -> None:
    found = [bson.decode(d) for d in documents(datasets.make("chunks", {}), 0, 5702)]
    assert len(documents(datasets.make("chunks", {}), 5700, 10)) == 2
    by_collection: dict[Any, list[Any]] = {}
    for chunk in found:
        by_collection.setdefault(chunk["uuid"], []).append(chunk)
    assert len(by_collection) >= 5
    for chunks in by_collection.values():
        ends = {bson.encode(c["max"]) for c in chunks}
        # Every chunk but the first begins where another ends.
        assert sum(bson.encode(c["min"]) not in ends for c in chunks) == 1
    assert {c["shard"] for c in found} == {"shard01", "shard02"}


@pytest.mark.skipif(not _there("flights"), reason="flights is not installed: make data")
def test_flights_are_all_there() -> None:
    flights = datasets.make("flights", {})
    assert flights.count() == 336_776
    first = bson.decode(documents(flights, 0, 1)[0])
    values = (first["carrier"], first["fl_num"], first["origin"]["airport"], first["arr"]["delay"])
    assert values == ("UA", 1545, "EWR", 11)
    assert len(documents(flights, 336_770, 6)) == 6


@pytest.mark.skipif(not _there("tpch"), reason="tpch is not installed: make data")
def test_an_order_is_the_sum_of_its_items() -> None:
    for raw in documents(made("tpch"), 0, 300):
        order = bson.decode(raw)
        # TPC-H 4.2.3: O_TOTALPRICE = sum(L_EXTENDEDPRICE * (1 + L_TAX) * (1 - L_DISCOUNT)), in cents.
        total = sum(i["extprice"] * (1 + i["tax"]) * (1 - i["discount"]) for i in order["lineitems"])
        assert order["totalprice"] == pytest.approx(total, abs=0.1)
        assert [i["lineitem"] for i in order["lineitems"]] == list(range(1, len(order["lineitems"]) + 1))


def dump(path: Path) -> Dataset[Any]:
    return datasets.make("dump", {"file": str(path)})


def test_a_dump_is_read_as_it_is(tmp_path: Path) -> None:
    given = [{"_id": n, "x": "y" * n, "d": {"e": [1, 2.5, None]}} for n in range(50)]
    as_bson, as_json = tmp_path / "a.bson", tmp_path / "a.json"
    as_bson.write_bytes(b"".join(map(bson.encode, given)))
    as_json.write_text("\n\n".join(map(json_util.dumps, given)) + "\n\n")
    for path in (as_bson, as_json):
        assert dump(path).count() == 50
        assert [bson.decode(d) for d in documents(dump(path), 20, 30)] == given[20:]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "a.bson",
            bson.encode({"a": 1}) + b"\x30\0\0\0abc",
            "a.bson: document 2, at byte 12: its length says 48 bytes",
        ),
        ("a.bson", bson.encode({"a": 1}) + b"\x05", "document 2, at byte 12"),
        ("a.bson", b"\x0c\0\0\0\x10a\0\1\0\0\0\7", "document 1, at byte 0: "),
        ("a.json", b'{"a": 1}\n\n{"a": }\n', "a.json:3: Expecting value"),
        ("a.json", b"[1]\n", "a.json:1: a document is needed, not list"),
        ("a.json", b"\xff\n", "a.json:1: "),
        ("a.json", b"", "holds no document"),
        ("none.json", None, "none.json cannot be read: No such file"),
    ],
)
def test_a_malformed_dump_is_refused_with_its_place(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        dump(tmp_path / name).count()
    assert str(tmp_path / name) in str(caught.value)
    assert words in str(caught.value)
