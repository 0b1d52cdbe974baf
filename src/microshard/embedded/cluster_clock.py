"""The clocks at the end of replies: a replica set member's become those of a mongos.

A member's reply ends with lastCommittedOpTime, $clusterTime and operationTime, all of fixed sizes. A mongos has no
lastCommittedOpTime; for operationTime it sends the time of $clusterTime where it knows no other, and so does this one:
the router mongod's own operationTime is of a log nobody writes to.
"""

import struct

from microshard.embedded.wire import HEADER_SIZE

_COMMITTED = b"\x11lastCommittedOpTime\0"
_CLUSTER = b"\x03$clusterTime\0"
_OPERATION = b"\x11operationTime\0"
_INT32 = struct.Struct("<i")
_BODY = HEADER_SIZE + 5  # offset of the BSON in a reply: after its flags and the kind of its only section
_FIRST = _BODY + 4  # offset of its first element
# Offsets from the end of a member's reply, which closes with a zero byte: its three elements.
_END = -1 - len(_OPERATION) - 8
_FROM_CLUSTER = _END - len(_CLUSTER) - 88  # a document of time, signature and number of its key
_FROM_COMMITTED = _FROM_CLUSTER - len(_COMMITTED) - 8
_TO_NAME = _FROM_COMMITTED + len(_COMMITTED)
_TIME = len(_CLUSTER) + 4 + len(b"\x11clusterTime\0")  # where the time is in the element $clusterTime


class ClusterClock:
    """The newest $clusterTime that a reply had, for the replies this mongos composes itself."""

    def __init__(self) -> None:
        self._newest = 0
        self._cluster = b""  # $clusterTime alone
        self._elements = b""  # $clusterTime and operationTime as BSON, empty before the first

    def relay(self, message: bytes, cut: tuple[int, int] = (_FIRST, _FIRST)) -> bytes:
        """A member's whole reply message as a mongos sends it; any other message as it is.

        `cut` is a range of bytes, elements of the reply before its clocks, that is left out.
        """
        clocks = self._replaced(message)
        start, end = cut
        if not clocks and start == end:
            return message
        kept = message[end:_FROM_COMMITTED] if clocks else message[end:-1]
        length = start + len(kept) + len(clocks) + 1
        parts = (
            _INT32.pack(length),
            message[4:_BODY],
            _INT32.pack(length - _BODY),
            message[_FIRST:start],
            kept,
            clocks,
            b"\0",
        )
        return b"".join(parts)

    def stamp(self, body: bytes) -> bytes:
        """The BSON of a reply with the clocks of a mongos: the member's own that it came with, else the newest."""
        clocks = self._replaced(body)
        kept, clocks = (body[4:_FROM_COMMITTED], clocks) if clocks else (body[4:-1], self._elements)
        return b"".join((_INT32.pack(len(kept) + len(clocks) + 5), kept, clocks, b"\0"))

    def _replaced(self, reply: bytes) -> bytes:
        """What stands for the clocks at the end of a member's reply; empty when there are none."""
        if reply[_FROM_COMMITTED:_TO_NAME] != _COMMITTED:
            return b""
        cluster = reply[_FROM_CLUSTER:_END]
        if cluster == self._cluster:
            return self._elements
        if cluster[: len(_CLUSTER)] != _CLUSTER:
            return b""
        time = cluster[_TIME : _TIME + 8]
        clocks = cluster + _OPERATION + time
        number = int.from_bytes(time, "little")  # seconds above, a counter within the second below
        if number > self._newest:
            self._newest, self._cluster, self._elements = number, cluster, clocks
        return clocks
