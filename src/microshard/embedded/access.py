"""How the embedded mongos is known to the mongods behind it, and speaks to clients in front of it."""

import asyncio
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from microshard.embedded import scram, wire
from microshard.embedded.errors import UNAUTHORIZED, CommandError
from microshard.embedded.options import Options

if TYPE_CHECKING:
    from microshard.embedded.nodes import Link


@dataclass(frozen=True)
class Access:
    """Key and encryption of one mongos."""

    key: str = ""  # of the key file, the password of the mongods' own user; "": nobody logs in
    upstream: ssl.SSLContext | None = None  # towards the mongods
    downstream: ssl.SSLContext | None = None  # towards clients

    def __repr__(self) -> str:
        """Without the key: a message or a trace must not carry it."""
        return f"Access(key={bool(self.key)}, tls={self.upstream is not None})"


OPEN = Access()


def of_options(options: Options) -> Access:
    """The access the options ask for. OSError (ssl.SSLError among them) when a file cannot be used."""
    key = "".join(options.key_file.read_text(encoding="ascii").split()) if options.key_file else ""
    if options.certificate is None or options.ca_file is None:
        return Access(key)
    downstream = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    downstream.load_cert_chain(options.certificate)
    upstream = ssl.create_default_context(cafile=str(options.ca_file))
    upstream.load_cert_chain(options.certificate)
    return Access(key, upstream, downstream)


async def authenticate(link: "Link", key: str) -> None:
    """Log a new link in as the mongods' own user. CommandError with the mongod's words, ConnectionError."""
    conversation = scram.Conversation(scram.SYSTEM_USER, key)
    try:
        start = {"saslStart": 1, "mechanism": scram.MECHANISM, "payload": conversation.first}
        answer = await ask(link, scram.SYSTEM_DATABASE, start)
        answer = await ask(link, scram.SYSTEM_DATABASE, _next(answer, conversation.final(answer["payload"])))
        conversation.verify(answer["payload"])
        if not answer["done"]:
            await ask(link, scram.SYSTEM_DATABASE, _next(answer, b""))
    except scram.ScramError as error:
        raise CommandError(UNAUTHORIZED, f"a mongod cannot be authenticated: {error}") from error


def _next(answer: dict[str, Any], payload: bytes) -> dict[str, Any]:
    return {"saslContinue": 1, "conversationId": answer["conversationId"], "payload": payload}


class Waiter:
    """A sink for code that can wait."""

    def __init__(self) -> None:
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def upstream_reply(self, message: bytes) -> None:
        """Wake the waiting code."""
        if not self.future.done():
            self.future.set_result(message)

    def upstream_lost(self) -> None:
        """Wake the waiting code with an error."""
        if not self.future.done():
            self.future.set_exception(ConnectionError("connection closed by peer"))


async def pass_on(link: "Link", database: str, command: dict[str, Any]) -> bytes:
    """Run a command on a link of one's own, return the BSON of its reply whatever it says. ConnectionError."""
    waiter = Waiter()
    link.sink = waiter
    link.transport.write(wire.build(wire.encode({**command, "$db": database})))
    return wire.parse(await waiter.future).body


async def ask(link: "Link", database: str, command: dict[str, Any]) -> dict[str, Any]:
    """The same, decoded. CommandError for a reply that is not ok."""
    reply = wire.decode(await pass_on(link, database, command))
    if not reply.get("ok"):
        raise CommandError.from_reply(reply)
    return reply
