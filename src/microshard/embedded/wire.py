"""MongoDB's wire protocol as far as a router needs it: framing, OP_MSG, the legacy handshake."""

import asyncio
import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

OP_REPLY = 1
OP_QUERY = 2004
OP_COMPRESSED = 2012
OP_MSG = 2013

CHECKSUM_PRESENT = 1
MORE_TO_COME = 1 << 1
EXHAUST_ALLOWED = 1 << 16

HEADER_SIZE = 16
MAX_MESSAGE = 48_000_000  # bytes, MaxMessageSizeBytes of the server
# The limit announced to clients: the router adds some bytes (a longer name, a write concern) before the mongod counts.
MAX_CLIENT_MESSAGE = MAX_MESSAGE - 16 * 1024
MAX_CHECKED = 1 << 20  # bytes: a CRC-32C in Python takes 0.1 s per MiB, and loopback does not corrupt

HEADER = struct.Struct("<iiii")
_INT32 = struct.Struct("<i")
_request_ids = itertools.count(1)

# Documents inside a command stay raw, so that every BSON type reaches the next server as it came.
RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)
PLAIN: CodecOptions[dict[str, Any]] = CodecOptions(
    document_class=dict, datetime_conversion=DatetimeConversion.DATETIME_MS
)


class ProtocolError(Exception):
    """Bytes that are no message of the protocol; the server closes such a connection."""


class Message(NamedTuple):
    """One OP_MSG, taken apart: `body` is the BSON of section 0, `sequences` the kind-1 sections as they came."""

    request_id: int
    flags: int
    body: bytes
    sequences: bytes


def message_length(data: bytes) -> int:
    """The length a message announces in its first four bytes; ProtocolError when no server would accept it."""
    length: int = _INT32.unpack_from(data)[0]
    if not HEADER_SIZE <= length <= MAX_MESSAGE:
        raise ProtocolError(f"message length {length} is outside {HEADER_SIZE}..{MAX_MESSAGE} bytes")
    return length


class MessageProtocol(asyncio.Protocol):
    """Cuts the byte stream of one connection into messages. Nearly always one read is exactly one message."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._received = 0  # bytes in _chunks
        self._needed = 0  # bytes of the message being received; 0 until its length is known

    def data_received(self, data: bytes) -> None:
        """Hand a whole message on at once; keep parts."""
        if not self._received and len(data) >= HEADER_SIZE and _INT32.unpack_from(data)[0] == len(data):
            self.message_received(data)
        else:
            self._accumulate(data)

    def _accumulate(self, data: bytes) -> None:
        self._chunks.append(data)
        self._received += len(data)
        while self._received >= max(self._needed, 4):
            if not self._needed:
                if len(self._chunks[0]) < 4:
                    self._chunks = [b"".join(self._chunks)]
                try:
                    self._needed = message_length(self._chunks[0])
                except ProtocolError as error:
                    self._chunks, self._received = [], 0
                    self.protocol_failed(error)
                    return
                continue
            buffered = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            message, rest = buffered[: self._needed], buffered[self._needed :]
            self._chunks, self._received, self._needed = ([rest] if rest else []), len(rest), 0
            self.message_received(message)

    def message_received(self, message: bytes) -> None:
        """Take one whole message, header included."""
        raise NotImplementedError

    def protocol_failed(self, error: ProtocolError) -> None:
        """Give the connection up: what came is no message."""
        raise NotImplementedError


def opcode_of(message: bytes) -> int:
    """The operation code of a whole message."""
    code: int = _INT32.unpack_from(message, 12)[0]
    return code


def request_id_of(message: bytes) -> int:
    """The sender's number of a whole message."""
    number: int = _INT32.unpack_from(message, 4)[0]
    return number


def _checked_end(message: bytes, flags: int) -> int:
    """Where the sections of an OP_MSG end; its checksum, if it carries one, is verified and left out."""
    if not flags & CHECKSUM_PRESENT:
        return len(message)
    end = len(message) - 4
    if end <= MAX_CHECKED and crc32c(message[:end]) != int.from_bytes(message[end:], "little"):
        raise ProtocolError("checksum does not match the message")
    return end


