"""Connections to the servers of a point, and connection strings with the logins of the run, in memory only."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from pymongo import MongoClient

from microshard.model.job import Job, JobError
from microshard.records import codec

if TYPE_CHECKING:
    Client = MongoClient[dict[str, Any]]
else:
    Client = MongoClient  # that of PyMongo 3 has no type parameters

SYSTEM = "system"  # the login of the servers themselves; its password is the key file
# A server that is gone must become an error, not a wait: the default of 30 s is meant for elections over networks.
SERVER_SELECTION_MS = 15_000
CONNECT_MS = 10_000


def connect(uri: str, **options: Any) -> Client:
    """A client that fails soon and retries nothing; options override."""
    settings: dict[str, Any] = {
        "retryWrites": False,
        "retryReads": False,
        "serverSelectionTimeoutMS": SERVER_SELECTION_MS,
        "connectTimeoutMS": CONNECT_MS,
        "appname": "microshard",
    }
    return MongoClient(uri, **(settings | options))


def with_login(uri: str, secrets: Path | None, *, authorization: bool, tls: bool, user: str = "workload") -> str:
    """The URI with user, password and certificate authority of the run. Raises OSError, ValueError.

    The result must not be written where others can read it: not on a command line, not into a log or result.
    """
    if secrets is None or not (authorization or tls):
        return uri
    parts = urlsplit(uri)
    query = [parts.query] if parts.query else []
    host = parts.netloc
    if authorization:
        name, password, source = _account(secrets, user)
        host = f"{name}:{quote(password, safe='')}@{host}"
        query.append(f"authSource={source}&authMechanism=SCRAM-SHA-256")
    if tls:
        query.append(f"tls=true&tlsCAFile={quote(str(secrets / 'ca.pem'), safe='')}")
    return urlunsplit((parts.scheme, host, parts.path or "/", "&".join(query), ""))


def _account(secrets: Path, user: str) -> tuple[str, str, str]:
    """Name, password and database of a user of `users.json`, or of SYSTEM."""
    if user == SYSTEM:
        return "__system", "".join((secrets / "keyfile").read_text(encoding="ascii").split()), "local"
    account = json.loads((secrets / "users.json").read_text(encoding="utf-8"))[user]
    return account["user"], account["password"], "admin"


def on_loopback(uri: str, port: int) -> str:
    """The URI, with its login and certificate authority, for a port of this machine that leads to one of its servers.

    The server's certificate does not name loopback, so the host name is not verified.
    """
    parts = urlsplit(uri)
    login, at, _ = parts.netloc.rpartition("@")
    query = [item for item in parts.query.split("&") if item and not item.startswith("replicaSet=")]
    if "tls=true" in query:
        query.append("tlsAllowInvalidHostnames=true")
    return urlunsplit((parts.scheme, f"{login}{at}127.0.0.1:{port}", parts.path or "/", "&".join(query), ""))


def read_job(data: Any) -> Job:
    """A job from its JSON form, with the logins of the run. Raises JobError naming what is missing or wrong."""
    try:
        job = codec.decode(Job, data)
        point, secrets = job.point, Path(job.secrets) if job.secrets else None
        access = {name: point.security.get(name, False) for name in ("authorization", "tls")}

        def login(address: str, user: str = SYSTEM) -> str:
            return with_login(f"mongodb://{address}", secrets, user=user, **access)

        processes = [replace(p, uri=login(f"{p.endpoint}/")) for p in point.processes]
        sets = [replace(s, uri=login(f"{s.addresses}/?replicaSet={s.name}")) for s in point.replica_sets]
        point = replace(point, processes=tuple(processes), replica_sets=tuple(sets))
        entry = login(job.connection_string.removeprefix("mongodb://"), "workload")
        return replace(job, connection_string=entry, point=point)
    except OSError as error:
        raise JobError(f"the secrets of the run cannot be read: {error}") from None
    except KeyError as missing:
        raise JobError(f"users.json in the secrets of the run has no {missing.args[0]!r}") from None
    except ValueError as wrong:
        raise JobError(f"the job does not have the form of docs/contracts.md: {wrong}") from None
