"""Connections from the router to mongods: credentials, login by key file, pools, and a replica set's primary."""

import asyncio
import base64
import hashlib
import hmac
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import bson

from microshard.embedded import wire
from microshard.embedded.errors import NOT_PRIMARY, CommandError, ErrorCode, checked, failed_with

MAX_IDLE = 256  # an idle connection costs the mongod a thread (1 MiB of stack): keep a burst's worth, not all
PRIMARY_DEADLINE = 10.0  # s to wait for a primary before FailedToSatisfyReadPreference (a mongos waits 20)
Document = dict[str, Any]


@dataclass(frozen=True)
class Credentials:
    """Cluster key and TLS settings of one mongos."""

    # Content of the key file, the password of the mongods' user __system; "": no authentication.
    key: str = field(default="", repr=False)
    mongod_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None


NO_CREDENTIALS = Credentials()


def read_credentials(key_file: Path | None, certificate: Path | None, ca_file: Path | None) -> Credentials:
    """Read key file and certificates. OSError (ssl.SSLError among them) when one of them cannot be used."""
    key = "".join(key_file.read_text(encoding="ascii").split()) if key_file else ""
    if certificate is None or ca_file is None:
        return Credentials(key)
    client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client_tls.load_cert_chain(certificate)
    mongod_tls = ssl.create_default_context(cafile=str(ca_file))
    mongod_tls.load_cert_chain(certificate)
    return Credentials(key, mongod_tls, client_tls)


class ScramError(Exception):
    """The server's messages are not those of one that knows the password."""


class ScramClient:
    """One SCRAM-SHA-256 login (RFC 5802, RFC 7677): `first`, then `final`, then `verify`.

    User names and passwords are ASCII without blanks, `,` and `=` here, so SASLprep is not needed.
    """

    def __init__(self, user: str, password: str, nonce: str | None = None) -> None:
        self._password = password
        self._nonce = nonce or base64.b64encode(os.urandom(18)).decode()
        self._bare = f"n={user},r={self._nonce}"
        self._server_signature = b""

    @property
    def first(self) -> bytes:
        """The client's first message: no channel binding, no other identity."""
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        """The client's proof for the server's answer to `first`. ScramError when the answer is not valid."""
        fields = _scram_fields(answer)
        try:
            nonce, salt, rounds = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
        except (KeyError, ValueError):
            raise ScramError(f"not an answer of SCRAM-SHA-256: {answer!r}") from None
        if not nonce.startswith(self._nonce):
            raise ScramError("the server answers with another nonce")
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), salt, rounds)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={nonce}"  # biws: the "n,," of `first` in base 64
        signed = f"{self._bare},{answer.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, answer: bytes) -> None:
        """ScramError unless the server knows the password too."""
        if not hmac.compare_digest(base64.b64decode(_scram_fields(answer).get("v", "")), self._server_signature):
            raise ScramError("the server does not know the password itself")


def _scram_fields(message: bytes) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.decode().split(",")}


class ReplyReceiver(Protocol):
    """What waits for the reply on a connection."""

    def reply_received(self, message: bytes) -> None:
        """Take the whole reply message."""

    def connection_broken(self) -> None:
        """Handle that the connection broke before the reply came."""


class ReplyFuture(asyncio.Future[bytes]):
    """A receiver that a coroutine can await."""

    def reply_received(self, message: bytes) -> None:
        """Resume the waiting coroutine."""
        if not self.done():
            self.set_result(message)

    def connection_broken(self) -> None:
        """Resume the waiting coroutine with an error."""
        if not self.done():
            self.set_exception(ConnectionError("connection closed by peer"))


class MessageExchange:
    """Runs commands by exchanging messages with one mongod."""

    async def exchange(self, message: bytes) -> bytes:
        """Send one message and wait for its reply."""
        raise NotImplementedError

    async def call_raw(self, database: str, command: Mapping[str, Any]) -> bytes:
        """Run a command, return the BSON of its reply, which may be an error."""
        reply = await self.exchange(wire.build(bson.encode({**command, "$db": database})))
        return wire.parse(reply).body

    async def call(self, database: str, command: Mapping[str, Any]) -> Document:
        """Run a command, return its reply. CommandError for a reply that is not ok."""
        return checked(await self.call_raw(database, command))


