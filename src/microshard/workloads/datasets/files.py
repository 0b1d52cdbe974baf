"""chunks and dump: documents that are read from files."""

import lzma
import struct
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path

import bson
import numpy as np
from bson import json_util

from microshard.model.datasets import Chunks, DataError, Dump
from microshard.workloads.datasets import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, concatenate

# config.chunks of a cluster of mongod 6.0.5 with two shards. Three collections were sharded by a hashed key with 1,500
# initial chunks each, `zoo.animals` by a word and split at 700 words, `zoo.visits` by region and day and split 500
# times; the balancer was to move 200 chunks of `zoo.animals`.
CHUNKS_FILE = Path(__file__).with_name("chunks.bson.xz")
SMALLEST, LARGEST = 5, 16 * 1024 * 1024  # bytes of a BSON document: the format's, and MongoDB's limit
SAMPLE = 1_000
Read = Callable[[int], bytes]  # so many bytes, fewer only at the end


def whole_document(head: bytes, read: Read, where: str) -> bytes:
    """The BSON document whose first four bytes are `head`. Raises DataError that begins with `where` it is."""
    size = struct.unpack("<i", head)[0] if len(head) == 4 else 0
    whole = head + (read(size - 4) if SMALLEST <= size <= LARGEST else b"")
    try:
        if len(whole) != size:
            raise bson.errors.InvalidBSON(f"its length says {size:,} bytes, the file has {len(whole):,}")
        bson.decode(whole)
    except (bson.errors.InvalidBSON, ValueError) as error:
        raise DataError(f"{where}: {error}") from None
    return whole


class ChunkDocuments(Dataset[Chunks]):
    """The documents of config.chunks, in the order of their `_id`s."""

    @cached_property
    def _documents(self) -> list[bytes]:
        try:
            raw = lzma.decompress(CHUNKS_FILE.read_bytes())
        except (OSError, lzma.LZMAError) as error:
            raise DataError(f"{CHUNKS_FILE} cannot be read: {error}") from None
        documents, at = [], 0
        while at < len(raw):
            (size,) = struct.unpack_from("<i", raw, at)
            documents.append(raw[at : at + size])
            at += size
        return documents

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:  # noqa: ARG002 - the file decides
        """The documents from number `first` on."""
        return concatenate(self._documents[first : first + len(ids)])


class DumpDocuments(Dataset[Dump]):
    """The user's documents, from a mongodump's .bson file or from extended JSON, one document a line."""

    def __init__(self, info: Dump) -> None:
        super().__init__(info)
        self.path = info.path

    @property
    def average_bytes(self) -> float:
        """Of the first thousand documents; the usual estimate when the file cannot be read (count says why)."""
        try:
            sizes = list(islice(self._sizes(), SAMPLE))
        except DataError:
            sizes = []
        return sum(sizes) / len(sizes) if sizes else self.info.average_bytes

    def count(self) -> int:
        """All documents, each decoded. Raises DataError with file and line (JSON) or document and byte (BSON)."""
        if len(self._edges) == 1:
            raise DataError(f"{self.path} holds no document")
        return len(self._edges) - 1

    def _sizes(self) -> Iterator[int]:
        """Bytes in the file of one document after the other."""
        try:
            with self.path.open("rb") as file:
                if self.path.suffix == ".bson":
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
            raise DataError(f"{self.path} cannot be read: {error.strerror}") from None

    def _bson_sizes(self, read: Read) -> Iterator[int]:
        at = number = 0
        while head := read(4):
            number += 1
            yield (size := len(whole_document(head, read, f"{self.path}: document {number}, at byte {at:,}")))
            at += size

    def _from_json(self, line: bytes, number: int) -> bytes:
        try:
            found = json_util.loads(line.decode("utf-8"))
            if not isinstance(found, dict):
                raise TypeError(f"a document is needed, not {type(found).__name__}")
            return bson.encode(found)
        except (ValueError, TypeError, bson.errors.BSONError) as error:
            raise DataError(f"{self.path}:{number}: {error}") from None

    @cached_property
    def _edges(self) -> Ints:
        """Where each document begins in the file, and the end; blank lines belong to the document before."""
        return np.cumsum([0, *self._sizes()], dtype=np.int64)

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:  # noqa: ARG002 - the file decides
        """The documents from number `first` on."""
        edges = self._edges[first : first + len(ids) + 1].tolist()
        with self.path.open("rb") as file:
            file.seek(edges[0])
            raw = file.read(edges[-1] - edges[0])
        pieces = [raw[start - edges[0] : end - edges[0]] for start, end in pairwise(edges)]
        if self.path.suffix == ".bson":
            return concatenate(pieces)
        return concatenate([self._from_json(piece, number) for number, piece in enumerate(pieces, first + 1)])
