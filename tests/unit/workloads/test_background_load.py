"""Which documents of a running load may be read: those that are surely there."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from microshard.workloads.background_load.documents import key, span_of
from microshard.workloads.background_load.worker import Shared


def test_a_batch_that_is_under_way_for_long_is_never_read() -> None:
    work = {"batch_size": 10, "documents": None, "step": 1, "known": 0, "first": 0, "threads": 2}
    shared = Shared(work, next_number=0)
    done, slow = shared.take(), shared.take()
    shared.under_way.discard(done[0])
    for _ in range(50):
        batch = shared.take()
        shared.under_way.discard(batch[0])
        shared.total += len(batch)
    chance = random.Random(1)
    assert {shared.known(chance) for _ in range(500)} == set(done)
    shared.under_way.discard(slow[0])
    assert max(shared.known(chance) for _ in range(2000)) > 400


@given(st.integers(0, 300), st.sampled_from(["random", "ascending"]))
def test_every_document_has_an_id_of_its_own_below_the_span(ranges: int, order: str) -> None:
    keys = {key(n, order, span_of(ranges)) for n in range(300)}  # type: ignore[arg-type]
    assert len(keys) == 300
    assert all(0 <= k < span_of(ranges) for k in keys)
