"""chunks: 5,702 documents of config.chunks, read from a sharded cluster of mongod 6.0.5 with two shards.

Three collections were sharded by a hashed key with 1,500 initial chunks each, `zoo.animals` by a word and split at 700
words, `zoo.visits` by region and day and split 500 times; 200 chunks of `zoo.animals` were asked to move.
"""

from __future__ import annotations

import lzma
import struct
from functools import cached_property
from pathlib import Path

from microshard.model import datasets
from microshard.model.datasets import DataError
from microshard.workloads.datasets.base import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, joined

FILE = Path(__file__).with_name("chunks.bson.xz")


class Chunks(Dataset[datasets.Chunks]):
    """As the config server has them: uuid, min, max, shard, lastmod, history. `_id`s are ObjectIds of their own."""

    @cached_property
    def _documents(self) -> list[bytes]:
        try:
            raw = lzma.decompress(FILE.read_bytes())
        except (OSError, lzma.LZMAError) as error:
            raise DataError(f"{FILE} cannot be read: {error}") from None
        documents, at = [], 0
        while at < len(raw):
            (size,) = struct.unpack_from("<i", raw, at)
            documents.append(raw[at : at + size])
            at += size
        return documents

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:  # noqa: ARG002 - they are what they are
        """In the order of their `_id`s."""
        return joined(self._documents[first : first + len(ids)])


DATASET = Chunks
