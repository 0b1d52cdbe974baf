"""What runs of one owner have left in an account, and its removal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from microshard.backends.ec2 import find
from microshard.backends.ec2.api import Api
from microshard.backends.ec2.find import Thing
from microshard.backends.ec2.ledger import Ledger, Memory
from microshard.backends.ec2.teardown import Removal, teardown


@dataclass(frozen=True, slots=True)
class Leftover:
    """A run that has things in the account and should not."""

    run: str
    reason: str  # "expired" or "over"
    things: tuple[Thing, ...]


def leftovers(api: Api, owner: str, *, now: float, over: Callable[[str], bool] = lambda _: False) -> list[Leftover]:
    """Runs of `owner` that are past their expiry at `now` (epoch seconds) or that `over` says are over.

    A run that is neither is never listed, and nothing of another owner. Raises CloudError.
    """
    runs: dict[str, list[Thing]] = {}
    for thing in find.by_owner(api, owner):
        if thing.run:
            runs.setdefault(thing.run, []).append(thing)
    found = []
    for run, things in sorted(runs.items()):
        ends = [t.expires_at for t in things if t.expires_at is not None]
        if ends and max(ends) <= now:
            found.append(Leftover(run, "expired", tuple(things)))
        elif over(run):
            found.append(Leftover(run, "over", tuple(things)))
    return found


def collect(
    api: Api,
    owner: str,
    *,
    now: float,
    over: Callable[[str], bool] = lambda _: False,
    books: Mapping[str, Ledger] | None = None,
) -> list[Removal]:
    """Tear down every leftover run; `books` are the ledgers of runs whose folder is on this machine. Raises CloudError.

    Runs with a ledger that `over` names are torn down even when nothing of them can be seen by tag: something may be
    there without one, or not visible yet.
    """
    ledgers = dict(books or {})
    runs = [item.run for item in leftovers(api, owner, now=now, over=over)]
    runs += [run for run in ledgers if run not in runs and over(run)]
    return [teardown(api, run, ledgers.get(run, Memory())) for run in runs]
