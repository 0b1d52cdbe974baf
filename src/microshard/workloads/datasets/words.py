"""Text that compresses as written English does: a vocabulary of Zipf-Mandelbrot frequencies, sentences, paragraphs.

The most frequent words are English's own, the others are made of syllables, longer the rarer they are. What that gives
is stated in docs/experiments/block-compression.md and held by tests/unit/engines/test_datasets.py.
"""

from __future__ import annotations

import random
from functools import cache

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 20_000
# Mandelbrot's form of Zipf's law, 1 / (rank + shift)^exponent, with the values usual for English.
SHIFT, EXPONENT = 2.7, 1.07
_ENGLISH = (
    "the to of and a in for is that on you it be this we with i have will as are at your if not from can or by our "
    "please me has all my would but do was an any he they about so what know up there no more which out his get need "
    "one their time let just new like been some other them call when how should could him than may only us these "
    "who also she here now see had am over next today were meeting week think gas deal make "
    "power first energy want thanks work send good company price back last into agreement two very before questions"
)
COMMON = _ENGLISH.split()
_ONSETS = ("b", "c", "d", "f", "g", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "pr", "cl", "ch", "sh", "")
_VOWELS = ("a", "e", "i", "o", "u", "ea", "io", "ou")
_CODAS = ("", "n", "r", "s", "t", "l", "nt", "ss", "ng", "d", "m", "ct")
SENTENCE_WORDS = (4, 24)


@cache
def vocabulary() -> tuple[str, ...]:
    """All words, the most frequent first; the same everywhere."""
    dice = random.Random(2001)  # noqa: S311 - text
    words = list(dict.fromkeys(COMMON))
    known = set(words)
    while len(words) < VOCABULARY:
        syllables = 2 if len(words) < 2_000 else dice.choice((2, 3, 3, 4))
        word = "".join(dice.choice(_ONSETS) + dice.choice(_VOWELS) for _ in range(syllables)) + dice.choice(_CODAS)
        if word not in known:
            known.add(word)
            words.append(word)
    return tuple(words)


@cache
def _table() -> NDArray[np.float64]:
    weights = 1.0 / (np.arange(1, VOCABULARY + 1) + SHIFT) ** EXPONENT
    return np.asarray(np.cumsum(weights / weights.sum()), dtype=np.float64)


def dice_of(seed: int, stream: int, number: int) -> np.random.Generator:
    """Random numbers of one document: nothing but its data set's seed and its number decides them."""
    return np.random.Generator(np.random.Philox(key=(seed << 8 | stream) & (2**64 - 1), counter=[0, 0, 0, number]))


def words(dice: np.random.Generator, count: int) -> list[str]:
    """`count` words by their frequencies."""
    known = vocabulary()
    ranks = np.minimum(np.searchsorted(_table(), dice.random(count)), VOCABULARY - 1)
    return [known[rank] for rank in ranks.tolist()]


def text(dice: np.random.Generator, count: int) -> str:
    """`count` words as sentences in paragraphs, some numbers among them."""
    found = words(dice, count)
    parts: list[str] = []
    at = 0
    while at < count:
        length = int(dice.integers(*SENTENCE_WORDS))
        sentence = found[at : at + length]
        at += length
        if dice.random() < 0.1:
            sentence[-1] += f" {int(dice.integers(1, 5000)):,}"
        if len(sentence) > 12:
            sentence[len(sentence) // 2] += ","
        end = "." if dice.random() < 0.9 else "?"
        parts.append(" ".join(sentence).capitalize() + end + ("\n\n" if dice.random() < 0.15 else " "))
    return "".join(parts).rstrip()
