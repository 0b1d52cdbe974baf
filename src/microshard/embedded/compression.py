"""Compressed messages (OP_COMPRESSED): zlib, and snappy and zstd where the package cramjam is installed.

As with a mongos, a client may use those compressors of its handshake that the option allows, and a reply is compressed
as its request was.
"""

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from microshard.embedded.wire import HEADER, HEADER_SIZE, MAX_MESSAGE, OP_COMPRESSED, ProtocolError

try:
    import cramjam
except ImportError:
    cramjam = None  # type: ignore[assignment]

DEFAULT = "snappy,zstd,zlib"  # of the option networkMessageCompressors
INSTALL = "pip install 'microshard[compression]'"  # what snappy and zstd need
NOOP = 0  # the number of a message that is only wrapped; it is taken, and answered plainly
_PREFIX = struct.Struct("<iiB")  # after the header: the operation inside, its bytes, the compressor


class Codec(NamedTuple):
    """A way to compress, with its number in the protocol."""

    number: int
    compress: Callable[[bytes], bytes]
    # Bytes, and how many they have to become. An error of `errors` for anything else, before more memory is used.
    decompress: Callable[[bytes, int], bytes]
    errors: type[Exception]


def _inflate(data: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(data, size + 1)


def _into(decompress_into: Callable[[bytes, bytearray], int]) -> Callable[[bytes, int], bytes]:
    def decompress(data: bytes, size: int) -> bytes:
        output = bytearray(size)
        return bytes(output[: decompress_into(data, output)])

    return decompress


def _codecs() -> dict[str, Codec]:
    found = {"zlib": Codec(2, zlib.compress, _inflate, zlib.error)}
    if cramjam is not None:
        snappy, zstd, error = cramjam.snappy, cramjam.zstd, cramjam.DecompressionError
        found["snappy"] = Codec(1, lambda data: bytes(snappy.compress_raw(data)),
                                     _into(snappy.decompress_raw_into), error)  # fmt: skip
        found["zstd"] = Codec(3, lambda data: bytes(zstd.compress(data)), _into(zstd.decompress_into), error)
    return found


COMPRESSORS: Mapping[str, Codec] = _codecs()


class Compression:
    """The compressors of one mongos, and how many bytes each has taken and given."""

    def __init__(self, allowed: str | None) -> None:
        """`allowed`: the option's value, names with commas between them or `disabled`; None is its default."""
        self.names = [name for name in (allowed or DEFAULT).split(",") if name in COMPRESSORS]
        self._by_number = {COMPRESSORS[name].number: (name, COMPRESSORS[name]) for name in self.names}
        # Bytes before and after, of replies ("compressor") and requests ("decompressor"), as serverStatus has them.
        self.counted = {name: {"compressor": [0, 0], "decompressor": [0, 0]} for name in self.names}

    def negotiate(self, offered: Any) -> Sequence[str]:
        """Those of the names a client offers in its handshake that it may use, in its order."""
        return [name for name in offered if name in self.names] if isinstance(offered, list) else []

    def decompress(self, message: bytes) -> tuple[bytes, int]:
        """The message inside an OP_COMPRESSED as if it had come plain, and the compressor's number.

        ProtocolError when it cannot be opened.
        """
        if len(message) < HEADER_SIZE + _PREFIX.size:
            raise ProtocolError("OP_COMPRESSED without its header")
        _, request_id, response_to, _ = HEADER.unpack_from(message)
        opcode, size, number = _PREFIX.unpack_from(message, HEADER_SIZE)
        if not 0 <= size <= MAX_MESSAGE - HEADER_SIZE or opcode == OP_COMPRESSED:
            raise ProtocolError(f"OP_COMPRESSED announces {size} bytes of operation {opcode}")
        payload = message[HEADER_SIZE + _PREFIX.size :]
        if number != NOOP:
            if number not in self._by_number:
                raise ProtocolError(f"compressor {number} was never negotiated")
            name, codec = self._by_number[number]
            try:
                payload = codec.decompress(payload, size)
            except codec.errors as error:
                raise ProtocolError(f"{name}: {error}") from error
            self._count(name, "decompressor", len(message), HEADER_SIZE + size)
        if len(payload) != size:
            raise ProtocolError(f"OP_COMPRESSED announces {size} bytes and holds others")
        return HEADER.pack(HEADER_SIZE + size, request_id, response_to, opcode) + payload, number

    def compress(self, message: bytes, number: int) -> bytes:
        """An OP_COMPRESSED around a whole message, by the compressor of this number; the message itself for NOOP."""
        if number == NOOP:
            return message
        name, codec = self._by_number[number]
        _, request_id, response_to, opcode = HEADER.unpack_from(message)
        payload = codec.compress(message[HEADER_SIZE:])
        length = HEADER_SIZE + _PREFIX.size + len(payload)
        self._count(name, "compressor", len(message), length)
        prefix = _PREFIX.pack(opcode, len(message) - HEADER_SIZE, number)
        return b"".join((HEADER.pack(length, request_id, response_to, OP_COMPRESSED), prefix, payload))

    def _count(self, name: str, direction: str, before: int, after: int) -> None:
        counter = self.counted[name][direction]
        counter[0] += before
        counter[1] += after
