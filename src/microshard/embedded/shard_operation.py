"""An operation on its way to a shard itself: sent, sent again by a newer table, or left to the router mongod."""

import asyncio
import struct
from collections.abc import Callable

import bson

from microshard.embedded import wire
from microshard.embedded.errors import NOT_EXECUTED, NOT_OK, NOT_PRIMARY, STALE_ROUTING, CommandError, ErrorCode
from microshard.embedded.mongod_connections import Document, MongodConnection, MongodPool
from microshard.embedded.server import ForwardedCommand, MongosServer
from microshard.embedded.targeting import Target

ATTEMPTS = 3  # with a table read anew after each, before the router mongod gets the operation
_BODY = 21  # offset of the BSON in a plain OP_MSG
_WRITE_ERRORS = b"writeErrors\0"
_INT32 = struct.Struct("<i")
# A reply to find begins with cursor: {firstBatch: [...], id: int64}; these are the offsets and bytes of its parts.
_CURSOR, _BATCH = _BODY + 4, _BODY + 28
_CURSOR_ID = b"\x12id\0"
_NO_CURSOR = _CURSOR_ID + bytes(8)
# A shard replies to a write with n (int32), electionId, opTime and others; a mongos sends neither of those two.
_ELECTION_ID, _OP_TIME, _AFTER_N = b"\x07electionId\0", b"\x03opTime\0", _BODY + 11
Forward = Callable[[bytes, int, int, ForwardedCommand], None]


def with_elements(message: bytes, body_end: int, elements: bytes) -> bytes:
    """A plain OP_MSG with more elements at the end of its body, which ends at this offset."""
    return b"".join((
        _INT32.pack(len(message) + len(elements)),
        message[4:_BODY],
        _INT32.pack(body_end - _BODY + len(elements)),
        message[_BODY + 4 : body_end - 1],
        elements,
        b"\0",
        message[body_end:],
    ))  # fmt: skip


def lacks_field(message: bytes, name_end: int, body_end: int, element: bytes) -> bool:
    """Whether a command has no field of this element's name."""
    field = element[: element.index(0, 1) + 1]
    # Nearly always the name is either absent or a field of the command; only then the fields are worth a walk.
    return (
        message.find(field, name_end, body_end) < 0
        or field[1:-1].decode() not in wire.top_level_names(message[_BODY:body_end])
    )  # fmt: skip


def election(message: bytes) -> tuple[int, int]:
    """Where a shard's reply to a write has electionId and opTime, which a mongos does not send: start and end."""
    if message[_AFTER_N : _AFTER_N + len(_ELECTION_ID)] != _ELECTION_ID:
        return _AFTER_N, _AFTER_N
    end = _AFTER_N + len(_ELECTION_ID) + 12
    if message[end : end + len(_OP_TIME)] == _OP_TIME:
        end += len(_OP_TIME)
        end += _INT32.unpack_from(message, end)[0]
    return _AFTER_N, end


