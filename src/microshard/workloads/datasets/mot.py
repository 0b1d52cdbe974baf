"""mot: generated UK vehicle inspections, many documents at a time without a Python object per field.

Every value of document n is a pure function of (seed, n): the bits of a hash look up tables of 65,536 equally likely
entries. So any loader can make any interval, and what belongs to a vehicle (make, engine, colour, first use, yearly
mileage) is hashed from the vehicle's number and stays the same in all its inspections.

A document is a row of a byte matrix: fixed fields are written through a packed record type, strings are copied from
pools of finished BSON elements padded to the longest of their kind. A mask of the same shape drops the padding;
what is left is the documents, one after the other. 0.3 µs a document were measured on one core (4,096 at a time).
`mot_compact` has the same inspections in the size of the published experiment's: 32-bit numbers, codes, and the model's
name instead of its whole description.
"""

from dataclasses import dataclass
from datetime import date
from functools import cache
from statistics import NormalDist
from typing import Any

import bson
import numpy as np
from numpy.typing import NDArray

from microshard.model.datasets import Mot, MotCompact
from microshard.workloads.datasets import Dataset, mot_catalog
from microshard.workloads.datasets.encoding import Bytes, Encoded, Field, Hashes, Ints, hashes, record_rows, stream_key

ENTRIES = 1 << 16
FLEET = 33_000_000  # vehicles that are inspected, about the British fleet
FIRST_TEST_ID = 1_000_000_001
EPOCH = date(1970, 1, 1).toordinal()
OPENED = date(2005, 1, 3).toordinal() - EPOCH  # inspections are on record from here …
CLOSED = date(2014, 12, 31).toordinal() - EPOCH  # … to here
FIRST_TEST_DAYS = 3 * 365 + 1  # a vehicle is inspected from its third year on

MS_PER_DAY = 86_400_000
_LOW16 = np.uint64(0xFFFF)


@dataclass(frozen=True, slots=True)
class Columns:
    """An interval of documents, one array entry a document; letters are the field names."""

    t: Ints  # test id
    v: Ints  # vehicle id
    d: Ints  # test date, days since 1970-01-01
    c: Ints  # test class
    m: Ints  # mileage, miles
    e: Ints  # engine capacity, cc
    i: Ints  # date of first use, days since 1970-01-01
    type_result: Ints  # index into type_results(): fields y and r
    area: Ints  # index into the areas: field s
    variant: Ints  # index into the variants: fields k, o, f and e
    colour: Ints  # index into the colours: field u


@dataclass(frozen=True, slots=True)
class LookupTables:
    """Lookup tables: 65,536 entries drawn by a hash's bits, and the properties of each variant."""

    variant: Ints
    colour: Ints
    area: Ints
    test_type: Ints
    yearly_miles: Ints
    pass_below: Ints  # by full years of age: a normal test passes when its 16 bits are below
    variant_class: Ints
    variant_cc: Ints
    variant_first: Ints  # first day of first use
    variant_days: Ints  # days in which it can have been first used
    variant_usage: Ints  # per mille of the table's yearly miles


def _spread(weights: list[float]) -> Ints:
    """65,536 indexes, each as often as its weight says (to one part in 65,536)."""
    edges = np.round(np.cumsum(weights) / np.sum(weights) * ENTRIES).astype(np.int64)
    return np.repeat(np.arange(len(weights), dtype=np.int64), np.diff(edges, prepend=0))


def _usage(variant: mot_catalog.VehicleVariant) -> int:
    """Diesels are driven half as far again as petrol cars, motorcycles a third as far."""
    return 330 if variant.test_class < 3 else 1450 if variant.fuel == "D" else 1000


