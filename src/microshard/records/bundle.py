"""A run as one file: a gzipped tar whose first member lists all others.

    manifest.json   BundleManifest (docs/contracts.md)
    run.json, experiment.yml, experiment.lock.yml, pipelines/, lock.json, plan.json, journal.jsonl,
    results/, telemetry/, report/

Everything that is text is redacted. Logs, variables and the ledger are left out: they are full of paths and addresses.
Two exports of a run are the same, byte by byte. Import trusts nothing that it has not checked, and writes
only below the run's folder.
"""

import gzip
import hashlib
import io
import json
import os
import secrets
import shutil
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from microshard import __version__
from microshard.errors import EXIT_DEFINITION, MicroshardError, RunFolderError
from microshard.experiment import yaml_reader
from microshard.experiment.errors import DefinitionError
from microshard.model.plan import Plan
from microshard.model.result import StepResult
from microshard.model.run_records import BundledFile, BundleManifest, ImportOrigin, RunLock, RunMarker
from microshard.records import codec
from microshard.records.redaction import Redactor
from microshard.records.run_folder import LOCK, MARKER, PLAN, RunFolder, write_json

FORMAT = 1
MANIFEST = "manifest.json"
SUFFIX = ".microshard.tgz"
_FILES = (MARKER, "experiment.yml", "experiment.lock.yml", "lock.json", "plan.json", "journal.jsonl")
_FOLDERS = ("pipelines", "results", "telemetry", "report")
_BINARY = {".png", ".gz", ".hdr", ".bson"}
_JSON = {".json", ".jsonl"}
_COMPRESSION = 3  # telemetry shrinks to a tenth; more effort costs three times the time for another tenth
_MOST_BYTES = 8 << 30
_MOST_FILES = 200_000
_MANIFEST_BYTES = 64 << 20


class BundleError(MicroshardError):
    """A bundle that cannot be written or must not be read."""


class BadBundleError(BundleError):
    """The file is not a bundle, is damaged or altered, or was written by a newer version."""

    exit_code = EXIT_DEFINITION


def export(
    run: RunFolder, target: Path, redact: Redactor, progress: Callable[[int, int], None] = lambda *_: None
) -> int:
    """Write the bundle of a run and return its size in bytes; `progress` is called with bytes read and bytes in all.

    Raises BundleError, and OSError when the file cannot be written. A crash leaves no half bundle.
    """
    paths = list(_exported_files(run.path))
    total = sum(path.stat().st_size for path in paths)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    spool = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        files: dict[str, BundledFile] = {}
        with (
            spool.open("wb") as file,
            gzip.GzipFile("", "wb", compresslevel=_COMPRESSION, fileobj=file, mtime=0) as packed,
        ):
            done = 0
            for path in paths:
                name = redact(path.relative_to(run.path).as_posix())
                content = _redacted(path, redact)
                files[name] = BundledFile(len(content), hashlib.sha256(content).hexdigest())
                _add(packed, name, content)
                done += path.stat().st_size
                progress(done, total)
            packed.write(bytes(2 * tarfile.BLOCKSIZE))
        manifest = BundleManifest(FORMAT, __version__, redact(run.run_id), run.marker().experiment, files)
        # The manifest comes first, and is known last: gzip members may stand one after the other.
        with draft.open("wb") as file:
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                _add(packed, MANIFEST, (json.dumps(codec.encode(manifest), indent=1) + "\n").encode())
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


def _exported_files(run: Path) -> Iterator[Path]:
    for name in _FILES:
        if (run / name).is_file():
            yield run / name
    for folder in _FOLDERS:
        yield from sorted(p for p in (run / folder).rglob("*") if p.is_file() and not p.name.startswith("."))


def _redacted(path: Path, redact: Redactor) -> bytes:
    raw = path.read_bytes()
    if path.suffix in _BINARY:
        return raw
    try:
        text = raw.decode("utf-8")
        return (redact.json(text) if path.suffix in _JSON else redact(text)).encode("utf-8")
    except UnicodeDecodeError:
        raise BundleError(
            f"{path}: neither text nor a file type that a bundle may contain; remove it and try again"
        ) from None


