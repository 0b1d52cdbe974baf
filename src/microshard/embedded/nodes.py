"""Connections from the router to the mongods behind it: one link, a pool of links, a replica set's primary."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Protocol, cast

from microshard.embedded import wire
from microshard.embedded.access import OPEN, Access, Waiter, authenticate, pass_on
from microshard.embedded.errors import HOST_UNREACHABLE, NO_PRIMARY, NOT_PRIMARY, CommandError

MAX_IDLE_LINKS = 256  # an idle connection costs the mongod a thread (1 MiB of stack): keep a burst's worth, not all
PRIMARY_DEADLINE = 10.0  # s: a mongos, too, waits for a primary (its default is 20) before it gives FailedToSatisfy…
Document = dict[str, Any]


class Sink(Protocol):
    """Who waits for the answer on a link."""

    def upstream_reply(self, message: bytes) -> None:
        """Take the whole reply message."""

    def upstream_lost(self) -> None:
        """Learn that the connection broke before the reply came."""


class NotSentError(CommandError):
    """The node did not accept a connection, so the command has certainly not run."""


class Link(wire.Framed):
    """One connection to a mongod: one request at a time, its answer to the sink that asked."""

    def __init__(self, pool: "Pool") -> None:
        super().__init__()
        self._pool = pool
        self.sink: Sink | None = None
        self.private = False  # used by one, and not given back to the pool
        self.transport = cast(asyncio.Transport, None)  # set by connection_made, before anything else can happen

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport. No handshake: a mongod takes commands without one."""
        self.transport = cast(asyncio.Transport, transport)

    def message_received(self, message: bytes) -> None:
        """Give the link back before the sink runs, so that its next request finds it."""
        sink = self.sink
        self.sink = None
        if not self.private:
            self._pool.release(self)
        if sink is not None:
            sink.upstream_reply(message)

    def protocol_failed(self, error: wire.ProtocolError) -> None:  # noqa: ARG002 - rubbish is as good as gone
        """Close; connection_lost tells the sink."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not change what follows
        """Tell the sink, forget the link."""
        self._pool.forget(self)
        sink = self.sink
        self.sink = None
        if sink is not None:
            sink.upstream_lost()


class Pool:
    """All links to one mongod. As many as there are requests at the same time; the last used is taken first."""

    def __init__(self, address: tuple[str, int], known_by: Access = OPEN) -> None:
        self.address = address
        self.access = known_by
        self.idle: list[Link] = []
        self._links: set[Link] = set()

    @property
    def in_use(self) -> int:
        """Links with a request under way."""
        return len(self._links) - len(self.idle)

    async def acquire(self) -> Link:
        """An idle link, else a new one. OSError when the mongod does not accept."""
        while self.idle:
            link = self.idle.pop()
            if not link.transport.is_closing():
                return link
        link = await self.dedicated()
        if self.access.key:
            try:
                await authenticate(link, self.access.key)
            except (ConnectionError, CommandError) as error:
                link.transport.abort()
                raise OSError(str(error)) from error
        link.private = False
        return link

    async def dedicated(self) -> Link:
        """A new link that nobody else uses and that is not logged in. OSError when the mongod does not accept."""
        context = self.access.upstream
        secured: dict[str, Any] = {"ssl": context, "server_hostname": self.address[0]} if context else {}
        _, link = await asyncio.get_running_loop().create_connection(lambda: Link(self), *self.address, **secured)
        link.private = True
        self._links.add(link)
        return link

    async def answers(self) -> bool:
        """Whether the mongod does more than accept: one that is ending keeps some connections open for a moment."""
        try:
            link = await self.dedicated()
            await pass_on(link, "admin", {"hello": 1})
        except OSError:
            return False
        link.transport.abort()
        return True

    def release(self, link: Link) -> None:
        """Take a link back."""
        if len(self.idle) < MAX_IDLE_LINKS:
            self.idle.append(link)
        else:
            link.transport.close()

    def forget(self, link: Link) -> None:
        """Drop a link that broke."""
        self._links.discard(link)
        if link in self.idle:
            self.idle.remove(link)

    def close(self) -> None:
        """Break every link; what waits on one is told."""
        for link in list(self._links):
            link.transport.abort()

    async def exchange(self, message: bytes) -> bytes:
        """Send one message and wait for its reply. CommandError HostUnreachable when the mongod is not there."""
        try:
            link = await self.acquire()
        except OSError as error:
            raise NotSentError(HOST_UNREACHABLE, self._unreachable(error)) from error
        waiter = Waiter()
        link.sink = waiter
        link.transport.write(message)
        try:
            return await waiter.future
        except ConnectionError as error:
            raise CommandError(HOST_UNREACHABLE, self._unreachable(error)) from error
        except asyncio.CancelledError:
            link.transport.abort()  # the mongod interrupts the operation of a client that left
            raise

    async def call_raw(self, database: str, command: Mapping[str, Any]) -> bytes:
        """Run a command, return the BSON of its reply whatever it says. CommandError HostUnreachable."""
        reply = await self.exchange(wire.build(wire.encode({**command, "$db": database})))
        return wire.parse(reply).body

    async def call(self, database: str, command: Mapping[str, Any]) -> Document:
        """Run a command, return its reply. CommandError for a reply that is not ok."""
        reply = wire.decode(await self.call_raw(database, command))
        if not reply.get("ok"):
            raise CommandError.from_reply(reply)
        return reply

    def _unreachable(self, why: Exception) -> str:
        host, port = self.address
        return f"{host}:{port} cannot be reached: {why}"


def parse_address(text: str) -> tuple[str, int]:
    """`host:port` as a pair. ValueError when it is none."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port")
    return host, int(port)


