"""mails and tweets: generated texts that compress as written English does.

Words come from a vocabulary of Zipf-Mandelbrot frequencies: the most frequent are English, the others are made of
syllables, longer the rarer they are. The resulting compression is stated in docs/experiments/block-compression.md and
held by tests/unit/workloads/datasets/test_datasets.py.
"""

import random
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import bson
import numpy as np
from numpy.typing import NDArray

from microshard.model.datasets import Mails, Tweets
from microshard.workloads.datasets import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, concatenate

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

MAILBOXES = 150
FOLDERS = ("inbox", "sent_items", "all_documents", "discussion_threads", "deleted_items", "notes_inbox")
SUBJECTS = 5_000
MEDIAN_WORDS, SIGMA = 110, 1.1  # of the log-normal length of what the sender wrote
QUOTING = 0.35  # share of mails that carry the text they answer
_FIRST_MAIL = datetime(1999, 1, 4, 8, tzinfo=UTC)

TWEET_CHARACTERS = 140  # characters, the limit of the time
USERS = 60_000
_FIRST_TWEET = datetime(2010, 4, 25, tzinfo=UTC)
_PLACES = ("", "", "London", "New York, NY", "São Paulo", "Jakarta", "Los Angeles, CA", "Tokyo", "Chicago")
_ZONES = (("Eastern Time (US & Canada)", -18000), ("Pacific Time (US & Canada)", -28800), ("London", 0), (None, None))
_LANGUAGES = ("en", "en", "en", "es", "pt", "ja")
_COLOURS = ("C0DEED", "DDEEF6", "181A1E", "EEEEEE", "BDDCAD")
_STAMP = "%a %b %d %H:%M:%S +0000 %Y"


@cache
def vocabulary() -> tuple[str, ...]:
    """All words, the most frequent first; the same everywhere."""
    chance = random.Random(2001)  # noqa: S311 - text
    words = list(dict.fromkeys(COMMON))
    known = set(words)
    while len(words) < VOCABULARY:
        syllables = 2 if len(words) < 2_000 else chance.choice((2, 3, 3, 4))
        word = "".join(chance.choice(_ONSETS) + chance.choice(_VOWELS) for _ in range(syllables)) + chance.choice(
            _CODAS
        )
        if word not in known:
            known.add(word)
            words.append(word)
    return tuple(words)


@cache
def _table() -> NDArray[np.float64]:
    weights = 1.0 / (np.arange(1, VOCABULARY + 1) + SHIFT) ** EXPONENT
    return np.asarray(np.cumsum(weights / weights.sum()), dtype=np.float64)


def document_random(seed: int, stream: int, number: int) -> np.random.Generator:
    """The random numbers of one document, decided by its data set's seed and its number alone."""
    return np.random.Generator(np.random.Philox(key=(seed << 8 | stream) & (2**64 - 1), counter=[0, 0, 0, number]))


def words(chance: np.random.Generator, count: int) -> list[str]:
    """`count` words by their frequencies."""
    known = vocabulary()
    ranks = np.minimum(np.searchsorted(_table(), chance.random(count)), VOCABULARY - 1)
    return [known[rank] for rank in ranks.tolist()]