def _add(packed: gzip.GzipFile, name: str, content: bytes) -> None:
    """One member, with nothing in its header that differs between machines."""
    header = tarfile.TarInfo(name)
    header.size, header.mode, header.mtime = len(content), 0o644, 0
    packed.write(header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
    body = io.BytesIO(content)
    packed.write(body.getbuffer())
    packed.write(bytes(-len(content) % tarfile.BLOCKSIZE))


def unpack(bundle: Path, runs: Path) -> RunFolder:
    """Verify a bundle and unpack it as a run below `runs`. Raises BadBundleError, and leaves nothing behind then.

    The report of the bundle is not kept: a page may hold anything, and it is made anew from the results.
    """
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
                raise BadBundleError(f"{bundle}: truncated or damaged ({error}); get a new copy") from None
        target = runs / manifest.run_id
        if target.exists():
            raise BadBundleError(f"{target}: this run already exists; `microshard show {manifest.run_id}`")
        try:
            marker = codec.read_file(RunMarker, draft / MARKER)
        except codec.DamagedFileError as error:
            raise BadBundleError(f"{bundle}: {MARKER} in it is not the marker of a run ({error})") from None
        _check_records(draft, bundle)
        shutil.rmtree(draft / "report", ignore_errors=True)
        marker.run_id = manifest.run_id
        marker.imported = ImportOrigin(bundle.name, digest.hexdigest(), time.time())
        write_json(draft / MARKER, marker)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return RunFolder.open(target)


def _check_records(draft: Path, bundle: Path) -> None:
    """Read every file as its type; those a run need not have may be missing."""
    kinds = [(PLAN, Plan), (LOCK, RunLock)]
    kinds += [(str(path.relative_to(draft)), StepResult) for path in sorted(draft.glob("results/*/*.json"))]
    for name, kind in kinds:
        try:
            codec.read_file(kind, draft / name)
        except FileNotFoundError:
            continue
        except (codec.DamagedFileError, RunFolderError) as error:
            reason = str(error).replace(f"{draft}/", "")
            raise BadBundleError(f"{bundle}: {name} in it cannot be read: {reason}") from None
    for definition in draft.glob("experiment*.yml"):
        try:
            _, problems = yaml_reader.read(definition)
        except DefinitionError as error:
            problems = list(error.problems)
        if problems:
            reason = f"line {problems[0].line}: {problems[0].message}"
            raise BadBundleError(f"{bundle}: {definition.name} in it cannot be read: {reason}")


def _extract(stream: gzip.GzipFile, draft: Path, bundle: Path) -> BundleManifest:
    manifest: BundleManifest | None = None
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
                raise BadBundleError(f"{bundle}: {member.name} differs from the manifest; the bundle was altered")
    if manifest is None:
        raise BadBundleError(f"{bundle}: empty")
    missing = sorted(set(manifest.files) - seen)
    if missing:
        raise BadBundleError(f"{bundle}: truncated: {missing[0]} and {len(missing) - 1} other files are missing")
    if MARKER not in seen:
        raise BadBundleError(f"{bundle}: {MARKER} is missing, so it is not a run")
    return manifest


def _manifest(archive: tarfile.TarFile, member: tarfile.TarInfo, bundle: Path) -> BundleManifest:
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
            f"{bundle}: written by microshard {content.get('microshard')} in bundle format {version}; "
            f"this version reads formats up to {FORMAT}: install a newer microshard"
        )
    try:
        manifest = codec.decode(BundleManifest, content)
    except ValueError:
        raise wrong from None
    if not _plain(manifest.run_id) or len(PurePosixPath(manifest.run_id).parts) != 1:
        raise BadBundleError(f"{bundle}: the run id {manifest.run_id!r} is not a folder name")
    files = manifest.files
    smallest = min((file.bytes for file in files.values()), default=0)
    if len(files) > _MOST_FILES or manifest.bytes > _MOST_BYTES or smallest < 0:
        raise BadBundleError(f"{bundle}: {len(files)} files of {manifest.bytes:,} bytes are more than a run has")
    return manifest


def _check(member: tarfile.TarInfo, manifest: BundleManifest, seen: set[str], bundle: Path) -> None:
    if not _plain(member.name):
        raise BadBundleError(f"{bundle}: {member.name!r} would be written outside of the run's folder")
    if not member.isreg():
        raise BadBundleError(f"{bundle}: {member.name} is a link or a device, not a file")
    if member.name not in manifest.files or member.name in seen:
        raise BadBundleError(f"{bundle}: {member.name} is not in the manifest; the bundle was altered")
    if member.size != manifest.files[member.name].bytes:
        raise BadBundleError(f"{bundle}: {member.name} differs from the manifest; the bundle was altered")


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


def _copy(source: IO[bytes], path: Path) -> BundledFile:
    """Write a new file; returns its size and SHA-256."""
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        while block := source.read(1 << 20):
            digest.update(block)
            size += len(block)
            file.write(block)
    return BundledFile(size, digest.hexdigest())