class ReplicaSet:
    """A replica set by its connection string `name/host:port,…`; knows which member is primary."""

    def __init__(self, connection_string: str, known_by: Access = OPEN) -> None:
        name, slash, hosts = connection_string.partition("/")
        if not slash or not name or not hosts:
            raise ValueError(f"{connection_string!r} is not replicaSet/host:port[,host:port…]")
        self.name = name
        self.connection_string = connection_string
        self.access = known_by
        self._pools = {address: Pool(address, known_by) for address in map(parse_address, hosts.split(","))}
        self._primary: Pool | None = None

    async def primary(self, deadline: float = PRIMARY_DEADLINE, poll: float = 0.02) -> Pool:
        """The pool of the member that accepts writes, looked for up to `deadline` seconds every `poll` seconds.

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
                    raise CommandError(NO_PRIMARY, f"replica set {self.name} has no primary ({self.connection_string})")
                await asyncio.sleep(poll)
        return self._primary

    async def _is_primary(self, pool: Pool) -> bool:
        try:
            hello = await pool.call("admin", {"hello": 1})
        except CommandError:
            return False
        for host in hello.get("hosts", ()):
            address = parse_address(host)
            self._pools.setdefault(address, Pool(address, self.access))
        return hello.get("isWritablePrimary") is True and hello.get("setName") == self.name

    async def call(self, database: str, command: Mapping[str, Any]) -> Document:
        """Run a command on the primary, looking for the new one when it has changed. CommandError."""
        return wire.decode(_checked(await self.call_raw(database, command)))

    async def call_raw(self, database: str, command: Mapping[str, Any]) -> bytes:
        """Run a command on the primary, return the BSON of its reply whatever it says. CommandError."""
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
            if failed(body) and wire.decode(body).get("code") in NOT_PRIMARY and time.monotonic() < end:
                self._primary = None
                await asyncio.sleep(0.05)
                continue
            return body

    def close(self) -> None:
        """Break every link to every member."""
        for pool in self._pools.values():
            pool.close()


# "ok" comes first in an error of the server: element type 1 (double), its name, eight zero bytes.
_NOT_OK = b"\x01ok\x00" + bytes(8)


def failed(body: bytes) -> bool:
    """Whether a reply says ok: 0, told from its first element; a reply in another order is decoded."""
    if body.startswith(_NOT_OK, 4):
        return True
    return _NOT_OK in body and not wire.decode(body).get("ok")


def _checked(body: bytes) -> bytes:
    if failed(body):
        raise CommandError.from_reply(wire.decode(body))
    return body


class Backoff:
    """Pauses between retries after a routing change: 1 ms at first, doubling to 50 ms, for at most 15 s."""

    # A migration's critical section is far shorter; a mongos gives up after ten attempts.
    DEADLINE = 15.0

    def __init__(self) -> None:
        self._attempt = 0
        self._end = time.monotonic() + self.DEADLINE

    async def again(self) -> bool:
        """Pause, then say whether another attempt is worth it."""
        if time.monotonic() > self._end:
            return False
        await asyncio.sleep(min(0.05, 0.001 * 2**self._attempt))
        self._attempt = min(self._attempt + 1, 10)
        return True