def text(chance: np.random.Generator, count: int) -> str:
    """`count` words as sentences in paragraphs, some numbers among them."""
    found = words(chance, count)
    parts: list[str] = []
    at = 0
    while at < count:
        length = int(chance.integers(*SENTENCE_WORDS))
        sentence = found[at : at + length]
        at += length
        if chance.random() < 0.1:
            sentence[-1] += f" {int(chance.integers(1, 5000)):,}"
        if len(sentence) > 12:
            sentence[len(sentence) // 2] += ","
        end = "." if chance.random() < 0.9 else "?"
        parts.append(" ".join(sentence).capitalize() + end + ("\n\n" if chance.random() < 0.15 else " "))
    return "".join(parts).rstrip()


class MailDocuments(Dataset[Mails]):
    """E-mail of the shape of the published corpus: long texts, replies that quote, headers that repeat."""

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """One by one: a mail depends on its number alone."""
        return concatenate([_mail(first + n, one, seed) for n, one in enumerate(ids.tolist())])


def _person(number: int) -> tuple[str, str]:
    """Name and address; few write much."""
    given, family = words(document_random(1, 3, number), 2)
    return f"{given.title()} {family.title()}", f"{given}.{family}@example.com"


def _subject(number: int) -> str:
    chance = document_random(1, 4, number)
    return " ".join(words(chance, int(chance.integers(2, 7)))).capitalize()


def _body(number: int, seed: int) -> str:
    chance = document_random(seed, 1, number)
    return text(chance, max(3, min(3000, int(chance.lognormal(np.log(MEDIAN_WORDS), SIGMA)))))


def _mail(number: int, identifier: int, seed: int) -> bytes:
    chance = document_random(seed, 2, number)
    sender, receiver = (_person(int(MAILBOXES * chance.random() ** 2)) for _ in range(2))
    box = receiver[1].split("@")[0].split(".")
    folder = FOLDERS[int(chance.integers(len(FOLDERS)))]
    quoting = number > 0 and chance.random() < QUOTING
    subject = _subject(int(SUBJECTS * chance.random() ** 2))
    body = _body(number, seed)
    if quoting:
        answered = _body(int(chance.integers(max(0, number - 500), number)), seed)
        quoted = answered.replace("\n", "\n> ")
        body = f"{body}\n\n-----Original Message-----\nFrom: {receiver[0]}\nSubject: {subject}\n\n> {quoted}"
    sent = _FIRST_MAIL + timedelta(minutes=number * 3 % 1_500_000, seconds=int(chance.integers(60)))
    message = f"<{int(chance.integers(10**7, 10**8))}.{int(sent.timestamp())}.JavaMail.{box[0]}@mail>"
    return bson.encode(
        {
            "_id": identifier,
            "body": body,
            "subFolder": folder,
            "mailbox": f"{box[1]}-{box[0][0]}",
            "filename": f"{number % 4000}.",
            "headers": {
                "Message-ID": message,
                "Date": sent.strftime("%a, %d %b %Y %H:%M:%S -0800 (PST)"),
                "From": sender[1],
                "To": receiver[1],
                "Subject": f"Re: {subject}" if quoting else subject,
                "Mime-Version": "1.0",
                "Content-Type": "text/plain; charset=us-ascii",
                "Content-Transfer-Encoding": "7bit",
                "X-From": sender[0],
                "X-To": receiver[0],
                "X-cc": "",
                "X-bcc": "",
                "X-Folder": f"\\{receiver[0].replace(' ', '_')}_Dec2000\\Notes Folders\\{folder}",
                "X-Origin": f"{box[1].title()}-{box[0][0].upper()}",
                "X-FileName": f"{box[0][0]}{box[1]}.nsf",
            },
        }
    )


class TweetDocuments(Dataset[Tweets]):
    """Short messages of the shape of the published ones: many fields, most of them about the user."""

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """One by one: a tweet depends on its number alone."""
        return concatenate([bson.encode(_tweet(first + n, one, seed)) for n, one in enumerate(ids.tolist())])


def _user(number: int) -> dict[str, Any]:
    """The same in all their tweets but for the counters, which the tweet sets."""
    chance = document_random(2, 5, number)
    name = words(chance, 2)
    zone, offset = _ZONES[int(chance.integers(len(_ZONES)))]
    joined_at = _FIRST_TWEET - timedelta(days=int(chance.integers(1, 1200)), seconds=int(chance.integers(86400)))
    colour, fill = (_COLOURS[int(chance.integers(len(_COLOURS)))] for _ in range(2))
    return {
        "id": 10_000_000 + number * 37,
        "id_str": str(10_000_000 + number * 37),
        "name": " ".join(name).title(),
        "screen_name": "".join(name)[:15],
        "location": _PLACES[int(chance.integers(len(_PLACES)))],
        "description": " ".join(words(chance, int(chance.integers(0, 22)))),
        "url": None if chance.random() < 0.6 else f"http://example.com/{name[0]}",
        "created_at": joined_at.strftime(_STAMP),
        "time_zone": zone,
        "utc_offset": offset,
        "lang": _LANGUAGES[int(chance.integers(len(_LANGUAGES)))],
        "verified": bool(chance.random() < 0.01),
        "geo_enabled": bool(chance.random() < 0.3),
        "protected": False,
        "contributors_enabled": False,
        "following": None,
        "follow_request_sent": None,
        "show_all_inline_media": False,
        "profile_use_background_image": True,
        "profile_background_tile": bool(chance.random() < 0.3),
        "profile_sidebar_border_color": colour,
        "profile_sidebar_fill_color": fill,
        "profile_link_color": "0084B4",
        "profile_image_url": f"http://example.com/profile_images/{int(chance.integers(10**9))}/normal.jpg",
        "profile_background_image_url": "http://example.com/images/themes/theme1/bg.png",
        "listed_count": int(chance.integers(0, 40)),
        "favourites_count": int(chance.integers(0, 900)),
        "friends_count": int(chance.lognormal(5, 1.2)),
        "followers_count": int(chance.lognormal(5, 1.8)),
    }


def _tweet(number: int, identifier: int, seed: int) -> dict[str, Any]:
    chance = document_random(seed, 6, number)
    user = _user(int(USERS * chance.random() ** 3))
    tags = words(chance, int(chance.integers(0, 3))) if chance.random() < 0.3 else []
    mentioned = _user(int(USERS * chance.random() ** 3)) if chance.random() < 0.4 else None
    link = f"http://example.com/{int(chance.integers(36**6)):x}" if chance.random() < 0.25 else None
    message = " ".join(words(chance, int(chance.integers(3, 22))))
    tail = "".join(f" #{tag}" for tag in tags) + (f" {link}" if link else "")
    head = f"@{mentioned['screen_name']} " if mentioned else ""
    body = (head + message)[: TWEET_CHARACTERS - len(tail)] + tail
    return {
        "_id": identifier,
        "created_at": (_FIRST_TWEET + timedelta(seconds=number // 3)).strftime(_STAMP),
        "id": 12_800_000_000 + number * 61,
        "id_str": str(12_800_000_000 + number * 61),
        "text": body,
        "source": "web" if chance.random() < 0.5 else '<a href="http://example.com/client" rel="nofollow">Client</a>',
        "truncated": False,
        "favorited": False,
        "retweeted": False,
        "retweet_count": int(chance.random() ** 8 * 100),
        "in_reply_to_status_id": None,
        "in_reply_to_status_id_str": None,
        "in_reply_to_user_id": mentioned["id"] if mentioned else None,
        "in_reply_to_user_id_str": mentioned["id_str"] if mentioned else None,
        "in_reply_to_screen_name": mentioned["screen_name"] if mentioned else None,
        "coordinates": None,
        "geo": None,
        "place": None,
        "contributors": None,
        "entities": {
            "urls": [{"url": link, "expanded_url": None, "indices": _at(body, link)}] if link else [],
            "hashtags": [{"text": tag, "indices": _at(body, f"#{tag}")} for tag in tags],
            "user_mentions": [
                {key: mentioned[key] for key in ("id", "id_str", "name", "screen_name")}
                | {"indices": _at(body, head.strip())}
            ]
            if mentioned
            else [],
        },
        "user": user | {"statuses_count": 10 + number // 50},
    }


def _at(body: str, part: str) -> list[int]:
    start = body.find(part)
    return [start, start + len(part)]
