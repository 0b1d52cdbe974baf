"""The front: client connections, and the short way of the commands the router mongod has a cluster form of.

find, insert, update, delete, aggregate and getMore are not decoded. Their first element is renamed (`find` to
`clusterFind`), two lengths are mended, and the router mongod's reply goes back as it comes. Everything else takes the
long way through `commands.dispatch`.
"""

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from microshard.embedded import commands, logins, wire
from microshard.embedded.errors import (
    CHANGE_STREAM_UNSUPPORTED,
    HOST_UNREACHABLE,
    ILLEGAL_OPERATION,
    NOT_SUPPORTED_IN_TRANSACTION,
    STALE_ROUTING,
    TOO_LARGE,
    UNAUTHORIZED,
    CommandError,
)
from microshard.embedded.nodes import Backoff, Link

if TYPE_CHECKING:
    from microshard.embedded.front import Front

_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
# Operation code OP_MSG, no flags, a body section first: nearly every message there is.
_PLAIN = _INT32.pack(wire.OP_MSG) + bytes(5)
_BODY = 21  # offset of the BSON in such a message
_SEQUENCE = b"\x01"  # the kind of section a document sequence is
_NAME = _BODY + 4  # its first element: type, name
# A failed reply begins with "ok": 0.0.
_NOT_OK = b"\x01ok\x00" + bytes(8)
# Names whose presence anywhere in a body sends a message the long way, where it is looked at properly.
_SUSPECTS = (b"lsid\0", b"txnNumber\0")
_SUSPECT_STAGES = (b"$changeStream\0", b"$out\0", b"$merge\0")
_MAX_WAITING = 1 << 16  # bytes of further requests read ahead while one is under way


@dataclass(slots=True)
class Forwarded:
    """A command of the short way.

    `cluster_name` is what its first element becomes, `growth` how many bytes longer that is. `concern` is the cluster's
    default write concern as a BSON element, for a write that has none of its own: a mongos adds it, a mongod does not.
    """

    name: str
    cluster_name: bytes
    growth: int
    suspects: tuple[bytes, ...]
    concern: bytes = b""
    count: int = 0


def forwarded_commands() -> dict[bytes, Forwarded]:
    """The commands of the short way by type and name of their first element; counters belong to one front."""
    table = {}
    for name in ("find", "insert", "update", "delete", "aggregate", "getMore"):
        cluster = "cluster" + name[0].upper() + name[1:]
        # string; double, int32 and int64 for the collectionless form of aggregate; int64 is a cursor's number
        for kind in (b"\x12",) if name == "getMore" else (b"\x02", b"\x01", b"\x10", b"\x12"):
            suspects = _SUSPECTS + (_SUSPECT_STAGES if name == "aggregate" else ())
            table[kind + name.encode()] = Forwarded(name, kind + cluster.encode(), len(cluster) - len(name), suspects)
    return table


def with_concern(message: bytes, body_end: int, name_end: int, concern: bytes) -> bytes:
    """A write with the default write concern, unless it brings its own."""
    field = concern[: concern.index(0, 1) + 1]
    body = message[_BODY:body_end]
    # Nearly always the name is either absent or a field of the command; only then it is worth the walk.
    if message.find(field, name_end, body_end) >= 0 and field[1:-1].decode() in wire.top_level_names(body):
        return message
    return b"".join((
        _INT32.pack(len(message) + len(concern)),
        message[4:_BODY],
        wire.append_field(body, concern),
        message[body_end:],
    ))  # fmt: skip


