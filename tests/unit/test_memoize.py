"""What is asked of the same objects is answered once."""

from __future__ import annotations

from microshard import memoize as once_module
from microshard.memoize import memoize_by_identity


def test_the_same_objects_are_asked_about_once_and_others_for_themselves() -> None:
    asked = []

    @memoize_by_identity
    def length(words: dict[str, str], added: int) -> int:
        asked.append(words)
        return len(words) + added

    one, equal = {"a": "b"}, {"a": "b"}
    assert [length(one, 1), length(one, 1), length(equal, 1), length(one, 2)] == [2, 2, 2, 3]
    assert [id(words) for words in asked] == [id(one), id(equal), id(one)]


def test_a_list_is_the_same_when_its_items_are() -> None:
    asked = []

    @memoize_by_identity
    def first(sections: list[dict[str, int]]) -> int:
        asked.append(sections)
        return sections[0]["a"]

    one, equal = {"a": 1}, {"a": 1}
    assert [first([one]), first([one]), first([equal]), first([one, equal]), first([equal, one])] == [1] * 5
    assert [list(map(id, sections)) for sections in asked] == [
        [id(one)],
        [id(equal)],
        [id(one), id(equal)],
        [id(equal), id(one)],
    ]


def test_nothing_is_also_an_answer() -> None:
    asked = []

    @memoize_by_identity
    def nothing(words: list[str]) -> None:
        asked.append(words)

    words = ["a"]
    nothing(words)
    nothing(words)
    assert len(asked) == 1


def test_an_object_with_the_place_of_one_that_is_gone_is_not_taken_for_it() -> None:
    @memoize_by_identity
    def first(words: list[int]) -> int:
        return words[0]

    # Each list is gone when the next is made, which without the memory of arguments would have its identity.
    assert [first([number]) for number in range(once_module.KEPT + 100)] == list(range(once_module.KEPT + 100))
