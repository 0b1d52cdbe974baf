"""mails: generated e-mail of the shape of the published corpus: long texts, replies that quote, headers that repeat."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import bson
import numpy as np

from microshard.model import datasets
from microshard.workloads.datasets.base import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, joined
from microshard.workloads.datasets.words import dice_of, text, words

MAILBOXES = 150
FOLDERS = ("inbox", "sent_items", "all_documents", "discussion_threads", "deleted_items", "notes_inbox")
SUBJECTS = 5_000
MEDIAN_WORDS, SIGMA = 110, 1.1  # of the log-normal length of what the sender wrote
QUOTING = 0.35  # share of mails that carry the text they answer
_FIRST = datetime(1999, 1, 4, 8, tzinfo=UTC)


class Mails(Dataset[datasets.Mails]):
    """{_id, body, subFolder, mailbox, filename, headers{…}}."""

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """One by one: a mail is its number's own."""
        return joined([_mail(first + n, int(one), seed) for n, one in enumerate(ids.tolist())])


def _person(number: int) -> tuple[str, str]:
    """Name and address; few write much."""
    given, family = words(dice_of(1, 3, number), 2)
    return f"{given.title()} {family.title()}", f"{given}.{family}@example.com"


def _subject(number: int) -> str:
    dice = dice_of(1, 4, number)
    return " ".join(words(dice, int(dice.integers(2, 7)))).capitalize()


def _body(number: int, seed: int) -> str:
    dice = dice_of(seed, 1, number)
    return text(dice, max(3, min(3000, int(dice.lognormal(np.log(MEDIAN_WORDS), SIGMA)))))


def _mail(number: int, identifier: int, seed: int) -> bytes:
    dice = dice_of(seed, 2, number)
    sender, receiver = (_person(int(MAILBOXES * dice.random() ** 2)) for _ in range(2))
    box = receiver[1].split("@")[0].split(".")
    folder = FOLDERS[int(dice.integers(len(FOLDERS)))]
    quoting = number > 0 and dice.random() < QUOTING
    subject = _subject(int(SUBJECTS * dice.random() ** 2))
    body = _body(number, seed)
    if quoting:
        answered = _body(int(dice.integers(max(0, number - 500), number)), seed)
        quoted = answered.replace("\n", "\n> ")
        body = f"{body}\n\n-----Original Message-----\nFrom: {receiver[0]}\nSubject: {subject}\n\n> {quoted}"
    sent = _FIRST + timedelta(minutes=number * 3 % 1_500_000, seconds=int(dice.integers(60)))
    message = f"<{int(dice.integers(10**7, 10**8))}.{int(sent.timestamp())}.JavaMail.{box[0]}@mail>"
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


DATASET = Mails
