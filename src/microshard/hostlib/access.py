"""How the servers of a run are reached: in the open, or with its certificate and key file."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Any

from .refused import Refused
from .run_folder import require_run_folder


@dataclass(frozen=True)
class Access:
    """What a client of the run's servers needs."""

    ca_file: str = ""  # "" speaks without TLS
    key: str = ""  # of the key file, the password of the servers' own user; "" does not authenticate

    def __repr__(self) -> str:
        """Without the key: a message or a trace must not carry it."""
        return f"Access(tls={bool(self.ca_file)}, authenticates={bool(self.key)})"

    def tls(self) -> ssl.SSLContext | None:
        """For a socket; None without TLS."""
        return ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None


OPEN = Access()


def of_run(run_folder: str, security: dict[str, Any] | None) -> Access:
    """The access `topology.security` asks for, with the files in `secrets/` of the run. Refused without them."""
    wanted = security or {}
    if not wanted.get("authorization") and not wanted.get("tls"):
        return OPEN
    folder = os.path.join(require_run_folder(run_folder), "secrets")
    ca_file = os.path.join(folder, "ca.pem") if wanted.get("tls") else ""
    try:
        key = ""
        if wanted.get("authorization"):
            with open(os.path.join(folder, "keyfile"), encoding="ascii") as file:
                key = "".join(file.read().split())
        if ca_file:
            with open(ca_file, encoding="ascii"):
                pass
    except OSError as error:
        raise Refused(f"the secrets of the run cannot be read: {error}") from None
    return Access(ca_file, key)