@cache
def tables() -> LookupTables:
    """The lookup tables, made once per process (a few milliseconds)."""
    variants = mot_catalog.variants()
    normal = NormalDist()
    # Log-normal with a median of 8,000 miles a year; two thirds lie within a factor of 1.5.
    miles = [8000 * float(np.exp(0.4 * normal.inv_cdf((k + 0.5) / 1024))) for k in range(1024)]
    first = [date(v.first, 1, 1).toordinal() - EPOCH for v in variants]
    last = [date(v.last, 12, 31).toordinal() - EPOCH for v in variants]
    return LookupTables(
        variant=_spread([v.share for v in variants]),
        colour=_spread(mot_catalog.weighted(mot_catalog.COLOURS)[1]),
        area=_spread(mot_catalog.weighted(mot_catalog.AREAS)[1]),
        test_type=_spread(mot_catalog.weighted(mot_catalog.TYPES, "|")[1]),
        yearly_miles=np.repeat(np.round(miles).astype(np.int64), ENTRIES // 1024),
        pass_below=np.array([round(p * ENTRIES) for p in mot_catalog.PASS_BY_AGE], dtype=np.int64),
        variant_class=np.array([v.test_class for v in variants], dtype=np.int64),
        variant_cc=np.array([v.engine_cc for v in variants], dtype=np.int64),
        variant_first=np.array(first, dtype=np.int64),
        variant_days=np.array(last, dtype=np.int64) - np.array(first, dtype=np.int64) + 1,
        variant_usage=np.array([_usage(v) for v in variants], dtype=np.int64),
    )


def type_results() -> list[tuple[str, str]]:
    """Every pair of the fields y and r, in the order of Columns.type_result."""
    return [(y, r) for y in mot_catalog.weighted(mot_catalog.TYPES, "|")[0] for r in mot_catalog.RESULTS]


def _bits(values: Hashes, shift: int) -> Ints:
    """Sixteen bits of each hash."""
    return ((values >> np.uint64(shift)) & _LOW16).astype(np.int64)


def columns(first: int, count: int, seed: int) -> Columns:
    """Documents first … first + count - 1 of the data set `seed`."""
    table = tables()
    number = np.arange(first, first + count, dtype=np.uint64)
    test = hashes(number, stream_key(seed, 1))
    more = hashes(number, stream_key(seed, 2))

    vehicle = ((hashes(number, stream_key(seed, 3)) >> np.uint64(32)) * np.uint64(FLEET)) >> np.uint64(32)
    made = hashes(vehicle, stream_key(seed, 4))
    variant = table.variant[_bits(made, 0)]
    used = table.variant_first[variant] + ((_bits(made, 16) * table.variant_days[variant]) >> 16)

    opened = np.maximum(used + FIRST_TEST_DAYS, OPENED)
    day = opened + ((_bits(test, 0) * (CLOSED - opened + 1)) >> 16)
    day -= (day + 4) % 7 == 0  # 1970-01-01 was a Thursday; stations close on Sundays, so Saturday it was

    age = day - used
    years = np.minimum(age // 365, 3 + len(table.pass_below) - 1)
    yearly = table.yearly_miles[_bits(made, 32)] * table.variant_usage[variant] // 1000
    # Older vehicles are driven less: each year's distance is 4 % of the first year's shorter, never below a third.
    driven = yearly * age * (100 - np.minimum(2 * years, 33)) // 36500
    miles = driven * (58982 + (_bits(test, 16) >> 2)) >> 16  # 0.90 to 1.15: no two years are alike
    miles = np.minimum(miles, 499_999)  # odometers of the time

    kind = table.test_type[_bits(test, 32)]
    chance = _bits(test, 48)
    limit = np.where(kind == 0, table.pass_below[np.maximum(years - 3, 0)], round(0.93 * ENTRIES))
    result = np.where(chance < limit, 0, 1)  # a retest finds the repaired fault gone
    left = ENTRIES - limit
    result[(kind == 0) & (chance >= limit + left * 6 // 7)] = 2
    result[chance >= ENTRIES - 200] = 3  # three in a thousand are abandoned

    return Columns(
        t=(number + np.uint64(FIRST_TEST_ID)).astype(np.int64),
        v=vehicle.astype(np.int64) + 1,
        d=day,
        c=table.variant_class[variant],
        m=miles,
        e=table.variant_cc[variant],
        i=used,
        type_result=kind * len(mot_catalog.RESULTS) + result,
        area=table.area[_bits(more, 0)],
        variant=variant,
        colour=table.colour[_bits(made, 48)],
    )


@dataclass(frozen=True, slots=True)
class ElementPool:
    """Finished BSON elements of equal padded width, and which bytes of each are not padding."""

    elements: Bytes
    mask: NDArray[np.bool_]
    lengths: Ints


def _pool(documents: list[dict[str, Any]]) -> ElementPool:
    """The elements of each document: its BSON without length and end."""
    parts = [bson.encode(document)[4:-1] for document in documents]
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    width = int(lengths.max())
    elements = np.frombuffer(b"".join(part.ljust(width, b"\0") for part in parts), dtype=np.uint8)
    return ElementPool(elements.reshape(len(parts), width), np.arange(width) < lengths[:, None], lengths)


DATE = b"\x09"


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """The fields of fixed width, by their place among the strings, and the pools of the strings between them."""

    head: tuple[Field, ...]
    miles: tuple[Field, ...]
    tail: tuple[Field, ...]
    pools: tuple[ElementPool, ...]  # of y r, s, k o, u and f, in the order of the indexes in Columns

    @property
    def fixed_bytes(self) -> int:
        """Bytes of a document without its strings."""
        return sum(record_rows(fields, {}, 1).shape[1] for fields in (self.head, self.miles, self.tail))


@cache
def layout(*, compact: bool) -> RecordLayout:
    """The layout of the documents, with its pools, made once per process."""
    variants = mot_catalog.variants()
    wide = (b"\x12", "<i8")
    kind, form = (b"\x10", "<i4") if compact else wide
    codes = dict(zip(mot_catalog.weighted(mot_catalog.TYPES, "|")[0], mot_catalog.TYPE_CODES, strict=True))
    return RecordLayout(
        head=(
            ("size", b"", "<i4"), ("_id", *wide), ("t", kind, form), ("v", kind, form), ("d", DATE, "<i8"),
            ("c", kind, form),
        ),
        miles=(("m", kind, form),),
        tail=(("e", kind, form), ("i", DATE, "<i8"), ("end", b"", "u1")),
        pools=(
            _pool([{"y": codes[y] if compact else y, "r": r} for y, r in type_results()]),
            _pool([{"s": area} for area in mot_catalog.weighted(mot_catalog.AREAS)[0]]),
            _pool([{"k": v.make, "o": v.model if compact else v.description} for v in variants]),
            _pool([{"u": colour} for colour in mot_catalog.weighted(mot_catalog.COLOURS)[0]]),
            _pool([{"f": v.fuel} for v in variants]),
        ),
    )  # fmt: skip


def encode(cols: Columns, ids: Ints, *, compact: bool = False) -> Encoded:
    """The columns as BSON documents, with `ids` as `_id`; fields in the source's order: t v d c y r m s k o u f e i."""
    count, of = len(ids), layout(compact=compact)
    indexes = (cols.type_result, cols.area, cols.variant, cols.colour, cols.variant)
    picks = list(zip(of.pools, indexes, strict=True))
    sizes = np.full(count, of.fixed_bytes, dtype=np.int64)
    for pool, index in picks:
        sizes += pool.lengths[index]
    head = {"size": sizes, "_id": ids, "t": cols.t, "v": cols.v, "d": cols.d * MS_PER_DAY, "c": cols.c}
    tail = {"e": cols.e, "i": cols.i * MS_PER_DAY}
    width = of.fixed_bytes + sum(pool.elements.shape[1] for pool, _ in picks)
    matrix = np.empty((count, width), dtype=np.uint8)
    mask = np.ones((count, width), dtype=np.bool_)
    column = 0
    # y r stand between c and m; s, k o, u and f between m and e.
    for fields, values, following in (
        (of.head, head, picks[:1]),
        (of.miles, {"m": cols.m}, picks[1:]),
        (of.tail, tail, []),
    ):
        rows = record_rows(fields, values, count)
        matrix[:, column : column + rows.shape[1]] = rows
        column += rows.shape[1]
        for pool, index in following:
            end = column + pool.elements.shape[1]
            matrix[:, column:end] = pool.elements[index]
            mask[:, column:end] = pool.mask[index]
            column = end
    return matrix[mask].tobytes(), np.concatenate(([0], np.cumsum(sizes)))


class MotDocuments(Dataset[Mot]):
    """The inspections of the published analytics experiment."""

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """As the module describes."""
        return encode(columns(first, len(ids), seed), ids, compact=isinstance(self.info, MotCompact))
