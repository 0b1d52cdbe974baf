"""Commands about the router itself: what it is, how it was started, how it does."""

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bson import Int64

from microshard import __version__
from microshard.embedded import wire
from microshard.embedded.errors import BAD_VALUE, CLOCK_FIELDS, INVALID_OPTIONS, CommandError
from microshard.embedded.nodes import Document
from microshard.embedded.registry import HANDLERS, Reply, Request, checked, command

HELLO = frozenset({"hello", "isMaster", "ismaster"})
WHAT = "embedded mongos of microshard: a front in Python over MongoDB's own router code in a mongod; one machine only"


def hello(request: Request) -> Document:
    """What a mongos says of itself, without sessions: drivers then use neither them nor retryable writes."""
    front = request.front
    answer: Document = {"isWritablePrimary": True} if request.name == "hello" else {"ismaster": True}
    answer |= {
        "msg": "isdbgrid",
        "topologyVersion": {"processId": front.process_id, "counter": Int64(0)},
        "maxBsonObjectSize": 16 * 1024 * 1024,
        "maxMessageSizeBytes": wire.MAX_CLIENT_MESSAGE,
        "maxWriteBatchSize": 100_000,
        "localTime": datetime.now(UTC),
        "connectionId": request.connection.number,
        "maxWireVersion": front.wire_version,
        "minWireVersion": 0,
    }
    if request.document.get("helloOk"):
        answer["helloOk"] = True
    offered = request.document.get("compression")
    allowed = front.options.compressors
    if isinstance(offered, list) and "zlib" in offered and (allowed is None or "zlib" in allowed.split(",")):
        answer["compression"] = ["zlib"]
    return {**answer, "ok": 1.0}


async def hello_with_mechanisms(request: Request) -> Document:
    """The same, with the mechanisms a user may log in with where the client asks for them."""
    answer, user = hello(request), request.document.get("saslSupportedMechs")
    if user is not None and request.cluster.config.access.key:
        told = await request.cluster.config.call("admin", {"hello": 1, "saslSupportedMechs": user})
        if "saslSupportedMechs" in told:
            answer["saslSupportedMechs"] = told["saslSupportedMechs"]
    return answer


async def hello_stream(request: Request) -> AsyncIterator[tuple[Document, bool]]:
    """The answers to a hello: at once, or after the time a monitoring driver waits for a change (there is none).

    A driver that allows an exhaust stream gets an answer each time, until it closes the connection.
    """
    wait = request.document.get("maxAwaitTimeMS")
    if wait is None or "topologyVersion" not in request.document:
        yield await hello_with_mechanisms(request), False
        return
    if not isinstance(wait, int) or wait < 0:
        raise CommandError(BAD_VALUE, "maxAwaitTimeMS must be a non-negative integer")
    known = request.mapping("topologyVersion").get("processId")
    if known != request.front.process_id:
        yield hello(request), request.exhaust
    else:
        await asyncio.sleep(wait / 1000)
        yield hello(request), request.exhaust
    while request.exhaust:
        await asyncio.sleep(wait / 1000)
        yield hello(request), True


@command("ping")
async def _ping(_request: Request) -> Reply:
    return {}


@command("buildInfo", "buildinfo")
async def _build_info(request: Request) -> Reply:
    embedded = {"version": __version__, "embeddedMongos": True, "what": WHAT}
    return {**{k: v for k, v in request.front.build_info.items() if k not in CLOCK_FIELDS}, "microshard": embedded}


@command("isdbgrid")
async def _isdbgrid(_request: Request) -> Reply:
    return {"isdbgrid": 1, "hostname": os.uname().nodename}


@command("whatsmyuri")
async def _whatsmyuri(request: Request) -> Reply:
    return {"you": request.connection.peer}


@command("connectionStatus")
async def _connection_status(request: Request) -> Reply:
    told = request.connection.auth_info
    info: Document = {name: told.get(name, []) for name in ("authenticatedUsers", "authenticatedUserRoles")}
    if request.document.get("showPrivileges"):
        info["authenticatedUserPrivileges"] = told.get("authenticatedUserPrivileges", [])
    return {"authInfo": info}


@command("getCmdLineOpts", admin_only=True)
async def _command_line(request: Request) -> Reply:
    parsed: Document = {}
    for path, value in request.front.options.given.items():
        *sections, last = path.split(".")
        place = parsed
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    if request.front.options.set_parameters:
        parsed["setParameter"] = dict(request.front.options.set_parameters)
    return {"argv": request.front.options.argv, "parsed": parsed}


@command("hostInfo", admin_only=True)
async def _host_info(request: Request) -> Reply:
    return checked(await request.cluster.through_router("admin", {"hostInfo": 1}))


