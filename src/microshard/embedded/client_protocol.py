"""One client connection: commands with a cluster form are forwarded undecoded, all others go to their handler.

find, insert, update, delete, aggregate and getMore are not decoded. Their first element is renamed (`find` to
`clusterFind`), two lengths are corrected, and the router mongod's reply is relayed as it comes. A message in an unusual
form (compressed, sections in another order, suspicious names in its body) is examined first.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from typing import cast

import bson

from microshard.embedded import api_version, refusals, wire
from microshard.embedded.compression import NOOP
from microshard.embedded.errors import DATABASE_FIELD_MISSING, NOT_OK, STALE_ROUTING, CommandError, ErrorCode
from microshard.embedded.mongod_connections import MongodConnection, RetryDelay
from microshard.embedded.server import (
    LOCAL_STAGES,
    SUSPECT_STAGES,
    WRITING_STAGES,
    ClientConnection,
    ForwardedCommand,
    MongosServer,
    Reply,
    Request,
    as_element,
)
from microshard.embedded.server_commands import BEFORE_LOGIN, HELLO_NAMES, LOGIN, hello_replies, hello_with_mechanisms
from microshard.embedded.shard_operation import ShardOperation, lacks_field, with_elements

_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
# Operation code OP_MSG, no flags, a body section first: nearly every message there is.
_PLAIN = _INT32.pack(wire.OP_MSG) + bytes(5)
_BODY = 21  # offset of the BSON in such a message
_SEQUENCE = b"\x01"  # the kind of section a document sequence is
_NAME = _BODY + 4  # its first element: type, name
_MAX_WAITING = 1 << 16  # bytes of further requests read ahead while one is under way


def with_concern(message: bytes, body_end: int, name_end: int, concern: bytes) -> bytes:
    """A command with the default write or read concern, unless it has one."""
    return with_elements(message, body_end, concern) if lacks_field(message, name_end, body_end, concern) else message


class ClientProtocol(ClientConnection):
    """Handles one request at a time, the next when the reply to the last has been written."""

    def __init__(self, server: MongosServer) -> None:
        super().__init__(server)
        self._router = server.router
        self._forwarded = server.forwarded
        self._compressor = NOOP  # of the request under way, and so of its reply
        self._no_reply = False  # the client wants no reply to the request under way
        self._write_paused = False
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._upstream: MongodConnection | None = None
        self._request = b""
        self._command: ForwardedCommand | None = None
        self._retry_delay: RetryDelay | None = None
        self._task: asyncio.Task[None] | None = None
        self._shard_operation = (
            ShardOperation(server, self._reply, self._forward_plain) if server.options.targeting else None
        )

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the client."""
        self.transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("", 0)
        self.peer = f"{address[0]}:{address[1]}"
        self.server.client_connected(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why it ended changes nothing
        """Interrupt the client's operation, as a mongos does for a client that left."""
        self.server.client_disconnected(self)
        if self._upstream is not None:
            self._upstream.receiver = None
            self._upstream.transport.abort()
        if self._shard_operation is not None:
            self._shard_operation.abort()
        if self.sasl_connection is not None:
            self.sasl_connection.transport.abort()
        if self._task is not None:
            self._task.cancel()

    def protocol_failed(self, error: wire.ProtocolError) -> None:
        """Close the connection, as the server does."""
        self.server.log.warning("Closing a connection that does not speak the protocol", component="NETWORK",
                                remote=self.peer, error=str(error))  # fmt: skip
        self.transport.abort()

    def pause_writing(self) -> None:
        """Stop taking requests from a client that does not read its replies."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Take requests again: the client has read."""
        self._write_paused = False
        if not self.busy:
            self._next()

    # --- one request after another

    def message_received(self, message: bytes) -> None:
        """Begin the request, or queue it behind the one under way."""
        self.server.bytes_in += len(message)
        if not self.busy and not self._write_paused:
            self._begin(message)
            return
        self._waiting.append(message)
        self._waiting_bytes += len(message)
        if self._waiting_bytes > _MAX_WAITING:
            self.transport.pause_reading()

    def _begin(self, message: bytes) -> None:
        self.busy = True
        operation = self._shard_operation
        if operation is not None and self.authenticated and operation.begin_remembered(message):
            return
        if self.authenticated and message[12:_BODY] == _PLAIN:
            name_end = message.find(0, _NAME)
            command = self._forwarded.get(message[_NAME:name_end])
            if command is not None:
                body_end = _BODY + int.from_bytes(message[_BODY:_NAME], "little")
                if self._can_forward(message, name_end, body_end, command):
                    if operation is None or not operation.begin(message, name_end, body_end, command):
                        self._forward_plain(message, name_end, body_end, command)
                    return
        self._task = self.server.loop.create_task(self._examine(message))

    def _next(self) -> None:
        if self._waiting and not self._write_paused:
            message = self._waiting.pop(0)
            before, self._waiting_bytes = self._waiting_bytes, self._waiting_bytes - len(message)
            if before > _MAX_WAITING >= self._waiting_bytes:
                self.transport.resume_reading()
            self._begin(message)

    def _reply(self, message: bytes) -> None:
        """Write the reply to the request under way, and begin the next."""
        if not self._no_reply:
            if self._compressor:
                message = self.server.compression.compress(message, self._compressor)
            self.server.bytes_out += len(message)
            self.transport.write(message)
        self.busy = self._no_reply = False
        self._compressor = NOOP
        self._request = b""
        self._retry_delay = None
        if self._waiting:
            self._next()

    def _fail(self, error: CommandError) -> None:
        request_id = wire.request_id_of(self._request) if self._request else 0
        body = self.server.clock.stamp(bson.encode(error.document()))
        self._reply(wire.build(body, response_to=request_id))

    # --- forwarded commands

    def _can_forward(self, message: bytes, name_end: int, body_end: int, command: ForwardedCommand) -> bool:
        # After the body the message ends or a document sequence follows; the router mongod gets no malformed message.
        if body_end != len(message) and message[body_end : body_end + 1] != _SEQUENCE:
            return False
        if self.server.api_version_required:
            return False
        for suspect in command.suspects:
            if message.find(suspect, name_end, body_end) >= 0:
                return False
        # A cursor on a shard or config server is continued there; the cursor's id is the value of the first element.
        cursors = self.server.cursors
        return (
            not cursors
            or command.name != "getMore"
            or int.from_bytes(message[name_end + 1 : name_end + 9], "little", signed=True) not in cursors
        )

    def _forward_plain(self, message: bytes, name_end: int, body_end: int, command: ForwardedCommand) -> None:
        if command.concern:
            message = with_concern(message, body_end, name_end, command.concern)
        self._forward(message, name_end, command)

    def _forward(self, message: bytes, name_end: int, command: ForwardedCommand) -> None:
        """Rename, correct the lengths of message and body, send on an idle connection."""
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
            text = f"message of {len(message)} bytes; the limit is {wire.MAX_CLIENT_MESSAGE}"
            self._fail(CommandError(ErrorCode.BSONObjectTooLarge, text))
            return
        pool = self._router.pool
        if pool is not None and pool.idle:
            self._send(pool.idle.pop())
        else:
            self._task = self.server.loop.create_task(self._connect_and_send())

    def _send(self, upstream: MongodConnection) -> None:
        upstream.receiver = self
        self._upstream = upstream
        upstream.transport.write(self._request)

    async def _connect_and_send(self) -> None:
        """Send without an idle connection: on a new one, or after a restart of the router mongod."""
        try:
            upstream = await self.server.cluster.router_connection()
        except CommandError as error:
            self._fail(error)
        else:
            self._send(upstream)

    def reply_received(self, message: bytes) -> None:
        """Relay the router mongod's reply, unless its routing was old: then try again."""
        self._upstream = None
        if message[_BODY + 4 : _BODY + 16] == NOT_OK and self._command is not None and self._command.name != "getMore":
            self._task = self.server.loop.create_task(self._retry_or_relay(message))
        else:
            self._reply(self.server.clock.relay(message))

    def connection_broken(self) -> None:
        """Report an unknown outcome, once the state of the router mongod is known."""
        self._upstream = None
        self._task = self.server.loop.create_task(self._unknown_outcome())

    async def _unknown_outcome(self) -> None:
        # A driver tries again at once: it must then meet a router mongod, or wait for the next one.
        await self.server.cluster.router_settled()
        message = ("the router mongod of this embedded mongos ended while it worked on this command; "
                   "whether a write was done is unknown")  # fmt: skip
        self._fail(CommandError(ErrorCode.HostUnreachable, message))

    async def _retry_or_relay(self, message: bytes) -> None:
        reply = wire.decode(wire.parse(message).body)
        if reply.get("code") in STALE_ROUTING:
            self._retry_delay = self._retry_delay or RetryDelay()
            namespace = reply.get("ns", reply.get("db"))
            try:
                if isinstance(namespace, str):
                    await self.server.cluster.forget_routing(namespace)
            except CommandError as error:
                self._fail(error)
                return
            if await self._retry_delay.wait():
                await self._connect_and_send()
                return
        self._reply(self.server.clock.relay(message))

    # --- messages that are decoded

    async def _examine(self, message: bytes) -> None:
        """Answer a message that cannot be forwarded as it is."""
        try:
            if wire.opcode_of(message) == wire.OP_COMPRESSED:
                message, self._compressor = self.server.compression.decompress(message)
            if wire.opcode_of(message) == wire.OP_QUERY:
                self._reply(await self._legacy_handshake(message))
                return
            request = wire.parse(message)
            self._no_reply = bool(request.flags & wire.MORE_TO_COME)
            names = wire.top_level_names(request.body)
        except wire.ProtocolError as error:
            self.protocol_failed(error)
            return
        self._request = message
        try:
            if not self.authenticated and not (names and names[0] in BEFORE_LOGIN):
                text = f"command {names[0] if names else ''} requires authentication"
                raise CommandError(ErrorCode.Unauthorized, text)
            if self.server.api_version_required and not (names and names[0] in LOGIN):
                api_version.require(names)
            refusals.require_no_refused_field(names)
            if not self._forward_normalised(request, names):
                await self._answer(request)
        except CommandError as error:
            self._fail(error)
        except wire.ProtocolError as error:
            self.protocol_failed(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, a client must not wait for ever
            # A command with fields of an unexpected form must not take the connection's other commands with it.
            self.server.log.error("A command failed inside the router", component="COMMAND", error=repr(error),
                                  command=names[:1], remote=self.peer)  # fmt: skip
            text = f"the embedded mongos cannot make sense of this command: {error!r}"
            self._fail(CommandError(ErrorCode.UnknownError, text))

    def _forward_normalised(self, request: wire.Message, names: list[str]) -> bool:
        """Forward a command that came in an unusual form; False when it has to be answered here."""
        name_end = request.body.find(0, 5)
        command = self._forwarded.get(request.body[4:name_end])
        if command is None:
            return False
        body, concerns = request.body, [command.concern]
        if command.name == "aggregate":
            concerns = self._concerns_of_stages(body)
        if command.name == "getMore" and _INT64.unpack_from(body, name_end + 1)[0] in self.server.cursors:
            return False
        if command.name == "find" and "tailable" in names and wire.decode_raw(body)["tailable"]:
            return False
        if "apiStrict" in names:
            document = wire.decode_raw(body)
            api_version.check(command.name, document)
            # Not left out: a getMore has to have the fields of the command its cursor is of.
            body = bson.encode({**document, "apiStrict": False})
        for concern in concerns:
            if concern and concern[1 : concern.index(0, 1)].decode() not in names:
                body = wire.append_field(body, concern)
        # The flags are dropped: the reply is always awaited, so that the client's next request comes after it.
        message = wire.build(body, sequences=request.sequences, request_id=request.request_id)
        self._forward(message, _BODY + name_end, command)
        return True

    def _concerns_of_stages(self, body: bytes) -> list[bytes]:
        """The default concerns for a pipeline: of writes when it writes. CommandError when it is a change stream."""
        server = self.server
        if not server.default_read_concern and not any(stage in body for stage in SUSPECT_STAGES):
            return []
        document = wire.decode_raw(body)
        stages = {name for stage in document.get("pipeline", ()) if isinstance(stage, Mapping) for name in stage}
        if "$changeStream" in stages:
            raise refusals.CHANGE_STREAM.error()
        # A mongos leaves its default away where a stage refuses it.
        reads = not any(stage in body for stage in LOCAL_STAGES) and isinstance(document["aggregate"], str)
        return [as_element(server.default_write_concern if stages & WRITING_STAGES else {}),
                as_element(server.default_read_concern if reads else {})]  # fmt: skip

    async def _answer(self, message: wire.Message) -> None:
        answered = message.request_id
        async for body, more in self._replies(message):
            flags = wire.MORE_TO_COME if more else 0
            reply = wire.build(self.server.clock.stamp(body), response_to=answered, flags=flags)
            # In a stream each reply answers the one before it. A driver that checks (Java's does) takes any other
            # number for a broken connection, and clears its pool with every second heartbeat.
            answered = wire.request_id_of(reply)
            if more:
                self.transport.write(self.server.compression.compress(reply, self._compressor))
            else:
                self._reply(reply)

    async def _replies(self, message: wire.Message) -> AsyncIterator[tuple[bytes, bool]]:
        """Replies to one command as BSON, each with whether more follow (only an exhaust hello has more than one)."""
        document = wire.merge_sequences(wire.decode_raw(message.body), message.sequences)
        if not document or not isinstance(document.get("$db"), str):
            raise CommandError(DATABASE_FIELD_MISSING, "OP_MSG requests require a $db argument")
        exhaust = bool(message.flags & wire.EXHAUST_ALLOWED)
        request = Request(self, self.server, next(iter(document)), document["$db"], document, exhaust)
        self.server.log.debug("Command", component="COMMAND", command=request.name, db=request.database)
        command = self.server.commands.get(request.name)
        if command is None and request.name not in HELLO_NAMES:
            raise CommandError(ErrorCode.CommandNotFound, f"no such command: '{request.name}'")
        api_version.check(request.name, document)
        if command is None:
            async for reply, more in hello_replies(request):
                yield _encode(reply), more
            return
        yield _encode(await command.run(request)), False

    async def _legacy_handshake(self, message: bytes) -> bytes:
        """The reply to an OP_QUERY: only the handshake may still come in that form. ProtocolError."""
        namespace, body = wire.parse_legacy_query(message)
        document = wire.decode_raw(body)
        if "$query" in document:
            document = dict(document["$query"])
        name = next(iter(document), "")
        if namespace.endswith(".$cmd") and name in HELLO_NAMES:
            request = Request(self, self.server, name, namespace.partition(".")[0], document)
            reply: Reply = await hello_with_mechanisms(request)
        else:
            text = f"Unsupported OP_QUERY command: {name}. The client driver may require an upgrade."
            reply = CommandError(ErrorCode.UnsupportedOpQueryCommand, text).document()
        return wire.build_legacy_reply(_encode(reply), wire.request_id_of(message))


def _encode(reply: Reply) -> bytes:
    return reply if isinstance(reply, bytes) else bson.encode({**reply, "ok": reply.get("ok", 1.0)})