class ShardOperation:
    """The operation of one client connection that goes straight to a shard; used again for the next."""

    def __init__(self, server: MongosServer, reply: Callable[[bytes], None], forward: Forward) -> None:
        """`forward` is the way through the router mongod: message, end of its name and of its body, command."""
        self._server = server
        self._targeting = server.targeting
        self._reply, self._forward = reply, forward
        self._upstream: MongodConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._message, self._name_end, self._body_end = b"", 0, 0
        self._command: ForwardedCommand
        self._target: Target
        self._attempts = 0

    def begin(self, message: bytes, name_end: int, body_end: int, command: ForwardedCommand) -> bool:
        """Send an operation to its shard; False when it has to go through the router mongod."""
        self._message, self._name_end, self._body_end, self._command = message, name_end, body_end, command
        self._attempts = 0
        return self._send()

    def begin_remembered(self, message: bytes) -> bool:
        """Send an operation like an earlier one to its shard; False for a message that has to be looked at."""
        found = None if self._server.api_version_required else self._targeting.remembered(message)
        if found is None:
            return False
        shape, target = found
        pool = target.node.known_primary
        if pool is None or not pool.idle:
            return False
        self._message, self._name_end, self._body_end = message, shape.name_end, shape.body_end
        self._command, self._target, self._attempts = self._server.forwarded[shape.command], target, 1
        self._write(pool.idle.pop())
        return True

    def abort(self) -> None:
        """The client left: interrupt its operation."""
        if self._upstream is not None:
            self._upstream.receiver = None
            self._upstream.transport.abort()
        if self._task is not None:
            self._task.cancel()

    def _send(self) -> bool:
        command = self._command
        target = self._targeting.target(self._message, self._name_end, self._body_end, command.name)
        if target is None:
            return False
        pool = target.node.known_primary
        if pool is None:
            self._targeting.find_primary(target.node)
            return False
        self._target = target
        self._attempts += 1
        if pool.idle:
            self._write(pool.idle.pop())
        else:
            self._task = self._server.loop.create_task(self._connect_and_write(pool))
        return True

    def _write(self, upstream: MongodConnection) -> None:
        elements, concern = self._target.version, self._command.concern
        if concern and lacks_field(self._message, self._name_end, self._body_end, concern):
            elements += concern
        upstream.receiver = self
        self._upstream = upstream
        upstream.transport.write(with_elements(self._message, self._body_end, elements))

    async def _connect_and_write(self, pool: MongodPool) -> None:
        try:
            upstream = await pool.acquire()
        except OSError:
            self._target.node.primary_lost(pool)
            self._through_router()
        else:
            self._write(upstream)

    def _through_router(self) -> None:
        self._targeting.returned += 1
        self._forward(self._message, self._name_end, self._body_end, self._command)

    def reply_received(self, message: bytes) -> None:
        """Relay the shard's reply, unless it refuses the operation."""
        upstream, self._upstream = self._upstream, None
        reads = self._command.name == "find"
        if message[_CURSOR : _CURSOR + 12] == NOT_OK or (not reads and _WRITE_ERRORS in message):
            self._task = self._server.loop.create_task(self._retry_or_relay(message, upstream))
            return
        if reads:
            self._remember_cursor(message)
        self._answer(message)

    def _answer(self, message: bytes) -> None:
        self._command.targeted += 1
        clock = self._server.clock
        self._reply(clock.relay(message) if self._command.name == "find" else clock.relay(message, election(message)))

    def _remember_cursor(self, message: bytes) -> None:
        """The cursor of a read with more than one batch lives on the shard: its getMore has to go there."""
        at = _BATCH + _INT32.unpack_from(message, _BATCH)[0]
        if message[at : at + 12] == _NO_CURSOR:
            return
        if message[at : at + 4] == _CURSOR_ID:
            cursor = int.from_bytes(message[at + 4 : at + 12], "little", signed=True)
        else:  # fields in an order that mongod does not use today
            cursor = wire.decode(wire.parse(message).body)["cursor"]["id"]
        if cursor:
            self._server.remember_cursor(cursor, self._target.node)

    def connection_broken(self) -> None:
        """Read again through the router mongod; report the unknown outcome of a write."""
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            self._target.node.primary_lost(upstream.pool)
        if self._command.name == "find":
            self._through_router()
            return
        text = f"{self._target.shard} ended while it worked on this command; whether a write was done is unknown"
        error = self._server.clock.stamp(bson.encode(CommandError(ErrorCode.HostUnreachable, text).document()))
        self._reply(wire.build(error, response_to=wire.request_id_of(self._message)))

    async def _retry_or_relay(self, message: bytes, upstream: MongodConnection | None) -> None:
        reply: Document = wire.decode(wire.parse(message).body)
        errors = reply.get("writeErrors", ()) if reply.get("ok") else [reply]
        codes = {error.get("code") for error in errors}
        if codes & STALE_ROUTING:
            self._targeting.refusals += 1
            await self._targeting.reread(self._target.route)
            if self._attempts < ATTEMPTS and self._send():
                return
        elif codes & (NOT_PRIMARY if self._command.name == "find" else NOT_EXECUTED) and upstream is not None:
            self._target.node.primary_lost(upstream.pool)
        else:
            self._answer(message)
            return
        self._through_router()
