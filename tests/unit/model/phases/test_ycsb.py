"""What an experiment may ask of YCSB, and what is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from microshard.model.phases.ycsb import Ladder, YcsbPhase
from microshard.model.topology import Topology


def phase(**keys: Any) -> YcsbPhase:
    return YcsbPhase.model_validate({"engine": "ycsb", "records": 1000, **keys})


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"proportions": {"read": 0.5, "update": 0.4}}, "proportions: they add up to 0.9"),
        ({"properties": {"recordcount": 5}}, "recordcount contradicts the key records"),
        ({"properties": {"threadcount": 5}}, "threadcount contradicts the key threads"),
        ({"properties": {"mongodb.startat": 5}}, "mongodb.startat is set by the engine itself"),
        ({"properties": {"minscanlenght": 5}}, "neither YCSB nor the binding reads minscanlenght; did you mean minsc"),
        ({"threads": "ladder", "rate": 5}, "threads: a ladder of threads is a closed loop"),
        ({"threads": "ladder", "operations": 5}, "operations: a ladder measures for a time"),
        ({"threads": 2, "clients": 3}, "threads: 2 over 3 clients"),
        ({"records": 50, "proportions": {"scan": 1.0}}, "records: too few for scans of up to 100"),
        ({"records": 4, "distribution": "hotspot"}, "records: too few for a hot spot"),
        ({"records": 1, "distribution": "zipfian"}, "records: too few for the distribution zipfian"),
        ({"distribution": "latest", "proportions": {"insert": 1.0}, "clients": 2}, "keys of one client alone"),
        ({"distribution": "zipfian", "proportions": {"insert": 1.0}}, "operations: YCSB sizes the key space"),
        ({"threads": "ladder", "ladder": {"first": 8, "last": 4}}, "below the first rung"),
    ],
)
def test_keys_that_contradict_each_other_are_refused_by_name(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        phase(**keys)


@pytest.mark.parametrize(
    ("kind", "keys", "where"),
    [
        ("load", {"distribution": "zipfian"}, "distribution"),
        ("load", {"threads": "ladder"}, "threads"),
        ("load", {"threads": 2000}, "threads"),
        ("measure", {"batch_size": 10}, "batch_size"),
        ("measure", {"ladder": {}}, "ladder"),
        ("measure", {"threads": "ladder", "duration_seconds": 60}, "duration_seconds"),
        ("measure", {"operations": 10, "duration_seconds": 60}, "duration_seconds"),
        ("measure", {"write_concern": "replica_acknowledged"}, "write_concern"),
    ],
)
def test_keys_without_effect_are_errors_at_their_place(kind: Any, keys: dict[str, Any], where: str) -> None:
    found = list(phase(**keys).findings(Topology(kind="standalone"), kind))
    assert [(path, severity) for path, _, severity in found] == [((where,), "error")]


def test_a_plain_phase_has_no_findings() -> None:
    for kind in ("load", "measure"):
        assert list(phase().findings(Topology(), kind)) == []


def test_only_a_load_adds_records() -> None:
    load = phase(fields=8, field_bytes=250).of_kind("load")
    assert (phase().of_kind("measure").adds(), load.adds()) == (0, 1000)
    assert load.raw_bytes() > 1000 * 8 * 250
    assert load.model_fields_set == {"engine", "records", "fields", "field_bytes"}


def test_reads_and_scans_leave_the_data_alone() -> None:
    assert not phase(proportions={"read": 0.5, "scan": 0.5}).writes()
    assert phase(proportions={"read": 0.9, "update": 0.1}).writes()


def test_rungs_double_and_end_with_the_last() -> None:
    assert Ladder(last=128).rungs() == [1, 2, 4, 8, 16, 32, 64, 128]
    assert Ladder(last=48).rungs() == [1, 2, 4, 8, 16, 32, 48]
    assert Ladder(first=2, last=5, factor=1.2).rungs() == [2, 3, 4, 5]
    assert Ladder(first=7, last=7).rungs() == [7]
