"""A set-up is done once, and again only where its files changed."""

from pathlib import Path

import pytest
from setup.stamp import PARTS, Stamp

ALL = list(PARTS)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for names in PARTS.values():
        for name in names:
            file = tmp_path / "checkout" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name, encoding="utf-8")
    return tmp_path / "checkout"


@pytest.fixture
def stamp(checkout: Path) -> Stamp:
    (checkout / ".venv").mkdir()
    return Stamp(checkout / ".venv")


def test_without_a_stamp_everything_is_missing(checkout: Path, stamp: Stamp) -> None:
    assert stamp.missing(checkout, ALL) == ALL


def test_what_was_recorded_is_not_missing(checkout: Path, stamp: Stamp) -> None:
    stamp.record(checkout, ["run", "project"])
    assert stamp.missing(checkout, ALL) == ["mongodb", "dev"]
    assert stamp.missing(checkout, ["run", "project"]) == []


@pytest.mark.parametrize(("part", "file"), [(part, file) for part, files in PARTS.items() for file in files])
def test_a_changed_file_concerns_its_own_part_only(checkout: Path, stamp: Stamp, part: str, file: str) -> None:
    stamp.record(checkout, ALL)
    (checkout / file).write_text("changed", encoding="utf-8")
    assert stamp.missing(checkout, ALL) == [part]


def test_a_checkout_that_was_moved_is_set_up_again(checkout: Path, stamp: Stamp) -> None:
    stamp.record(checkout, ALL)
    moved = checkout.rename(checkout.with_name("elsewhere"))
    assert Stamp(moved / ".venv").missing(moved, ALL) == ALL


def test_a_forgotten_part_is_tried_again(checkout: Path, stamp: Stamp) -> None:
    stamp.record(checkout, ALL)
    stamp.forget("mongodb")
    assert stamp.missing(checkout, ALL) == ["mongodb"]


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_broken_stamp_counts_as_none(checkout: Path, stamp: Stamp, content: str) -> None:
    stamp.record(checkout, ALL)
    (checkout / ".venv" / "microshard-setup.json").write_text(content, encoding="utf-8")
    assert stamp.missing(checkout, ALL) == ALL


def test_a_killed_set_up_is_recognised_and_a_finished_one_is_not(checkout: Path) -> None:
    stamp = Stamp(checkout / ".venv")
    assert not stamp.unfinished
    stamp.begin()
    assert stamp.unfinished
    stamp.end()
    assert not stamp.unfinished
