"""A run as one file: a gzipped tar whose first member says what must be in it.

    manifest.json   {"bundle": 1, "microshard": "0.1.0", "run_id", "experiment", "files": {path: {"bytes", "sha256"}}}
    run.json, experiment.yml, experiment.lock.yml, pipelines/, lock.json, plan.json, journal.jsonl,
    results/, telemetry/, report/

Everything that is text has gone through `redact`. Logs, variables and the ledger stay at home: they are made of paths
and addresses. Two exports of a run are the same, byte by byte.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import secrets
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from microshard import __version__
from microshard.errors import MicroshardError
from microshard.records.redaction import Redactor
from microshard.records.run_folder import MARKER, RunFolder

FORMAT = 1
MANIFEST = "manifest.json"
SUFFIX = ".microshard.tgz"
_FILES = (MARKER, "experiment.yml", "experiment.lock.yml", "lock.json", "plan.json", "journal.jsonl")
_FOLDERS = ("pipelines", "results", "telemetry", "report")
_BINARY = {".png", ".gz", ".hdr", ".bson"}
_JSON = {".json", ".jsonl"}
_COMPRESSION = 3  # telemetry shrinks to a tenth; more effort costs three times the time for another tenth


class BundleError(MicroshardError):
    """A bundle that cannot be written or must not be read."""


def export(
    run: RunFolder, target: Path, redact: Redactor, progress: Callable[[int, int], None] = lambda *_: None
) -> int:
    """Write the bundle of a run; returns its size in bytes. `progress` is told (bytes read, bytes in all).

    Raises BundleError, and OSError when it cannot be written. A crash leaves no half bundle.
    """
    paths = list(_members(run.path))
    total = sum(path.stat().st_size for path in paths)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    spool = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        files: dict[str, dict[str, object]] = {}
        with (
            spool.open("wb") as file,
            gzip.GzipFile("", "wb", compresslevel=_COMPRESSION, fileobj=file, mtime=0) as packed,
        ):
            done = 0
            for path in paths:
                name = redact(path.relative_to(run.path).as_posix())
                content = _content(path, redact)
                files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                _add(packed, name, content)
                done += path.stat().st_size
                progress(done, total)
            packed.write(bytes(2 * tarfile.BLOCKSIZE))
        marker = run.marker()
        manifest = {
            "bundle": FORMAT,
            "microshard": __version__,
            "run_id": redact(run.run_id),
            "experiment": str(marker.get("experiment", "")),
            "files": files,
        }
        # The manifest comes first, and is known last: gzip members may stand one after the other.
        with draft.open("wb") as file:
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                _add(packed, MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
            with spool.open("rb") as rest:
                while block := rest.read(1 << 20):
                    file.write(block)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
        spool.unlink(missing_ok=True)
    return target.stat().st_size


def _members(run: Path) -> Iterator[Path]:
    for name in _FILES:
        if (run / name).is_file():
            yield run / name
    for folder in _FOLDERS:
        yield from sorted(p for p in (run / folder).rglob("*") if p.is_file() and not p.name.startswith("."))


def _content(path: Path, redact: Redactor) -> bytes:
    raw = path.read_bytes()
    if path.suffix in _BINARY:
        return raw
    try:
        text = raw.decode("utf-8")
        return (redact.json(text) if path.suffix in _JSON else redact(text)).encode("utf-8")
    except UnicodeDecodeError:
        raise BundleError(
            f"{path}: neither text nor a kind of file a bundle may hold; remove it and try again"
        ) from None


def _add(packed: gzip.GzipFile, name: str, content: bytes) -> None:
    """One member, with nothing in its header that differs between machines."""
    header = tarfile.TarInfo(name)
    header.size, header.mode, header.mtime = len(content), 0o644, 0
    packed.write(header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
    body = io.BytesIO(content)
    packed.write(body.getbuffer())
    packed.write(bytes(-len(content) % tarfile.BLOCKSIZE))
