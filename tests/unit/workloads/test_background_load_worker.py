"""Background load: its documents, and which of them may be read while others are being inserted."""

import random

from hypothesis import given
from hypothesis import strategies as st

from microshard.workloads.background_load_worker import DocumentGenerator, WorkerState, id_span


def test_a_batch_that_is_not_acknowledged_is_never_read() -> None:
    work = {"batch_size": 10, "documents": None, "step": 1, "known": 0, "first": 0, "threads": 2}
    state = WorkerState(work, next_number=0)
    done, slow = state.next_batch(), state.next_batch()
    state.pending.discard(done[0])
    for _ in range(50):
        batch = state.next_batch()
        state.pending.discard(batch[0])
        state.total += len(batch)
    chance = random.Random(1)
    assert {state.number_to_read(chance) for _ in range(500)} == set(done)
    state.pending.discard(slow[0])
    assert max(state.number_to_read(chance) for _ in range(2000)) > 400


@given(st.integers(0, 300), st.sampled_from(["random", "ascending"]))
def test_every_document_has_a_distinct_id_below_the_span(ranges: int, order: str) -> None:
    generator = DocumentGenerator(160, 1.0, order, id_span(ranges))
    ids = {generator.id_of(n) for n in range(300)}
    assert len(ids) == 300
    assert all(0 <= i < id_span(ranges) for i in ids)
