"""Files and commands: read, compared, written, run; and nothing outside of a run's folder is ever touched."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import subprocess

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


# What belongs to a run

VOLUMES = "/srv/microshard"  # where the role host_storage mounts all volumes but the data volume


def require_run_folder(folder: str) -> str:
    """The run's folder with links resolved; HostError unless its run.json carries the marker of microshard."""
    marker = os.path.join(folder, "run.json")
    try:
        with open(marker, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError) as error:
        raise HostError(
            f"{folder} is not a folder of a run: {marker} cannot be read ({error}). Nothing was touched"
        ) from None
    if not isinstance(content, dict) or not content.get("microshard") or not content.get("run_id"):
        raise HostError(
            f"{folder} is not a folder of a run: {marker} lacks 'microshard' or 'run_id'. Nothing was touched"
        )
    return os.path.realpath(folder)


def make_run_folder(folder: str) -> None:
    """Make a folder that does not exist, or is empty, one of a run, for processes that are started without a run."""
    if not os.path.isdir(folder) or not os.listdir(folder):
        os.makedirs(os.path.join(folder, "tmp"), exist_ok=True)
        marker = {"microshard": "without a run", "run_id": os.path.basename(folder.rstrip("/"))}
        write_atomically(os.path.join(folder, "run.json"), json.dumps(marker) + "\n")


def require_below(run_folder: str, path: str) -> str:
    """`path` with links resolved; HostError unless it lies strictly below the run's (resolved) folder."""
    real = os.path.realpath(path)
    if os.path.commonpath([run_folder, real]) != run_folder or real == run_folder:
        raise HostError(f"{path} is not below the run's folder {run_folder}. Nothing was touched")
    return real


def require_own(run_folder: str, path: str) -> str:
    """As require_below, or in the run's folder on a volume: VOLUMES/NAME/RUN/…, for a run's name has a random part."""
    real = os.path.realpath(path)
    parts = os.path.relpath(real, VOLUMES).split("/")
    if len(parts) > 2 and parts[0] != ".." and parts[1] == os.path.basename(run_folder):
        return real
    return require_below(run_folder, path)


def on_volumes(run_folder: str) -> list[str]:
    """The run's folders on the volumes of this host that are mounted."""
    found = glob.glob(os.path.join(glob.escape(VOLUMES), "*", glob.escape(os.path.basename(run_folder))))
    return sorted(path for path in found if os.path.ismount(os.path.dirname(path)))
