"""Which documents each worker process inserts, and with which `_id`: pure arithmetic.

As the source did it, documents are cut into key ranges ("loaders"): range r owns the upper 32 bits of `_id`, so a
chunk per range puts each range on one shard. A worker takes a batch from each of its streams in turn. A batch then
belongs to one shard, the router need not split it, and neighbouring batches of all workers go to different shards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from microshard.model.plan import PlannedChunk

RANGE_BITS = 32


@dataclass(frozen=True, slots=True)
class Stream:
    """Documents first … first + count - 1 of the data set, stored under `_id`s from `first_id` on."""

    first: int
    first_id: int
    count: int


def cut(total: int, parts: int) -> list[tuple[int, int]]:
    """`total` cut into `parts` neighbouring intervals (start, length) that differ by one at most."""
    edges = [total * k // parts for k in range(parts + 1)]
    return [(start, end - start) for start, end in pairwise(edges)]


def shard_of(key_range: int, chunks: Sequence[PlannedChunk]) -> str:
    """The shard whose chunk holds the lower end of a range; "" if the chunks do not say."""
    key = key_range << RANGE_BITS
    for chunk in chunks:
        if (chunk.lower is None or chunk.lower <= key) and (chunk.upper is None or key < chunk.upper):
            return chunk.shard
    return ""


def in_turns(key_ranges: int, chunks: Sequence[PlannedChunk]) -> list[int]:
    """The ranges ordered so that neighbours are on different shards as long as there are such."""
    seen: dict[str, int] = {}
    turns = []
    for key_range in range(key_ranges):
        shard = shard_of(key_range, chunks)
        turns.append((seen.setdefault(shard, 0), key_range))
        seen[shard] += 1
    return [key_range for _, key_range in sorted(turns)]


def assign(documents: int, key_ranges: int, processes: int, chunks: Sequence[PlannedChunk]) -> list[list[Stream]]:
    """The streams of each worker process; empty streams are left out.

    With key_ranges 0, `_id` is the running number and the documents are cut into one stream a process. With
    fewer ranges than processes, several processes share a range.
    """
    if key_ranges == 0:
        whole = [Stream(start, start, count) for start, count in cut(documents, processes)]
        return [[stream] if stream.count else [] for stream in whole]
    ranges = cut(documents, key_ranges)
    parts = -(-processes // key_ranges)  # of a range; 1 where there are ranges enough
    streams = []
    for part in range(parts):
        for key_range in in_turns(key_ranges, chunks):
            start, count = ranges[key_range]
            offset, length = cut(count, parts)[part]
            streams.append(Stream(start + offset, (key_range << RANGE_BITS) | offset, length))
    return [[s for s in streams[worker::processes] if s.count] for worker in range(processes)]
