"""Commands about the mongos itself: handshake, login, parameters, log, status, and what it refuses."""

import asyncio
import os
import resource
import secrets
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bson import Int64

from microshard.embedded import api_version, refusals, wire
from microshard.embedded.api_version import REQUIRE
from microshard.embedded.errors import CommandError, ErrorCode, checked, without_clocks
from microshard.embedded.mongod_connections import Document
from microshard.embedded.server import (
    DESCRIPTION,
    PACKAGE_VERSION,
    Command,
    Handler,
    MongosServer,
    Reply,
    Request,
    through_router,
)

HELLO_NAMES = frozenset({"hello", "isMaster", "ismaster"})
LOGIN = frozenset({"saslStart", "saslContinue"})
BEFORE_LOGIN = HELLO_NAMES | LOGIN | {"logout"}  # all that a client may send before it logs in

# --- handshake


def hello(request: Request) -> Document:
    """A mongos's handshake without sessions: drivers then use neither sessions nor retryable writes."""
    server = request.server
    reply: Document = {"isWritablePrimary": True} if request.name == "hello" else {"ismaster": True}
    reply |= {
        "msg": "isdbgrid",
        "topologyVersion": {"processId": server.process_id, "counter": Int64(0)},
        "maxBsonObjectSize": 16 * 1024 * 1024,
        "maxMessageSizeBytes": wire.MAX_CLIENT_MESSAGE,
        "maxWriteBatchSize": 100_000,
        "localTime": datetime.now(UTC),
        "connectionId": request.client.number,
        "maxWireVersion": server.max_wire_version,
        "minWireVersion": 0,
    }
    if request.document.get("helloOk"):
        reply["helloOk"] = True
    if compressors := server.compression.negotiate(request.document.get("compression")):
        reply["compression"] = compressors
    return {**reply, "ok": 1.0}


async def hello_with_mechanisms(request: Request) -> Document:
    """The same, with the mechanisms a user may log in with when the client asks for them."""
    reply, user = hello(request), request.document.get("saslSupportedMechs")
    if user is not None:
        answer = await request.cluster.config.call("admin", {"hello": 1, "saslSupportedMechs": user})
        if "saslSupportedMechs" in answer:
            reply["saslSupportedMechs"] = answer["saslSupportedMechs"]
    return reply


async def hello_replies(request: Request) -> AsyncIterator[tuple[Document, bool]]:
    """Replies to a hello: at once, or after the time a monitoring driver waits for a change (which never happens).

    A driver that allows an exhaust stream gets a reply each time, until it closes the connection.
    """
    wait = request.document.get("maxAwaitTimeMS")
    if wait is None or "topologyVersion" not in request.document:
        yield await hello_with_mechanisms(request), False
        return
    if not isinstance(wait, int) or wait < 0:
        raise CommandError(ErrorCode.BadValue, "maxAwaitTimeMS must be a non-negative integer")
    if request.mapping("topologyVersion").get("processId") == request.server.process_id:
        await asyncio.sleep(wait / 1000)
    yield hello(request), request.exhaust
    while request.exhaust:
        await asyncio.sleep(wait / 1000)
        yield hello(request), True


# --- login


def _config_server_lost(error: OSError) -> CommandError:
    return CommandError(ErrorCode.HostUnreachable, f"the config server cannot be reached: {error}")


async def _sasl_start(request: Request) -> Reply:
    """Begin a login: the conversation is relayed to the config servers, which know the users."""
    client = request.client
    if client.sasl_connection is not None:
        client.sasl_connection.transport.abort()
    try:
        client.sasl_connection = await (await request.cluster.config.primary()).connect()
    except OSError as error:
        raise _config_server_lost(error) from error
    return await _sasl_continue(request)


async def _sasl_continue(request: Request) -> Reply:
    client = request.client
    connection = client.sasl_connection
    if connection is None:
        raise CommandError(ErrorCode.ProtocolError, "No SASL session state found")
    try:
        body = await connection.call_raw(request.database, request.command)
        reply = wire.decode(body)
        if reply.get("ok") and reply.get("done"):
            status = await connection.call("admin", {"connectionStatus": 1, "showPrivileges": True})
            client.auth_info = status["authInfo"]
            client.authenticated = True
    except ConnectionError as error:
        raise _config_server_lost(error) from error
    if not reply.get("ok") or reply.get("done"):
        client.sasl_connection = None
        connection.transport.abort()
    return checked(body)


async def _logout(request: Request) -> Reply:
    request.client.authenticated = not request.server.credentials.key
    request.client.auth_info = {}
    return {}


