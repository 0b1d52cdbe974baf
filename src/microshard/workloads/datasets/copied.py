"""A copy of a user's collection, as mongodump writes it: of a deployment, of its archive or file, of JSON lines.

The deployment is only read: `find` or `$sample`, `listIndexes` and counting, for which the role `read` is enough.
"""

import gzip
import hashlib
import hmac
import json
import lzma
import os
import random
import secrets
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bson
import numpy as np
from bson import json_util
from bson.raw_bson import RawBSONDocument
from pymongo import ReadPreference
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    ExecutionTimeout,
    InvalidURI,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
)  # fmt: skip
from pymongo.uri_parser import parse_uri

from microshard.errors import EXIT_PLACE, MicroshardError
from microshard.model.datasets import DataError, Dump
from microshard.workloads.connections import Client, connect
from microshard.workloads.datasets.files import DumpDocuments, Read, whole_document

MAGIC, TERMINATOR, GZIP = struct.pack("<I", 0x8199E26D), b"\xff\xff\xff\xff", b"\x1f\x8b"
APPLICATION = "microshard copy"  # as logs name this client; what it reads is no query of the user's
READ_MS = 600_000  # that the server may spend on one read
_RANDOM_CURSOR = 0.05  # below this share `$sample` takes documents at random places; above it sorts all of them
_BLOCK = 1000


class SourceError(MicroshardError):
    """The user's data or queries cannot be read; says which, and what to do."""

    exit_code = EXIT_PLACE


