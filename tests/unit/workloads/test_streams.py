"""Who inserts what: every document exactly once, under an `_id` of its range, spread over shards and workers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from microshard.model.plan import PlannedChunk
from microshard.workloads.streams import RANGE_BITS, assign, cut, in_turns, shard_of

CASES = (st.integers(1, 5000), st.integers(0, 40), st.integers(1, 12))


def layout(key_ranges: int, shards: int) -> list[PlannedChunk]:
    """Neighbouring ranges on one shard, as the planner places them."""
    each = key_ranges // shards
    return [
        PlannedChunk(
            f"shard{k // each + 1:02d}",
            None if k == 0 else k << RANGE_BITS,
            None if k == key_ranges - 1 else (k + 1) << RANGE_BITS,
        )
        for k in range(key_ranges)
    ]


@given(*CASES)
def test_every_document_is_inserted_once(documents: int, key_ranges: int, processes: int) -> None:
    workers = assign(documents, key_ranges, processes, [])
    numbers = sorted(s.first + k for streams in workers for s in streams for k in range(s.count))
    ids = {s.first_id + k for streams in workers for s in streams for k in range(s.count)}
    assert len(workers) == processes
    assert numbers == list(range(documents))
    assert len(ids) == documents


@given(*CASES)
def test_the_id_of_a_document_depends_on_the_ranges_alone(documents: int, key_ranges: int, processes: int) -> None:
    def by_number(count: int) -> dict[int, int]:
        streams = [s for mine in assign(documents, key_ranges, count, []) for s in mine]
        return {s.first + k: s.first_id + k for s in streams for k in range(s.count)}

    assert by_number(processes) == by_number(1)


@given(st.integers(1, 5000), st.integers(1, 40), st.integers(1, 12))
def test_ids_have_their_range_above_and_a_running_number_below(documents: int, ranges: int, processes: int) -> None:
    streams = [s for mine in assign(documents, ranges, processes, []) for s in mine]
    for key_range, (first, count) in enumerate(cut(documents, ranges)):
        theirs = sorted((s for s in streams if s.first_id >> RANGE_BITS == key_range), key=lambda s: s.first_id)
        assert sum(s.count for s in theirs) == count
        assert all(s.first_id & (2**RANGE_BITS - 1) == s.first - first for s in theirs)


@given(*CASES)
def test_workers_have_equal_shares_of_equal_streams(documents: int, key_ranges: int, processes: int) -> None:
    counts = [len(mine) for mine in assign(documents + 50 * 12, key_ranges, processes, [])]
    assert max(counts) - min(counts) <= 1


def test_without_ranges_ids_are_running_numbers() -> None:
    streams = [s for mine in assign(100, 0, 3, []) for s in mine]
    assert all(s.first_id == s.first for s in streams)


def test_neighbouring_streams_are_on_different_shards() -> None:
    chunks = layout(12, 3)
    shards = [shard_of(key_range, chunks) for key_range in in_turns(12, chunks)]
    assert all(a != b for a, b in pairwise(shards))
    assert sorted(in_turns(12, chunks)) == list(range(12))


def test_the_first_batches_of_all_workers_go_to_all_shards() -> None:
    chunks = layout(16, 4)
    workers = assign(16_000, 16, 4, chunks)
    assert {shard_of(mine[0].first_id >> RANGE_BITS, chunks) for mine in workers} == {c.shard for c in chunks}


def test_a_range_is_on_the_shard_whose_chunk_holds_it() -> None:
    chunks = layout(8, 2)
    assert [shard_of(k, chunks) for k in range(8)] == ["shard01"] * 4 + ["shard02"] * 4
    assert shard_of(3, []) == ""