class NotSentError(CommandError):
    """The mongod did not accept a connection, so the command has certainly not run."""


class MongodConnection(wire.MessageProtocol, MessageExchange):
    """One connection to a mongod: one request at a time, whose reply goes to `receiver`."""

    def __init__(self, pool: "MongodPool") -> None:
        super().__init__()
        self.pool = pool
        self.receiver: ReplyReceiver | None = None
        self.dedicated = False  # used by one owner and not returned to the pool
        self.transport = cast(asyncio.Transport, None)  # set by connection_made, before anything else can happen

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport. No handshake: a mongod takes commands without one."""
        self.transport = cast(asyncio.Transport, transport)

    def message_received(self, message: bytes) -> None:
        """Return to the pool before the receiver runs, so that its next request finds this connection."""
        receiver = self.receiver
        self.receiver = None
        if not self.dedicated:
            self.pool.release(self)
        if receiver is not None:
            receiver.reply_received(message)

    def protocol_failed(self, error: wire.ProtocolError) -> None:  # noqa: ARG002 - any garbage ends the connection
        """Close; connection_lost informs the receiver."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not change what follows
        """Leave the pool and inform the receiver."""
        self.pool.discard(self)
        receiver = self.receiver
        self.receiver = None
        if receiver is not None:
            receiver.connection_broken()

    async def exchange(self, message: bytes) -> bytes:
        """Send one message and wait for its reply. ConnectionError."""
        self.receiver = reply = ReplyFuture()
        self.transport.write(message)
        try:
            return await reply
        except asyncio.CancelledError:
            # The mongod interrupts the operation of a client that left. But when the reply has come already, the
            # connection is back in the pool, and its request may be another client's by now.
            if self.receiver is reply:
                self.transport.abort()
            raise

    async def log_in(self, key: str) -> None:
        """Log in as the mongods' internal user, whose password is the cluster key. CommandError, ConnectionError."""
        scram = ScramClient("__system", key)
        try:
            start = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": scram.first}
            reply = await self.call("local", start)
            continuation = {"saslContinue": 1, "conversationId": reply["conversationId"]}
            reply = await self.call("local", {**continuation, "payload": scram.final(reply["payload"])})
            scram.verify(reply["payload"])
            if not reply["done"]:
                await self.call("local", {**continuation, "payload": b""})
        except ScramError as error:
            raise CommandError(ErrorCode.Unauthorized, f"a mongod cannot be authenticated: {error}") from error


class MongodPool(MessageExchange):
    """All connections to one mongod: as many as there are concurrent requests; the last used is taken first."""

    def __init__(self, address: tuple[str, int], credentials: Credentials = NO_CREDENTIALS) -> None:
        self.address = address
        self.credentials = credentials
        self.idle: list[MongodConnection] = []
        self._connections: set[MongodConnection] = set()

    @property
    def in_use(self) -> int:
        """Number of connections with a request under way."""
        return len(self._connections) - len(self.idle)

    async def acquire(self) -> MongodConnection:
        """An idle connection, else a new one. OSError when the mongod does not accept."""
        while self.idle:
            connection = self.idle.pop()
            if not connection.transport.is_closing():
                return connection
        connection = await self.connect()
        if self.credentials.key:
            try:
                await connection.log_in(self.credentials.key)
            except (ConnectionError, CommandError) as error:
                connection.transport.abort()
                raise OSError(str(error)) from error
        connection.dedicated = False
        return connection

    async def connect(self) -> MongodConnection:
        """A new dedicated connection that is not logged in. OSError when the mongod does not accept."""
        tls = self.credentials.mongod_tls
        options: dict[str, Any] = {"ssl": tls, "server_hostname": self.address[0]} if tls else {}
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: MongodConnection(self), *self.address, **options)
        connection.dedicated = True
        self._connections.add(connection)
        return connection

    async def answers(self) -> bool:
        """Whether the mongod does more than accept: one that is ending keeps some connections open for a moment."""
        try:
            connection = await self.connect()
            await connection.call_raw("admin", {"hello": 1})
        except OSError:
            return False
        connection.transport.abort()
        return True

    def release(self, connection: MongodConnection) -> None:
        """Return a connection to the pool."""
        if len(self.idle) < MAX_IDLE:
            self.idle.append(connection)
        else:
            connection.transport.close()

    def discard(self, connection: MongodConnection) -> None:
        """Drop a connection that broke."""
        self._connections.discard(connection)
        if connection in self.idle:
            self.idle.remove(connection)

    def close(self) -> None:
        """Break every connection; receivers that wait on one get an error."""
        for connection in list(self._connections):
            connection.transport.abort()

    async def exchange(self, message: bytes) -> bytes:
        """Send one message and wait for its reply. CommandError HostUnreachable when the mongod cannot be reached."""
        host, port = self.address
        try:
            connection = await self.acquire()
        except OSError as error:
            raise NotSentError(ErrorCode.HostUnreachable, f"{host}:{port} cannot be reached: {error}") from error
        try:
            return await connection.exchange(message)
        except ConnectionError as error:
            raise CommandError(ErrorCode.HostUnreachable, f"{host}:{port} cannot be reached: {error}") from error


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