async def _connection_status(request: Request) -> Reply:
    shown = ["authenticatedUsers", "authenticatedUserRoles"]
    if request.document.get("showPrivileges"):
        shown.append("authenticatedUserPrivileges")
    return {"authInfo": {name: request.client.auth_info.get(name, []) for name in shown}}


async def _manage_users(request: Request) -> Reply:
    """Create, change and drop users and roles: the config servers have them."""
    return await request.cluster.config.call(request.database, request.durable_command)


# --- the process


async def _ping(_request: Request) -> Reply:
    return {}


async def _get_nonce(_request: Request) -> Reply:
    return {"nonce": secrets.token_hex(8)}


async def _profile(request: Request) -> Reply:
    """A mongos profiles nothing: its level is 0 and may not be raised."""
    level = request.document["profile"]
    if not isinstance(level, (int, float)) or level > 0:
        raise CommandError(
            ErrorCode.BadValue, "Profiling is not permitted on mongoS: the profile level must be 0 or -1"
        )
    return {"was": 0, "slowms": 100, "sampleRate": 1.0}


_NOT_PARAMETERS = frozenset({*api_version.FIELDS, "comment"})


async def _set_parameter(request: Request) -> Reply:
    """Set parameters of the router mongod; requireApiVersion, with which it would refuse this process, is kept here."""
    server, command = request.server, request.command
    if REQUIRE not in command:
        return await request.cluster.through_router("admin", command)
    value = command.pop(REQUIRE)
    if command.keys() - _NOT_PARAMETERS - {request.name}:
        await request.cluster.through_router("admin", command)
    before, server.api_version_required = server.api_version_required, bool(value)
    return {"was": before}


async def _get_parameter(request: Request) -> Reply:
    """Parameters of the router mongod, and requireApiVersion, which it does not have as a shard."""
    command = request.command
    wanted = bool(command.pop(REQUIRE, False))
    own = {REQUIRE: request.server.api_version_required} if wanted or command[request.name] == "*" else {}
    if wanted and not command.keys() - _NOT_PARAMETERS - {request.name}:
        return own
    return {**await request.cluster.through_router("admin", command), **own}


async def _isdbgrid(_request: Request) -> Reply:
    return {"isdbgrid": 1, "hostname": os.uname().nodename}


async def _whatsmyuri(request: Request) -> Reply:
    return {"you": request.client.peer}


async def _build_info(request: Request) -> Reply:
    """The router mongod's, with a field that distinguishes this mongos from MongoDB's."""
    embedded = {"version": PACKAGE_VERSION, "embeddedMongos": True, "what": DESCRIPTION}
    return {**without_clocks(request.server.build_info), "microshard": embedded}


async def _get_cmd_line_opts(request: Request) -> Reply:
    options = request.server.options
    parsed: Document = {}
    for path, value in options.given.items():
        *sections, last = path.split(".")
        place = parsed
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    if options.set_parameters:
        parsed["setParameter"] = dict(options.set_parameters)
    return {"argv": options.argv, "parsed": parsed}


async def _get_log(request: Request) -> Reply:
    """The last lines of the log, or the warnings of the start."""
    log = request.server.log
    match request.document["getLog"]:
        case "*":
            return {"names": ["global", "startupWarnings"]}
        case "global":
            return {"totalLinesWritten": log.written, "log": list(log.recent)}
        case "startupWarnings":
            return {"totalLinesWritten": len(log.startup_warnings), "log": list(log.startup_warnings)}
        case other:
            raise CommandError(ErrorCode.InvalidOptions, f"no RamLog named: {other}")


async def _log_rotate(request: Request) -> Reply:
    request.server.log.rotate(reopen=request.server.options.log_reopen)
    return {}


async def _shutdown(request: Request) -> Reply:
    request.server.stop.set()
    return {}


async def _list_commands(request: Request) -> Reply:
    """The names of all commands."""
    forwarded = {command.name for command in request.server.forwarded.values()}
    return {"commands": {name: {} for name in sorted(request.server.commands.keys() | forwarded | HELLO_NAMES)}}


def _memory_mib() -> tuple[int, int]:
    """Resident and virtual memory of this process, MiB."""
    try:
        virtual, resident = (int(pages) for pages in Path("/proc/self/statm").read_text(encoding="ascii").split()[:2])
    except (OSError, ValueError):
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return resident * page >> 20, virtual * page >> 20


