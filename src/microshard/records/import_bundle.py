"""Reads a bundle of someone else's: nothing is believed that has not been checked, nothing leaves its folder."""

from __future__ import annotations

import gzip
import hashlib
import json
import secrets
import shutil
import tarfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from microshard.errors import EXIT_DEFINITION
from microshard.records.bundle import FORMAT, MANIFEST, BundleError
from microshard.records.run_folder import MARKER, RunFolder, write_json

_MOST_BYTES = 8 << 30
_MOST_FILES = 200_000
_MANIFEST_BYTES = 64 << 20
_NAME = r"[A-Za-z0-9._-]+"


class BadBundleError(BundleError):
    """The file is no bundle, a damaged one, one that was altered, or one of a newer version."""

    exit_code = EXIT_DEFINITION


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a bundle says is in it."""

    version: str
    run_id: str
    experiment: str
    files: dict[str, tuple[int, str]]  # path → bytes, SHA-256

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(size for size, _ in self.files.values())


def unpack(bundle: Path, runs: Path) -> RunFolder:
    """Verify a bundle and make it a run below `runs`. Raises BadBundleError and leaves nothing behind then."""
    digest = hashlib.sha256()
    with bundle.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    runs.mkdir(parents=True, exist_ok=True)
    draft = runs / f".import-{secrets.token_hex(4)}"
    try:
        with gzip.open(bundle) as stream:
            try:
                manifest = _extract(stream, draft, bundle)
            except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError) as error:
                raise BadBundleError(f"{bundle}: cut or damaged ({error}); ask for it again") from None
        target = runs / manifest.run_id
        if target.exists():
            raise BadBundleError(f"{target}: this run is here already; `microshard show {manifest.run_id}`")
        marker = json.loads((draft / MARKER).read_text(encoding="utf-8"))
        if not isinstance(marker, dict):
            raise BadBundleError(f"{bundle}: {MARKER} in it is not the marker of a run")
        marker |= {
            "run_id": manifest.run_id,
            "imported": {"file": bundle.name, "sha256": digest.hexdigest(), "at": time.time()},
        }
        write_json(draft / MARKER, marker)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return RunFolder.open(target)


def _extract(stream: gzip.GzipFile, draft: Path, bundle: Path) -> Manifest:
    manifest: Manifest | None = None
    seen: set[str] = set()
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if manifest is None:
                manifest = _manifest(archive, member, bundle)
                draft.mkdir(mode=0o755)
                continue
            _check(member, manifest, seen, bundle)
            seen.add(member.name)
            source = archive.extractfile(member)
            assert source is not None  # noqa: S101 - _check lets only plain files through
            path = draft.joinpath(*PurePosixPath(member.name).parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            if _copy(source, path) != manifest.files[member.name]:
                raise BadBundleError(f"{bundle}: {member.name} is not what the manifest says; the bundle was altered")
    if manifest is None:
        raise BadBundleError(f"{bundle}: empty")
    missing = sorted(set(manifest.files) - seen)
    if missing:
        raise BadBundleError(f"{bundle}: cut: {missing[0]} and {len(missing) - 1} other files are not in it")
    if MARKER not in seen:
        raise BadBundleError(f"{bundle}: {MARKER} is not in it, so it is not a run")
    return manifest


def _manifest(archive: tarfile.TarFile, member: tarfile.TarInfo, bundle: Path) -> Manifest:
    wrong = BadBundleError(f"{bundle}: not a bundle of microshard (it does not begin with {MANIFEST})")
    if member.name != MANIFEST or not member.isreg() or member.size > _MANIFEST_BYTES:
        raise wrong
    source = archive.extractfile(member)
    try:
        content: Any = json.loads(source.read()) if source else None
        version = content["bundle"]
    except (ValueError, TypeError, KeyError):
        raise wrong from None
    if not isinstance(version, int) or version > FORMAT:
        raise BadBundleError(
            f"{bundle}: written by microshard {content.get('microshard')} as bundle format {version}, "
            f"this one reads up to {FORMAT}; take a newer microshard"
        )
    try:
        files = {str(name): (int(f["bytes"]), str(f["sha256"])) for name, f in content["files"].items()}
        manifest = Manifest(str(content["microshard"]), str(content["run_id"]), str(content["experiment"]), files)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise wrong from None
    if not _plain(manifest.run_id) or len(PurePosixPath(manifest.run_id).parts) != 1:
        raise BadBundleError(f"{bundle}: the name of the run, {manifest.run_id!r}, is not a folder's name")
    if len(files) > _MOST_FILES or manifest.bytes > _MOST_BYTES or min(s for s, _ in files.values()) < 0:
        raise BadBundleError(f"{bundle}: {len(files)} files of {manifest.bytes:,} bytes are more than a run has")
    return manifest


def _check(member: tarfile.TarInfo, manifest: Manifest, seen: set[str], bundle: Path) -> None:
    if not _plain(member.name):
        raise BadBundleError(f"{bundle}: {member.name!r} would be written outside of the run's folder")
    if not member.isreg():
        raise BadBundleError(f"{bundle}: {member.name} is a link or a device, not a file")
    if member.name not in manifest.files or member.name in seen:
        raise BadBundleError(f"{bundle}: {member.name} is not in the manifest; the bundle was altered")
    if member.size != manifest.files[member.name][0]:
        raise BadBundleError(f"{bundle}: {member.name} is not what the manifest says; the bundle was altered")


def _plain(name: str) -> bool:
    """Whether a path stays in its folder, on every system, and is no hidden file."""
    path = PurePosixPath(name)
    return (
        bool(name)
        and not path.is_absolute()
        and "\\" not in name
        and name.isprintable()
        and ":" not in name
        and str(path) == name
        and not any(part.startswith(".") for part in path.parts)
    )


def _copy(source: IO[bytes], path: Path) -> tuple[int, str]:
    """Write a file that must not be there yet; its size and SHA-256."""
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        while block := source.read(1 << 20):
            digest.update(block)
            size += len(block)
            file.write(block)
    return size, digest.hexdigest()