class ReplicaSetClient:
    """Runs commands on the primary of a replica set, given by its connection string `name/host:port,…`."""

    def __init__(self, connection_string: str, credentials: Credentials = NO_CREDENTIALS) -> None:
        self.name, _, hosts = connection_string.partition("/")
        self.connection_string = connection_string
        self.credentials = credentials
        self._pools = {address: MongodPool(address, credentials) for address in map(_address, hosts.split(","))}
        self._primary: MongodPool | None = None

    @property
    def known_primary(self) -> MongodPool | None:
        """The pool of the primary if it has been found, without a search."""
        return self._primary

    def primary_lost(self, pool: MongodPool) -> None:
        """Search for the primary again before the next command, if it still is this one."""
        if self._primary is pool:
            self._primary = None

    async def primary(self, deadline: float = PRIMARY_DEADLINE) -> MongodPool:
        """The pool of the primary, searched for up to `deadline` seconds.

        CommandError FailedToSatisfyReadPreference when there is none.
        """
        end = time.monotonic() + deadline
        while self._primary is None:
            for pool in list(self._pools.values()):
                if await self._is_primary(pool):
                    self._primary = pool
                    break
            else:
                if time.monotonic() > end:
                    message = f"replica set {self.name} has no primary ({self.connection_string})"
                    raise CommandError(ErrorCode.FailedToSatisfyReadPreference, message)
                await asyncio.sleep(0.02)
        return self._primary

    async def _is_primary(self, pool: MongodPool) -> bool:
        try:
            hello = await pool.call("admin", {"hello": 1})
        except CommandError:
            return False
        for address in map(_address, hello.get("hosts", ())):
            if address not in self._pools:
                self._pools[address] = MongodPool(address, self.credentials)
        return hello.get("isWritablePrimary") is True and hello.get("setName") == self.name

    async def call(self, database: str, command: Mapping[str, Any]) -> Document:
        """Run a command on the primary, return its reply. CommandError."""
        return checked(await self.call_raw(database, command))

    async def call_raw(self, database: str, command: Mapping[str, Any]) -> bytes:
        """Run a command on the primary, searching again when it has changed; the BSON of its reply. CommandError."""
        end = time.monotonic() + PRIMARY_DEADLINE
        while True:
            pool = await self.primary()
            try:
                body = await pool.call_raw(database, command)
            except NotSentError:
                self._primary = None
                if time.monotonic() > end:
                    raise
                continue
            except CommandError:
                # What was under way when the connection broke may have been done: the caller decides.
                self._primary = None
                raise
            if failed_with(body, NOT_PRIMARY) and time.monotonic() < end:
                self._primary = None
                await asyncio.sleep(0.05)
                continue
            return body

    def close(self) -> None:
        """Break every connection to every member."""
        for pool in self._pools.values():
            pool.close()


class RetryDelay:
    """Pauses between retries after a routing change: 1 ms at first, doubling to 50 ms, for at most 15 s.

    A migration's critical section is far shorter; a mongos gives up after ten attempts.
    """

    DEADLINE = 15.0

    def __init__(self) -> None:
        self._attempt = 0
        self._end = time.monotonic() + self.DEADLINE

    async def wait(self) -> bool:
        """Pause, then return whether another attempt is worthwhile."""
        if time.monotonic() > self._end:
            return False
        await asyncio.sleep(min(0.05, 0.001 * 2**self._attempt))
        self._attempt = min(self._attempt + 1, 10)
        return True