class ClientConnection(wire.Framed):
    """One client: one request at a time, the next when the reply to the last has been written."""

    def __init__(self, front: "Front") -> None:
        super().__init__()
        self.front = front
        self.transport = cast(asyncio.Transport, None)  # set by connection_made, before anything else can happen
        self.number = 0
        self.peer = ""
        self.compressing = False  # the request under way came compressed, so its reply goes compressed
        self._silent = False  # the request under way wants no reply
        self._busy = False
        self._choked = False
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._link: Link | None = None
        self._request = b""
        self._command: Forwarded | None = None
        self._backoff: Backoff | None = None
        self._task: asyncio.Task[None] | None = None
        self.logged_in = not front.cluster.config.access.key
        self.auth_info: Mapping[str, Any] = {}  # of connectionStatus, as the config server told it
        self.login: Link | None = None  # the conversation with the config server while it lasts
        self._router = front.router
        self._forwarded = front.forwarded

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self._busy

    # --- the connection itself

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet or, when there are too many, refuse."""
        self.transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("", 0)
        self.peer = f"{address[0]}:{address[1]}"
        self.front.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why it ended changes nothing
        """Interrupt what this client was waiting for, as a mongos does for a client that left."""
        self.front.left(self)
        if self._link is not None:
            self._link.sink = None
            self._link.transport.abort()
        if self.login is not None:
            self.login.transport.abort()
        if self._task is not None:
            self._task.cancel()

    def protocol_failed(self, error: wire.ProtocolError) -> None:
        """Close the connection, as the server does."""
        self.front.log.alert("NETWORK", "Closing a connection that does not speak the protocol",
                            remote=self.peer, error=str(error))  # fmt: skip
        self.transport.abort()

    def pause_writing(self) -> None:
        """Stop taking requests from a client that does not read its replies."""
        self._choked = True

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        self._choked = False
        if not self._busy:
            self._next()

    # --- one request after another

    def message_received(self, message: bytes) -> None:
        """Begin, or let it wait for the one before."""
        self.front.bytes_in += len(message)
        if not self._busy and not self._choked:
            self._begin(message)
            return
        self._waiting.append(message)
        self._waiting_bytes += len(message)
        if self._waiting_bytes > _MAX_WAITING:
            self.transport.pause_reading()

    def _begin(self, message: bytes) -> None:
        self._busy = True
        if self.logged_in and message[12:_BODY] == _PLAIN:
            name_end = message.find(0, _NAME)
            command = self._forwarded.get(message[_NAME:name_end])
            if command is not None:
                body_end = _BODY + int.from_bytes(message[_BODY:_NAME], "little")
                if self._goes_the_short_way(message, name_end, body_end, command):
                    if command.concern:
                        message = with_concern(message, body_end, name_end, command.concern)
                    self._forward(message, name_end, command)
                    return
        self._task = self.front.loop.create_task(self._long_way(message))

    def _goes_the_short_way(self, message: bytes, name_end: int, body_end: int, command: Forwarded) -> bool:
        # What follows the body is the end or a document sequence; the router mongod gets no message that is malformed.
        if body_end != len(message) and message[body_end : body_end + 1] != _SEQUENCE:
            return False
        for suspect in command.suspects:
            if message.find(suspect, name_end, body_end) >= 0:
                return False
        return not self.front.pins or command.name != "getMore"

    def _forward(self, message: bytes, name_end: int, command: Forwarded) -> None:
        """Rename, mend the lengths of message and body, send on a link that is free."""
        command.count += 1
        growth = command.growth
        request = b"".join((
            _INT32.pack(len(message) + growth),
            message[4:_BODY],
            _INT32.pack(_INT32.unpack_from(message, _BODY)[0] + growth),
            command.cluster_name,
            message[name_end:],
        ))  # fmt: skip
        self._request = request
        self._command = command
        if len(request) > wire.MAX_MESSAGE:
            self._fail(
                CommandError(TOO_LARGE, f"message of {len(message)} bytes; the limit is {wire.MAX_CLIENT_MESSAGE}")
            )
            return
        pool = self._router.pool
        if pool is not None and pool.idle:
            self._send(pool.idle.pop())
        else:
            self._task = self.front.loop.create_task(self._send_when_possible())

    def _send(self, link: Link) -> None:
        link.sink = self
        self._link = link
        link.transport.write(self._request)

    async def _send_when_possible(self) -> None:
        """The short way when there is no free link: a new one, or a router mongod that is being restarted."""
        try:
            link = await self.front.cluster.router_link()
        except CommandError as error:
            self._fail(error)
        else:
            self._send(link)

    def upstream_reply(self, message: bytes) -> None:
        """Relay, unless the routing was old: then try again."""
        self._link = None
        if message[_BODY + 4 : _BODY + 16] == _NOT_OK and self._command is not None and self._command.name != "getMore":
            self._task = self.front.loop.create_task(self._failed(message))
        else:
            self.reply(message)

    def upstream_lost(self) -> None:
        """Say that the outcome is unknown, once it is known whether the router mongod is still there."""
        self._link = None
        self._task = self.front.loop.create_task(self._unknown_outcome())

    async def _unknown_outcome(self) -> None:
        # A driver tries again at once: it must then meet a router mongod, or wait for the next one.
        await self.front.cluster.router_settled()
        self._fail(CommandError(HOST_UNREACHABLE, "the router mongod of this embedded mongos ended while it worked on "
                                "this command; whether a write was done is unknown"))  # fmt: skip

    async def _failed(self, message: bytes) -> None:
        reply = wire.decode(wire.parse(message).body)
        if reply.get("code") in STALE_ROUTING:
            self._backoff = self._backoff or Backoff()
            namespace = reply.get("ns", reply.get("db"))
            try:
                if isinstance(namespace, str):
                    await self.front.cluster.forget_routing(namespace)
            except CommandError as error:
                self._fail(error)
                return
            if await self._backoff.again():
                await self._send_when_possible()
                return
        self.reply(message)

    def reply(self, message: bytes) -> None:
        """Write the reply of the request under way, and begin the next."""
        if not self._silent:
            if self.compressing:
                plain = len(message)
                message = wire.compress(message)
                given, sent = self.front.deflated
                self.front.deflated = (given + plain, sent + len(message))
            self.front.bytes_out += len(message)
            self.transport.write(message)
        self._busy = self._silent = self.compressing = False
        self._request = b""
        self._backoff = None
        if self._waiting:
            self._next()

    def _next(self) -> None:
        if self._waiting and not self._choked:
            message = self._waiting.pop(0)
            before, self._waiting_bytes = self._waiting_bytes, self._waiting_bytes - len(message)
            if before > _MAX_WAITING >= self._waiting_bytes:
                self.transport.resume_reading()
            self._begin(message)

    def _fail(self, error: CommandError) -> None:
        request_id = wire.request_id_of(self._request) if self._request else 0
        self.reply(wire.build(wire.encode(error.document()), response_to=request_id))

    # --- the long way

    async def _long_way(self, message: bytes) -> None:
        try:
            if wire.opcode_of(message) == wire.OP_COMPRESSED:
                packed = len(message)
                message = wire.decompress(message)
                came, opened = self.front.inflated
                self.front.inflated = (came + packed, opened + len(message))
                self.compressing = True
            if wire.opcode_of(message) == wire.OP_QUERY:
                self.reply(await commands.legacy_handshake(self, message))
                return
            request = wire.parse(message)
            self._silent = bool(request.flags & wire.MORE_TO_COME)
            names = wire.top_level_names(request.body)
        except wire.ProtocolError as error:
            self.protocol_failed(error)
            return
        self._request = message
        try:
            self._refuse_strangers(names)
            self._refuse_sessions(names)
            if self._forward_normalised(request):
                return
            await self._answer(request)
        except CommandError as error:
            self._fail(error)
        except wire.ProtocolError as error:
            self.protocol_failed(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, a client must not wait for ever
            # A command with fields of a form nobody expects must not take the connection's other commands with it.
            self.front.log.fail("COMMAND", "A command failed inside the router", error=repr(error),
                                command=names[:1], remote=self.peer)  # fmt: skip
            self._fail(CommandError(8, f"the embedded mongos cannot make sense of this command: {error!r}"))

    async def _answer(self, request: wire.Message) -> None:
        answered = request.request_id
        async for body, more in commands.dispatch(self, request):
            flags = wire.MORE_TO_COME if more else 0
            message = wire.build(body, response_to=answered, flags=flags)
            # In a stream each reply answers the one before it. A driver that looks (Java's does) takes any other number
            # for a broken connection, and clears its pool with every second heartbeat.
            answered = wire.request_id_of(message)
            if more:
                self.transport.write(wire.compress(message) if self.compressing else message)
            else:
                self.reply(message)

    def _refuse_strangers(self, names: list[str]) -> None:
        if not self.logged_in and not (names and names[0] in logins.BEFORE):
            raise CommandError(UNAUTHORIZED, f"command {names[0] if names else ''} requires authentication")

    @staticmethod
    def _refuse_sessions(names: list[str]) -> None:
        """Such a message would end the router mongod (an invariant): it must not get there."""
        if "autocommit" in names or "startTransaction" in names:
            raise CommandError(NOT_SUPPORTED_IN_TRANSACTION, "The embedded mongos has no transactions.")
        if "txnNumber" in names:
            # Drivers know the first words, and tell their user to switch retryable writes off.
            raise CommandError(ILLEGAL_OPERATION, "Transaction numbers are only allowed on a replica set member or "
                               "mongos; the embedded mongos has no retryable writes and no transactions.")  # fmt: skip
        if "lsid" in names:
            raise CommandError(ILLEGAL_OPERATION, "The embedded mongos has no sessions: send the command without lsid.")

    def _forward_normalised(self, request: wire.Message) -> bool:
        """Send a command of the short way that came in an unusual form on in the usual one."""
        name_end = request.body.find(0, 5)
        command = self._forwarded.get(request.body[4:name_end])
        if command is None:
            return False
        body, concern = request.body, command.concern
        if command.name == "aggregate":
            concern = self._concern_of_stages(body)
        if command.name == "getMore" and _INT64.unpack_from(body, name_end + 1)[0] in self.front.pins:
            return False
        if concern and "writeConcern" not in wire.top_level_names(body):
            body = wire.append_field(body, concern)
        # The flags stay behind: the reply is always awaited, so that the client's next request comes after it.
        message = wire.build(body, sequences=request.sequences, request_id=request.request_id)
        self._forward(message, _BODY + name_end, command)
        return True

    def _concern_of_stages(self, body: bytes) -> bytes:
        """The default write concern when a pipeline writes. CommandError when it is a change stream."""
        if not any(stage in body for stage in _SUSPECT_STAGES):
            return b""
        pipeline = wire.decode_raw(body).get("pipeline", ())
        stages = {name for stage in pipeline if isinstance(stage, Mapping) for name in stage}
        if "$changeStream" in stages:
            raise CommandError(CHANGE_STREAM_UNSUPPORTED, "The $changeStream stage is only supported on replica sets: "
                               "the embedded mongos has no change streams.")  # fmt: skip
        return self.front.write_concern if stages & {"$out", "$merge"} else b""
