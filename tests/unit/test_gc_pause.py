"""The garbage collector rests while a function builds, and only then."""

from __future__ import annotations

import gc

import pytest

from microshard.gc_pause import gc_paused


@gc_paused
def build(*, fail: bool) -> bool:
    if fail:
        raise ValueError
    return gc.isenabled()


def test_it_rests_inside_and_works_again_outside() -> None:
    assert gc.isenabled()
    assert build(fail=False) is False
    assert gc.isenabled()
    with pytest.raises(ValueError, match=r"^$"):
        build(fail=True)
    assert gc.isenabled()


def test_whoever_has_turned_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        build(fail=False)
        assert not gc.isenabled()
    finally:
        gc.enable()
