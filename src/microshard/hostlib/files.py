"""Files and commands: read, compared, written, run."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from typing import Any

from .errors import HostError

# A login without a session may lack these.
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"


def run_command(*command: str, accept: tuple[int, ...] = (0,), package: str = "") -> str:
    """What a command printed. HostError when it ends with another code than accepted, or is not installed."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "PATH": _PATH, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        hint = f"; install {package} on this host" if package else ""
        raise HostError(f"{command[0]} is not installed{hint}") from None
    if done.returncode not in accept:
        output = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise HostError(f"{' '.join(command)} ended with exit code {done.returncode}: {output}")
    return done.stdout.decode(errors="replace")


def read_value(path: str) -> str:
    """The text of a file of the kernel without blanks around it; "" when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_text(path: str) -> str:
    """The text of a file; "" when it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def sha256(path: str) -> str:
    """The SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def write_atomically(path: str, text: str, mode: int = 0o644) -> None:
    """Write `text` so that a reader sees the old or the new file, never half of one."""
    temporary = f"{path}.{os.getpid()}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.replace(temporary, path)


def put_file(path: str, text: str, *, check: bool) -> dict[str, str] | None:
    """Make the file have this text, or with "" remove it; the difference for Ansible, None when there is none."""
    before = read_text(path)
    if before == text:
        return None
    if not check and text:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomically(path, text)
    elif not check:
        os.unlink(path)
    return {"before_header": path, "after_header": path, "before": before, "after": text}


def load_state(folder: str, name: str) -> dict[str, Any]:
    """What was saved of a host before it was changed."""
    return dict(json.loads(read_text(os.path.join(folder, name)) or "{}"))


def save_state(folder: str, name: str, values: dict[str, Any]) -> None:
    """Save what the host was before it is changed; the file goes when there is nothing to save."""
    put_file(os.path.join(folder, name), json.dumps(values, indent=1) + "\n" if values else "", check=False)