async def _server_status(request: Request) -> Reply:
    server, router = request.server, request.server.router
    uptime = time.time() - server.started
    forwarded: dict[str, int] = {}
    for command in server.forwarded.values():
        forwarded[command.name] = forwarded.get(command.name, 0) + command.count + command.targeted
    resident, virtual = _memory_mib()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "host": f"{os.uname().nodename}:{server.options.port}",
        "version": server.build_info["version"],
        "process": "mongos",
        "pid": Int64(os.getpid()),
        "uptime": uptime,
        "uptimeMillis": Int64(uptime * 1000),
        "uptimeEstimate": Int64(uptime),
        "localTime": datetime.now(UTC),
        "connections": {
            "current": len(server.clients),
            "available": server.options.max_connections - len(server.clients),
            "totalCreated": server.total_connections,
            "active": sum(client.busy for client in server.clients),
        },
        "extra_info": {
            "note": "fields vary by platform",
            "user_time_us": Int64(usage.ru_utime * 1e6),
            "system_time_us": Int64(usage.ru_stime * 1e6),
        },
        "mem": {"bits": 64, "resident": resident, "virtual": virtual, "supported": resident > 0},
        "metrics": {"commands": {name: {"total": Int64(n)} for name, n in sorted(server.command_counts.items())}},
        "network": {
            "bytesIn": Int64(server.bytes_in),
            "bytesOut": Int64(server.bytes_out),
            "numRequests": Int64(sum(forwarded.values()) + sum(server.command_counts.values())),
            # Towards clients; the router mongod's serverStatus has what it compresses towards the shards.
            "compression": {
                name: {direction: {"bytesIn": Int64(before), "bytesOut": Int64(after)}
                       for direction, (before, after) in counted.items()}
                for name, counted in server.compression.counted.items()
            },
        },
        "opcounters": _opcounters(forwarded, server.command_counts),
        "sharding": {"configsvrConnectionString": server.options.config_servers},
        "microshard": {"embeddedMongos": True, "what": DESCRIPTION, "routerMongod": {
            "pid": router.pid, "port": router.port, "restarts": router.restarts,
            "connections": router.pool.in_use if router.pool else 0}, "targeting": _targeting(server)},
    }  # fmt: skip


def _targeting(server: MongosServer) -> Document:
    """How many operations went straight to a shard, and how many to the router mongod."""
    commands, table = server.forwarded.values(), server.targeting
    return {
        "enabled": server.options.targeting,
        "toShards": Int64(sum(command.targeted for command in commands)),
        "toRouterMongod": Int64(sum(command.count for command in commands)),
        "staleVersions": Int64(table.refusals),
        "returnedToRouterMongod": Int64(table.returned),
        "tableReads": Int64(table.reads),
    }


# serverStatus counts these commands by themselves, all others together.
_OPERATIONS = {"insert": "insert", "query": "find", "update": "update", "delete": "delete", "getmore": "getMore"}


def _opcounters(forwarded: dict[str, int], handled: dict[str, int]) -> dict[str, Any]:
    totals = {name: count + handled.get(name, 0) for name, count in forwarded.items()}
    counts = {name: totals.get(command, 0) for name, command in _OPERATIONS.items()}
    counts["command"] = sum(forwarded.values()) + sum(handled.values()) - sum(counts.values())
    return {name: Int64(count) for name, count in counts.items()}


# --- what the embedded mongos cannot do


async def _refuse(request: Request) -> Reply:
    raise refusals.COMMANDS[request.name].error()


_ANY_DATABASE: dict[str, Handler] = {
    "ping": _ping,
    "getnonce": _get_nonce,
    "profile": _profile,
    "buildInfo": _build_info,
    "isdbgrid": _isdbgrid,
    "whatsmyuri": _whatsmyuri,
    "connectionStatus": _connection_status,
    **dict.fromkeys(("connPoolStats", "connPoolSync", "shardConnPoolStats"), through_router("connPoolStats")),
    "listCommands": _list_commands,
    "serverStatus": _server_status,
    "saslStart": _sasl_start,
    "saslContinue": _sasl_continue,
    "logout": _logout,
    **dict.fromkeys(("createUser", "updateUser", "dropUser", "dropAllUsersFromDatabase", "grantRolesToUser",
                     "revokeRolesFromUser", "createRole", "updateRole", "dropRole", "dropAllRolesFromDatabase",
                     "grantPrivilegesToRole", "revokePrivilegesFromRole", "grantRolesToRole",
                     "revokeRolesFromRole"), _manage_users),
}  # fmt: skip
_ADMIN_DATABASE: dict[str, Handler] = {
    "getCmdLineOpts": _get_cmd_line_opts,
    "getLog": _get_log,
    "getParameter": _get_parameter,
    "hostInfo": through_router("hostInfo"),
    "logRotate": _log_rotate,
    "setParameter": _set_parameter,
    "shutdown": _shutdown,
}
COMMANDS = {
    **{name: Command(handler) for name, handler in _ANY_DATABASE.items()},
    **{name: Command(handler, admin_only=True) for name, handler in _ADMIN_DATABASE.items()},
    **dict.fromkeys(refusals.COMMANDS, Command(_refuse)),
}
