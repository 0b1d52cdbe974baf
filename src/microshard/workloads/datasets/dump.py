"""dump: the user's own documents, from a mongodump's .bson file or from extended JSON, one document a line."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import bson
import numpy as np
from bson import json_util

from microshard.model import datasets
from microshard.model.datasets import DataError
from microshard.workloads.datasets.base import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, joined

SMALLEST, LARGEST = 5, 16 * 1024 * 1024  # bytes of a BSON document: the format's, and MongoDB's own limit
SAMPLE = 1_000


class Dump(Dataset[datasets.Dump]):
    """Documents as they are in the file, with their own `_id`s; those without get one from the driver's rules."""

    @property
    def average_bytes(self) -> float:
        """Of the first thousand; 1,000 when the file cannot be read (count says why)."""
        try:
            sizes = [size for _, size in zip(range(SAMPLE), self._sizes(), strict=False)]
        except DataError:
            sizes = []
        return sum(sizes) / len(sizes) if sizes else 1_000.0

    def count(self) -> int:
        """All documents, each looked at. Raises DataError with file and line (JSON) or document and byte (BSON)."""
        if len(self._edges) == 1:
            raise DataError(f"{self.info.path} holds no document")
        return len(self._edges) - 1

    def _sizes(self) -> Iterator[int]:
        """Bytes in the file of one document after the other."""
        try:
            with self.info.path.open("rb") as file:
                if self.info.path.suffix == ".bson":
                    yield from self._bson_sizes(file.read)
                    return
                size = 0  # of the document found last, with the blank lines after it
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        self._from_json(line, number)
                        if size:
                            yield size
                        size = 0
                    size += len(line)
                if size:
                    yield size
        except OSError as error:
            raise DataError(f"{self.info.path} cannot be read: {error.strerror}") from None

    def _bson_sizes(self, read: object) -> Iterator[int]:
        assert callable(read)  # noqa: S101 - for the type checker
        at = number = 0
        while head := read(4):
            number += 1
            size = struct.unpack("<i", head)[0] if len(head) == 4 else 0
            body = read(size - 4) if SMALLEST <= size <= LARGEST else b""
            whole = head + body
            try:
                if len(whole) != size:
                    raise bson.errors.InvalidBSON(f"a length of {size:,} bytes, {len(whole):,} are there")
                bson.decode(whole)
            except (bson.errors.InvalidBSON, ValueError) as error:
                raise DataError(f"{self.info.path}: document {number}, at byte {at:,}: {error}") from None
            yield size
            at += size

    def _from_json(self, line: bytes, number: int) -> bytes:
        try:
            found = json_util.loads(line.decode("utf-8"))
            if not isinstance(found, dict):
                raise TypeError(f"a document is needed, not {type(found).__name__}")
            return bson.encode(found)
        except (ValueError, TypeError, bson.errors.BSONError) as error:
            raise DataError(f"{self.info.path}:{number}: {error}") from None

    @cached_property
    def _edges(self) -> Ints:
        """Where each document begins in the file, and the end; blank lines belong to the document before."""
        edges, at = [0], 0
        for size in self._sizes():
            at += size
            edges.append(at)
        return np.array(edges, dtype=np.int64)

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:  # noqa: ARG002 - the file decides
        """The documents from number `first` on."""
        last = first + len(ids)
        with self.info.path.open("rb") as file:
            file.seek(int(self._edges[first]))
            raw = file.read(int(self._edges[last] - self._edges[first]))
        starts = (self._edges[first : last + 1] - self._edges[first]).tolist()
        pieces = [raw[a:b] for a, b in pairwise(starts)]
        if self.info.path.suffix == ".bson":
            return joined(pieces)
        return joined([self._from_json(piece, first + n + 1) for n, piece in enumerate(pieces)])


DATASET = Dump
