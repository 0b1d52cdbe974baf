"""SSH keys of a run, made here: one to log in with, one the hosts prove themselves with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


@dataclass(frozen=True, slots=True)
class RunKeys:
    """Where the keys lie, and their public halves in OpenSSH's form."""

    private_file: Path  # 0600; for ssh -i
    public: str
    host_private: str  # handed to the hosts through user data
    host_public: str
    known_hosts: Path


def ensure_keys(folder: Path) -> RunKeys:
    """The run's keys, made when they are not there yet. The folder gets 0700, private keys 0600. Raises OSError.

    All hosts of a run share one host key: hosts of a group share one RunInstances and so one user data. It is known
    before the first connection, lives in this folder and on these hosts only, and ends with them.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _, public = _ensure(folder / "id_ed25519", "microshard")
    host_private, host_public = _ensure(folder / "host_ed25519", "microshard-host")
    return RunKeys(folder / "id_ed25519", public, host_private, host_public, folder / "known_hosts")


def write_known_hosts(keys: RunKeys, addresses: list[str]) -> None:
    """Exactly these addresses, with the run's host key: ssh runs with StrictHostKeyChecking=yes."""
    lines = "".join(f"{address} {keys.host_public}\n" for address in sorted(set(addresses)))
    _write(keys.known_hosts, lines)


def _ensure(path: Path, comment: str) -> tuple[str, str]:
    try:
        return path.read_text(encoding="ascii"), path.with_suffix(".pub").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode("ascii")
    public = f"{key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode('ascii')} {comment}"
    # The public half first: a private key that is there has its public half beside it, whenever the process ends.
    _write(path.with_suffix(".pub"), public + "\n")
    _write(path, private)
    return private, public


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    temporary.replace(path)