def _sections(message: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Kind, start of the content and end of every section."""
    while at < end:
        kind = message[at]
        if kind not in (0, 1):
            raise ProtocolError(f"unknown section kind {kind}")
        if at + 5 > end:
            raise ProtocolError("section without a length")
        size: int = _INT32.unpack_from(message, at + 1)[0]
        if size < 5 or at + 1 + size > end:
            raise ProtocolError(f"section of {size} bytes does not fit its message")
        yield kind, at + 1, at + 1 + size
        at += 1 + size


def parse(message: bytes) -> Message:
    """Take an OP_MSG apart, whatever the order of its sections. ProtocolError for anything malformed."""
    if len(message) < HEADER_SIZE + 5 or opcode_of(message) != OP_MSG:
        raise ProtocolError("not an OP_MSG")
    flags: int = _INT32.unpack_from(message, HEADER_SIZE)[0]
    if flags & 0xFFFF & ~(CHECKSUM_PRESENT | MORE_TO_COME):
        raise ProtocolError(f"unknown required flag bits {flags & 0xFFFF:#x}")
    bodies: list[bytes] = []
    sequences: list[bytes] = []
    for kind, start, end in _sections(message, HEADER_SIZE + 4, _checked_end(message, flags)):
        if kind == 1:
            sequences.append(message[start - 1 : end])
        else:
            bodies.append(message[start:end])
    if len(bodies) != 1:
        raise ProtocolError(f"{len(bodies)} body sections instead of one")
    if bodies[0][-1]:
        raise ProtocolError("body is not closed by a zero byte")
    return Message(request_id_of(message), flags, bodies[0], b"".join(sequences))


def build(body: bytes, *, sequences: bytes = b"", request_id: int | None = None, response_to: int = 0,
          flags: int = 0) -> bytes:  # fmt: skip
    """One OP_MSG around a BSON body and, after it, ready kind-1 sections."""
    number = next(_request_ids) & 0x7FFFFFFF if request_id is None else request_id
    length = HEADER_SIZE + 5 + len(body) + len(sequences)
    return b"".join((HEADER.pack(length, number, response_to, OP_MSG), _INT32.pack(flags), b"\0", body, sequences))


def build_legacy_reply(body: bytes, response_to: int) -> bytes:
    """One OP_REPLY with one document: the answer to a handshake sent as OP_QUERY."""
    length = HEADER_SIZE + 20 + len(body)
    number = next(_request_ids) & 0x7FFFFFFF
    # flags 8 = AwaitCapable, cursor 0, starting at 0, one document
    return HEADER.pack(length, number, response_to, OP_REPLY) + struct.pack("<iqii", 8, 0, 0, 1) + body


def parse_legacy_query(message: bytes) -> tuple[str, bytes]:
    """Namespace and BSON of an OP_QUERY. ProtocolError for anything malformed."""
    try:
        name_end = message.index(0, HEADER_SIZE + 4)
        at = name_end + 1 + 8  # numberToSkip, numberToReturn
        size: int = _INT32.unpack_from(message, at)[0]
        namespace = message[HEADER_SIZE + 4 : name_end].decode()
    except (ValueError, struct.error) as error:
        raise ProtocolError(f"malformed OP_QUERY: {error}") from error
    if size < 5 or at + size > len(message):
        raise ProtocolError("the document of an OP_QUERY does not fit its message")
    return namespace, message[at : at + size]


def merge_sequences(document: dict[str, Any], sequences: bytes) -> dict[str, Any]:
    """Put kind-1 sections back as the arrays they stand for. ProtocolError when they hold no BSON."""
    for _, start, end in _sections(sequences, 0, len(sequences)):
        name_end = sequences.find(0, start + 4, end)
        if name_end < 0:
            raise ProtocolError("document sequence without a name")
        try:
            field = sequences[start + 4 : name_end].decode()
            document[field] = bson.decode_all(sequences[name_end + 1 : end], RAW)
        except (bson.errors.BSONError, UnicodeDecodeError) as error:
            raise ProtocolError(f"document sequence: {error}") from error
    return document


# Sizes in bytes of BSON values that have a fixed one, by type.
FIXED_SIZES = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0,
               0xFF: 0}  # fmt: skip
# What a value's length prefix leaves out: the prefix itself, for binary its subtype, for a DBPointer its ObjectId.
PREFIXED_SIZES = {0x02: 4, 0x03: 0, 0x04: 0, 0x05: 5, 0x0C: 16, 0x0D: 4, 0x0E: 4, 0x0F: 0}
REGEX = 0x0B


def top_level_names(body: bytes) -> list[str]:
    """Names of a BSON document's top-level fields. ProtocolError when it is no BSON."""
    names = []
    at = 4
    try:
        while kind := body[at]:
            name_end = body.index(0, at + 1)
            names.append(body[at + 1 : name_end].decode())
            at = name_end + 1
            if kind in FIXED_SIZES:
                at += FIXED_SIZES[kind]
            elif kind == REGEX:
                at = body.index(0, body.index(0, at) + 1) + 1
            else:
                size: int = _INT32.unpack_from(body, at)[0]
                if size < 0:
                    raise ProtocolError("not BSON: negative length")
                at += size + PREFIXED_SIZES[kind]
    except (LookupError, ValueError, struct.error) as error:
        raise ProtocolError(f"not BSON: {error}") from error
    if at != len(body) - 1:
        raise ProtocolError("not BSON: the document ends before its length")
    return names


def append_field(body: bytes, element: bytes) -> bytes:
    """A BSON document with one more element, which is given as it is inside a document."""
    return b"".join((_INT32.pack(len(body) + len(element)), body[4:-1], element, b"\0"))


def decode(body: bytes) -> dict[str, Any]:
    """A document as plain dicts. ProtocolError when it is no BSON."""
    try:
        return bson.decode(body, PLAIN)
    except (bson.errors.BSONError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not BSON: {error}") from error


def decode_raw(body: bytes) -> dict[str, Any]:
    """A document whose nested documents stay raw. ProtocolError when it is no BSON."""
    try:
        return dict(bson.decode(body, RAW))
    except (bson.errors.BSONError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not BSON: {error}") from error


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)  # the Castagnoli polynomial, reflected
        table.append(value)
    return tuple(table)


_CRC32C = _crc32c_table()


def crc32c(data: bytes) -> int:
    """CRC-32C of some bytes, as OP_MSG's checksum uses it."""
    table, value = _CRC32C, 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF
