"""From a connection string without secrets to one with them, in memory only."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

SYSTEM = "system"


def with_access(uri: str, secrets: Path | None, *, authorization: bool, tls: bool, user: str = "workload") -> str:
    """The URI with user, password and certificate authority of the run. OSError, ValueError when they are not there.

    Whoever gets it must not write it where others read: not on a command line, not into a log or result.
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


def on_loopback(uri: str, port: int) -> str:
    """The URI with its login and certificate authority for a port of this machine that leads to one of its servers.

    The server's certificate has its own names; that of loopback is not asked for.
    """
    parts = urlsplit(uri)
    login, at, _ = parts.netloc.rpartition("@")
    query = [item for item in parts.query.split("&") if item and not item.startswith("replicaSet=")]
    if "tls=true" in query:
        query.append("tlsAllowInvalidHostnames=true")
    return urlunsplit((parts.scheme, f"{login}{at}127.0.0.1:{port}", parts.path or "/", "&".join(query), ""))


def _account(secrets: Path, user: str) -> tuple[str, str, str]:
    """Name, password and database of a user: one of `users.json`, or the servers' own, whose password is the key."""
    if user == SYSTEM:
        return "__system", "".join((secrets / "keyfile").read_text(encoding="ascii").split()), "local"
    account = json.loads((secrets / "users.json").read_text(encoding="utf-8"))[user]
    return account["user"], account["password"], "admin"
