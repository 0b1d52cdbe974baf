"""The long way: a command is decoded, its handler found, its answer encoded. Handshakes and exhaust hello live here."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

# Each of these declares its commands when it is imported.
from microshard.embedded import (
    about,
    catalog,
    explain,
    limits,
    logins,
    operations,
    registry,
    sharding,
    statistics,
    wire,
)
from microshard.embedded.errors import UNSUPPORTED_OP_QUERY, CommandError
from microshard.embedded.registry import Request

if TYPE_CHECKING:
    from microshard.embedded.server import ClientConnection

FAMILIES = (about, catalog, explain, limits, logins, operations, sharding, statistics)


def _encode(reply: registry.Reply) -> bytes:
    return reply if isinstance(reply, bytes) else wire.encode({**reply, "ok": reply.get("ok", 1.0)})


async def dispatch(connection: "ClientConnection", message: wire.Message) -> AsyncIterator[tuple[bytes, bool]]:
    """Answers to one command as BSON, each with whether more follow (only an exhaust hello has more than one)."""
    document = wire.merge_sequences(wire.decode_raw(message.body), message.sequences)
    if not document or not isinstance(document.get("$db"), str):
        raise CommandError(40571, "OP_MSG requests require a $db argument")
    request = Request(
        connection, connection.front, next(iter(document)), document["$db"], document,
        exhaust=bool(message.flags & wire.EXHAUST_ALLOWED),
    )  # fmt: skip
    if connection.front.log.verbosity:
        connection.front.log.trace("COMMAND", "Command", command=request.name, db=request.database)
    if request.name in about.HELLO:
        async for reply, more in about.hello_stream(request):
            yield _encode(reply), more
        return
    yield _encode(await registry.run(request)), False


async def legacy_handshake(connection: "ClientConnection", message: bytes) -> bytes:
    """The reply to an OP_QUERY: only the handshake may still come in that form. ProtocolError."""
    namespace, body = wire.parse_legacy_query(message)
    document = wire.decode_raw(body)
    if "$query" in document:
        document = dict(document["$query"])
    name = next(iter(document), "")
    request = Request(connection, connection.front, name, namespace.partition(".")[0], document)
    if namespace.endswith(".$cmd") and name in about.HELLO:
        reply = await about.hello_with_mechanisms(request)
    else:
        reply = CommandError(UNSUPPORTED_OP_QUERY, f"Unsupported OP_QUERY command: {name}. "
                             "The client driver may require an upgrade.").document()  # fmt: skip
    return wire.build_legacy_reply(_encode(reply), wire.request_id_of(message))
