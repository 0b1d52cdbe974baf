"""Whether a member that was added has what its set has."""

from __future__ import annotations

import time

from bson import Timestamp

from microshard.workloads.base import Client, PhaseError
from microshard.workloads.syncing.progress import OWN_DATABASES

CATCH_UP_SECONDS = 120.0
_LOOK_SECONDS = 0.1


def catch_up(replica_set: Client, member: Client) -> None:
    """Wait until the member has applied what the primary has written by now. Raises PhaseError."""
    goal = _applied(replica_set)
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while _applied(member) < goal:
        if time.monotonic() > deadline:
            raise PhaseError("LagsBehind", f"the new member has not caught up in {CATCH_UP_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


def _applied(client: Client) -> Timestamp:
    """Of the last operation it has applied."""
    found: Timestamp = client.admin.command("replSetGetStatus")["optimes"]["appliedOpTime"]["ts"]
    return found


def same_data(replica_set: Client, member: Client, name: str, *, hashes: bool) -> int:
    """Compare counts and indexes of all collections, and `hashes` of all databases; documents on the member.

    Raises PhaseError with what differs; `name` is the member's.
    """
    there, here = _inventory(replica_set), _inventory(member)
    if there != here:
        wrong = sorted(ns for ns in there.keys() | here.keys() if there.get(ns) != here.get(ns))
        told = "; ".join(f"{ns}: {there.get(ns)} on the primary, {here.get(ns)} here" for ns in wrong[:3])
        raise PhaseError("NotTheSame", f"{name} differs from its set: {told}")
    for database in {ns.partition(".")[0] for ns in here} if hashes else ():
        ours, theirs = (client[database].command("dbHash")["md5"] for client in (member, replica_set))
        if ours != theirs:
            raise PhaseError("NotTheSame", f"{name}: dbHash of {database} differs from the primary's")
    return sum(documents for documents, _ in here.values())


def _inventory(client: Client) -> dict[str, tuple[int, list[str]]]:
    """Documents and names of the indexes of every collection that is the experiment's."""
    found = {}
    for database in client.list_database_names():
        if database in OWN_DATABASES:
            continue
        db = client[database]
        for name in db.list_collection_names(filter={"type": "collection"}):
            indexes = sorted(str(index["name"]) for index in db[name].list_indexes())
            found[f"{database}.{name}"] = (db[name].count_documents({}), indexes)
    return found