@command("getParameter", "setParameter", admin_only=True)
async def _parameters(request: Request) -> Reply:
    # The parameters of the routing code are the router mongod's: it is where that code runs.
    return checked(await request.cluster.through_router("admin", request.passed_on))


@command("getLog", admin_only=True)
async def _get_log(request: Request) -> Reply:
    log = request.front.log
    match request.document["getLog"]:
        case "*":
            return {"names": ["global", "startupWarnings"]}
        case "global":
            return {"totalLinesWritten": log.written, "log": list(log.recent)}
        case "startupWarnings":
            return {"totalLinesWritten": len(log.warnings), "log": list(log.warnings)}
        case other:
            raise CommandError(INVALID_OPTIONS, f"no RamLog named: {other}")


@command("logRotate", admin_only=True)
async def _log_rotate(request: Request) -> Reply:
    request.front.log.rotate(reopen=request.front.options.log_reopen)
    return {}


@command("shutdown", admin_only=True)
async def _shutdown(request: Request) -> Reply:
    request.front.stop.set()
    return {}


@command("listCommands")
async def _list_commands(request: Request) -> Reply:
    short_way = {forwarded.name for forwarded in request.front.forwarded.values()}
    return {"commands": {name: {} for name in sorted(HANDLERS.keys() | short_way | HELLO)}}


@command("connPoolStats", "connPoolSync", "shardConnPoolStats")
async def _connection_pools(request: Request) -> Reply:
    return checked(await request.cluster.through_router("admin", {"connPoolStats": 1}))


def _memory_mib() -> tuple[int, int]:
    """Resident and virtual memory of this process, MiB."""
    try:
        virtual, resident = (int(pages) for pages in Path("/proc/self/statm").read_text(encoding="ascii").split()[:2])
    except (OSError, ValueError):
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return resident * page >> 20, virtual * page >> 20


@command("serverStatus")
async def _server_status(request: Request) -> Reply:
    front = request.front
    uptime = time.time() - front.started
    short_way: dict[str, int] = {}
    for forwarded in front.forwarded.values():
        short_way[forwarded.name] = short_way.get(forwarded.name, 0) + forwarded.count
    resident, virtual = _memory_mib()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "host": f"{os.uname().nodename}:{front.options.port}",
        "version": front.build_info["version"],
        "process": "mongos",
        "pid": Int64(os.getpid()),
        "uptime": uptime,
        "uptimeMillis": Int64(uptime * 1000),
        "uptimeEstimate": Int64(uptime),
        "localTime": datetime.now(UTC),
        "connections": {
            "current": len(front.connections),
            "available": front.options.max_connections - len(front.connections),
            "totalCreated": front.total_connections,
            "active": sum(connection.busy for connection in front.connections),
        },
        "extra_info": {
            "note": "fields vary by platform",
            "user_time_us": Int64(used.ru_utime * 1e6),
            "system_time_us": Int64(used.ru_stime * 1e6),
        },
        "mem": {"bits": 64, "resident": resident, "virtual": virtual, "supported": resident > 0},
        "metrics": {"commands": {name: {"total": Int64(n)} for name, n in sorted(front.command_counts.items())}},
        "network": {
            "bytesIn": Int64(front.bytes_in),
            "bytesOut": Int64(front.bytes_out),
            "numRequests": Int64(sum(short_way.values()) + sum(front.command_counts.values())),
            # Towards clients; what the router mongod compresses towards the shards stands in its own serverStatus.
            "compression": {"zlib": {
                "compressor": {"bytesIn": Int64(front.deflated[0]), "bytesOut": Int64(front.deflated[1])},
                "decompressor": {"bytesIn": Int64(front.inflated[0]), "bytesOut": Int64(front.inflated[1])}}},
        },
        "opcounters": _opcounters(short_way, front.command_counts),
        "sharding": {"configsvrConnectionString": front.options.config_servers},
        "microshard": {"embeddedMongos": True, "what": WHAT, "routerMongod": {
            "pid": front.router.pid, "port": front.router.port, "restarts": front.router.restarts,
            "connections": front.router.pool.in_use if front.router.pool else 0}},
    }  # fmt: skip


def _opcounters(short_way: dict[str, int], long_way: dict[str, int]) -> dict[str, Any]:
    counts = {
        "insert": short_way["insert"],
        "query": short_way["find"],
        "update": short_way["update"],
        "delete": short_way["delete"],
        "getmore": short_way["getMore"] + long_way.get("getMore", 0),
        "command": short_way["aggregate"] + sum(long_way.values()) - long_way.get("getMore", 0),
    }
    return {name: Int64(count) for name, count in counts.items()}