@dataclass(frozen=True, slots=True)
class Hashing:
    """Fields whose values are replaced by keyed hashes: equal ones stay equal, their order is lost.

    The key is drawn for each copy and kept nowhere. Numbers become whole numbers, everything else text.
    """

    fields: frozenset[str] = frozenset()  # dotted
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def document(self, value: Any, at: str = "") -> Any:
        """A document, or what it has at this dotted field; elements of arrays have the field of the array."""
        if isinstance(value, list):
            return [self.document(item, at) for item in value]
        if at in self.fields:
            return self.leaves(value)
        if isinstance(value, Mapping):
            return {name: self.document(item, f"{at}.{name}" if at else name) for name, item in value.items()}
        return value

    def query(self, value: Any) -> Any:
        """A filter or pipeline: whatever is compared with one of the fields is hashed as the field is."""
        if isinstance(value, list):
            return [self.query(item) for item in value]
        if isinstance(value, Mapping):
            return {k: self.leaves(v) if k in self.fields else self.query(v) for k, v in value.items()}
        return value

    def leaves(self, value: Any) -> Any:
        """A value with all scalars in it hashed; null, true and false stay."""
        if isinstance(value, Mapping):
            return {name: self.leaves(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.leaves(item) for item in value]
        if value is None or isinstance(value, bool):
            return value
        number = isinstance(value, int | float)
        text = repr(float(value)) if number else f"{type(value).__name__} {value}"
        digest = hmac.digest(self.key, text.encode(), "sha256")
        return int.from_bytes(digest[:6], "big") if number else digest[:12].hex()


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy: its files and what they hold."""

    file: Path  # .bson; the indexes are in .metadata.json beside it, as mongodump writes them
    namespace: str
    documents: int
    of: int  # documents of the source

    def read(self) -> Iterator[dict[str, Any]]:
        """The documents."""
        with self.file.open("rb") as file:
            yield from bson.decode_file_iter(file)

    @property
    def indexes(self) -> int:
        """Secondary indexes that a load can make."""
        return len(Dump(str(self.file)).secondary_indexes())


def copy_data(source: str, folder: Path, *, namespace: str | None, most: int, hashing: Hashing, seed: int) -> Copied:
    """Copy at most so many documents of a collection into `folder`, drawn by `seed`. Raises SourceError.

    `source`: mongodb://…/database.collection, or a file: .archive, .archive.gz, .bson, or extended JSON, one document
    a line. `namespace`: which collection of an archive, and what that of another file is called.
    """
    try:
        if source.startswith(("mongodb://", "mongodb+srv://")):
            namespace, indexes, total, found = _of_deployment(source, namespace, most, seed)
        else:
            namespace, indexes, all_of_it = _of_file(Path(source).expanduser(), namespace)
            total, found = reservoir(all_of_it, most, seed)
    except DataError as error:
        raise SourceError(str(error)) from None
    if not found:
        raise SourceError(f"{namespace} of {without_login(source)} holds no document")
    if hashing.fields:
        found = [bson.encode(hashing.document(bson.decode(each))) for each in found]
    name = f"{namespace}-{hashlib.sha256(b''.join(found)).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.bson"
    _write(file, found)
    _write(file.with_suffix(".metadata.json"), [json.dumps({"indexes": indexes}).encode()])
    return Copied(file.absolute(), namespace, len(found), total)


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file only its owner can read, whole or not at all."""
    made = path.with_suffix(f".{os.getpid()}")
    with open(made, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.writelines(pieces)
    made.rename(path)


def reservoir(documents: Iterable[bytes], most: int, seed: int) -> tuple[int, list[bytes]]:
    """How many documents there are, and at most so many of them, each as likely as any other, in their order."""
    rng, total = random.Random(seed), 0  # noqa: S311 - no secret
    kept: list[tuple[int, bytes]] = []
    for total, document in enumerate(documents, start=1):
        if len(kept) < most:
            kept.append((total, document))
        elif (place := rng.randrange(total)) < most:
            kept[place] = (total, document)
    return total, [document for _, document in sorted(kept)]


def without_login(source: str) -> str:
    """The source as it may be shown."""
    scheme, found, rest = source.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}" if found else source


# --- files


def _of_file(path: Path, namespace: str | None) -> tuple[str, list[Any], Iterator[bytes]]:
    if not path.is_file():
        raise SourceError(f"{path} does not exist or is not a file")
    with path.open("rb") as file:
        begin = file.read(4)
    if begin == MAGIC or begin.startswith(GZIP):
        return _of_archive(path, namespace, zipped=begin.startswith(GZIP))
    dataset = DumpDocuments(Dump(str(path)))
    indexes = [{"key": key} for key in dataset.info.secondary_indexes()]
    stem = path.stem if "." in path.stem else f"{path.absolute().parent.name}.{path.stem}"  # mongodump: db/collection
    return namespace or stem, indexes, _blocks(dataset)


def _blocks(dataset: DumpDocuments) -> Iterator[bytes]:
    total = dataset.count()
    for first in range(0, total, _BLOCK):
        ids = np.arange(first, min(first + _BLOCK, total), dtype=np.int64)
        encoded, edges = dataset.encode(first, ids, 0)
        yield from (encoded[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _of_archive(path: Path, namespace: str | None, *, zipped: bool) -> tuple[str, list[Any], Iterator[bytes]]:
    with _opened(path, zipped=zipped) as read:
        indexes = _prelude(read, path)
    known = sorted(name for name in indexes if not name.partition(".")[2].startswith("system."))
    if namespace is None and len(known) == 1:
        namespace = known[0]
    if namespace is None or namespace not in indexes:
        raise SourceError(f"{path} has {', '.join(known) or 'no collection'}: --namespace says which")
    return namespace, indexes[namespace], _archived(path, namespace, zipped=zipped)


@contextmanager
def _opened(path: Path, *, zipped: bool) -> Iterator[Read]:
    """The file, unpacked. Raises DataError when it is not readable, or damaged."""
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            yield file.read
    except (OSError, EOFError, zlib.error) as error:  # gzip.BadGzipFile is an OSError
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _prelude(read: Read, path: Path) -> dict[str, list[Any]]:
    """The indexes of each collection of an archive; what follows in the file are the documents.

    https://github.com/mongodb/mongo-tools/blob/master/common/archive/README.md describes the format.
    """
    if read(4) != MAGIC:
        raise DataError(f"{path} is no archive of mongodump: it does not begin with its mark")
    version = bson.decode(whole_document(read(4), read, f"{path}: its header")).get("version")
    if version != "0.1":
        raise DataError(f"{path} is an archive of version {version}, and 0.1 is known")
    found: dict[str, list[Any]] = {}
    while (head := read(4)) != TERMINATOR:
        listed = bson.decode(whole_document(head, read, f"{path}: entry {len(found) + 1} of its list"))
        try:
            indexes = json_util.loads(listed["metadata"]).get("indexes", []) if listed.get("metadata") else []
            found[f"{listed['db']}.{listed['collection']}"] = [{"key": dict(index["key"])} for index in indexes]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: entry {len(found) + 1} of its list: {error!r}") from None
    return found


def _archived(path: Path, namespace: str, *, zipped: bool) -> Iterator[bytes]:
    """The documents of a collection; those of all are interleaved in the file."""
    with _opened(path, zipped=zipped) as read:
        _prelude(read, path)
        number, ended, checksum, expected = 0, False, Crc64(), 0
        while head := read(4):
            part = bson.decode(whole_document(head, read, f"{path}: after {number:,} documents of {namespace}"))
            mine = f"{part.get('db')}.{part.get('collection')}" == namespace
            if mine and part.get("EOF"):
                ended, expected = True, int(part.get("CRC", 0))
            while (head := read(4)) != TERMINATOR:
                document = whole_document(head, read, f"{path}: after {number:,} documents of {namespace}")
                if mine:
                    number += 1
                    checksum.update(document)
                    yield document
        if not ended:
            raise DataError(f"{path} ends after {number:,} documents of {namespace}, before their end: it is cut off")
        if not checksum.matches(expected):
            raise DataError(f"{path} is damaged: the {number:,} documents of {namespace} do not have its checksum")


# --- checksums

_XZ_PIECE = 65_536  # bytes of an LZMA2 chunk at most
_XZ_FIRST, _XZ_NEXT, _XZ_END = b"\x01", b"\x02", b"\x00"  # chunks without compression: the first resets the dictionary
_XZ_FLAGS = b"\x00\x04"  # the check is CRC-64
_XZ_BLOCK = (
    b"\x02\x00\x21\x01\x00\x00\x00\x00"  # 12 bytes with its own check; one filter: LZMA2 with 4 KiB of dictionary
)


class Crc64:
    """The checksum of an archive's collection, CRC-64/XZ, of documents that come one after the other.

    Python has no CRC-64, and one written in it takes a minute for 300 MB. But an xz block may hold data as they are, in
    pieces of 64 KiB, followed by this checksum, and the decoder of `lzma` compares it
    (tukaani.org/xz/xz-file-format.txt).
    """

    def __init__(self) -> None:
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        self._decoder.decompress(b"\xfd7zXZ\x00" + _with_crc32(_XZ_FLAGS) + _with_crc32(_XZ_BLOCK))
        self._waiting = bytearray()
        self._size = 0  # of what the block has so far
        self._kind = _XZ_FIRST

    def update(self, part: bytes) -> None:
        """Take the next bytes."""
        self._waiting += part
        while len(self._waiting) >= _XZ_PIECE:
            self._chunk(bytes(self._waiting[:_XZ_PIECE]))
            del self._waiting[:_XZ_PIECE]

    def matches(self, expected: int) -> bool:
        """Whether all bytes together have this checksum, signed or not. Nothing can be added afterwards."""
        if self._waiting:
            self._chunk(bytes(self._waiting))
        padding = b"\0" * (-(len(_XZ_BLOCK) + 4 + self._size + len(_XZ_END)) % 4)
        try:
            self._decoder.decompress(_XZ_END + padding + struct.pack("<Q", expected % 2**64))
        except lzma.LZMAError:
            return False
        return True

    def _chunk(self, data: bytes) -> None:
        head = self._kind + struct.pack(">H", len(data) - 1)
        self._decoder.decompress(head + data)
        self._size += len(head) + len(data)
        self._kind = _XZ_NEXT


def _with_crc32(data: bytes) -> bytes:
    return data + struct.pack("<I", zlib.crc32(data))


# --- deployments


def _of_deployment(uri: str, namespace: str | None, most: int, seed: int) -> tuple[str, list[Any], int, list[bytes]]:
    with reading(uri) as (client, named):
        namespace = namespace or named
        if not namespace:
            raise SourceError(f"{without_login(uri)} names no collection: mongodb://HOST/DATABASE.COLLECTION")
        database, _, name = namespace.partition(".")
        options: bson.CodecOptions[Any] = bson.CodecOptions(document_class=RawBSONDocument)
        collection: Any = client[database].get_collection(name, options)
        indexes = [{"key": dict(index["key"])} for index in client[database][name].list_indexes()]
        total = collection.estimated_document_count(maxTimeMS=READ_MS)
        if most < total * _RANDOM_CURSOR:
            drawn = collection.aggregate([{"$sample": {"size": most}}], maxTimeMS=READ_MS)
            # The random cursor may return a document twice.
            found = list({bytes(bson.encode({"": each["_id"]})): each.raw for each in drawn}.values())
        else:
            every = (each.raw for each in collection.find({}, max_time_ms=READ_MS))
            total, found = reservoir(every, most, seed)
    return namespace, indexes, total, found


@contextmanager
def reading(uri: str) -> Iterator[tuple[Client, str]]:
    """A client that reads, from secondaries where there are some, and the `database.collection` of its URI.

    What the server or the network refuses becomes a SourceError in words.
    """
    shown = without_login(uri)
    try:
        parsed = parse_uri(uri)
        with connect(uri, appname=APPLICATION, read_preference=ReadPreference.SECONDARY_PREFERRED) as client:
            yield client, ".".join(part for part in (parsed["database"], parsed["collection"]) if part)
    except (InvalidURI, ConfigurationError, ValueError) as error:
        raise SourceError(f"{shown}: not a connection string: {error}") from None
    except (ExecutionTimeout, NetworkTimeout) as error:
        raise SourceError(f"{shown}: a read timed out: {_words(error)}") from None
    except OperationFailure as error:
        raise SourceError(f"{shown}: {_refusal(error, parse_uri(uri))}") from None
    except AutoReconnect as error:  # no server within the time included
        raise SourceError(f"{shown}: no server answers: {_words(error)}") from None
    except PyMongoError as error:
        raise SourceError(f"{shown}: {_words(error)}") from None


def _refusal(error: OperationFailure, parsed: Mapping[str, Any]) -> str:
    if error.code == 18:
        source = parsed["options"].get("authSource") or parsed["database"] or "admin"
        return f"the login was refused; the user was looked for in the database {source} (authSource in the URI)"
    if error.code == 13:
        return f"the user may not do this, the role read is needed: {_words(error)}"
    return _words(error)


def _words(error: PyMongoError) -> str:
    return str(error).partition(", full error")[0].partition(", Timeout:")[0]
