"""tweets: generated short messages of the shape of the published ones: many fields, most of them about the user."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson

from microshard.model import datasets
from microshard.workloads.datasets.base import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, joined
from microshard.workloads.datasets.words import dice_of, words

LONGEST = 140  # characters, the limit of the time
USERS = 60_000
_FIRST = datetime(2010, 4, 25, tzinfo=UTC)
_PLACES = ("", "", "London", "New York, NY", "São Paulo", "Jakarta", "Los Angeles, CA", "Tokyo", "Chicago")
_ZONES = (("Eastern Time (US & Canada)", -18000), ("Pacific Time (US & Canada)", -28800), ("London", 0), (None, None))
_LANGUAGES = ("en", "en", "en", "es", "pt", "ja")
_COLOURS = ("C0DEED", "DDEEF6", "181A1E", "EEEEEE", "BDDCAD")
_STAMP = "%a %b %d %H:%M:%S +0000 %Y"


class Tweets(Dataset[datasets.Tweets]):
    """A tweet with its entities and its user, some forty fields."""

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """One by one: a tweet is its number's own."""
        return joined([bson.encode(_tweet(first + n, one, seed)) for n, one in enumerate(ids.tolist())])


def _user(number: int) -> dict[str, Any]:
    """The same in all their tweets but for the counters, which the tweet sets."""
    dice = dice_of(2, 5, number)
    name = words(dice, 2)
    zone, offset = _ZONES[int(dice.integers(len(_ZONES)))]
    joined_at = _FIRST - timedelta(days=int(dice.integers(1, 1200)), seconds=int(dice.integers(86400)))
    colour, fill = (_COLOURS[int(dice.integers(len(_COLOURS)))] for _ in range(2))
    return {
        "id": 10_000_000 + number * 37,
        "id_str": str(10_000_000 + number * 37),
        "name": " ".join(name).title(),
        "screen_name": "".join(name)[:15],
        "location": _PLACES[int(dice.integers(len(_PLACES)))],
        "description": " ".join(words(dice, int(dice.integers(0, 22)))),
        "url": None if dice.random() < 0.6 else f"http://example.com/{name[0]}",
        "created_at": joined_at.strftime(_STAMP),
        "time_zone": zone,
        "utc_offset": offset,
        "lang": _LANGUAGES[int(dice.integers(len(_LANGUAGES)))],
        "verified": bool(dice.random() < 0.01),
        "geo_enabled": bool(dice.random() < 0.3),
        "protected": False,
        "contributors_enabled": False,
        "following": None,
        "follow_request_sent": None,
        "show_all_inline_media": False,
        "profile_use_background_image": True,
        "profile_background_tile": bool(dice.random() < 0.3),
        "profile_sidebar_border_color": colour,
        "profile_sidebar_fill_color": fill,
        "profile_link_color": "0084B4",
        "profile_image_url": f"http://example.com/profile_images/{int(dice.integers(10**9))}/normal.jpg",
        "profile_background_image_url": "http://example.com/images/themes/theme1/bg.png",
        "listed_count": int(dice.integers(0, 40)),
        "favourites_count": int(dice.integers(0, 900)),
        "friends_count": int(dice.lognormal(5, 1.2)),
        "followers_count": int(dice.lognormal(5, 1.8)),
    }


def _tweet(number: int, identifier: int, seed: int) -> dict[str, Any]:
    dice = dice_of(seed, 6, number)
    user = _user(int(USERS * dice.random() ** 3))
    tags = words(dice, int(dice.integers(0, 3))) if dice.random() < 0.3 else []
    mentioned = _user(int(USERS * dice.random() ** 3)) if dice.random() < 0.4 else None
    link = f"http://example.com/{int(dice.integers(36**6)):x}" if dice.random() < 0.25 else None
    said = " ".join(words(dice, int(dice.integers(3, 22))))
    tail = "".join(f" #{tag}" for tag in tags) + (f" {link}" if link else "")
    head = f"@{mentioned['screen_name']} " if mentioned else ""
    body = (head + said)[: LONGEST - len(tail)] + tail
    return {
        "_id": identifier,
        "created_at": (_FIRST + timedelta(seconds=number // 3)).strftime(_STAMP),
        "id": 12_800_000_000 + number * 61,
        "id_str": str(12_800_000_000 + number * 61),
        "text": body,
        "source": "web" if dice.random() < 0.5 else '<a href="http://example.com/client" rel="nofollow">Client</a>',
        "truncated": False,
        "favorited": False,
        "retweeted": False,
        "retweet_count": int(dice.random() ** 8 * 100),
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


DATASET = Tweets
