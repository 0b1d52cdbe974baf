"""One running embedded mongos: what all its client connections share."""

import asyncio
import os
import time
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId

from microshard.embedded import wire
from microshard.embedded.cluster import Cluster
from microshard.embedded.errors import CommandError
from microshard.embedded.log import ServerLog
from microshard.embedded.nodes import Pool, ReplicaSet
from microshard.embedded.options import Options
from microshard.embedded.router_mongod import RouterMongod
from microshard.embedded.server import ClientConnection, forwarded_commands

MAX_PINS = 10_000  # cursors kept on a shard or config server; a client that leaves them open loses the oldest
PING_INTERVAL = 30.0  # s between two signs of life in config.mongos, as a real mongos writes them


class Front:
    """Client connections, counters, and the cursors that live elsewhere than on the router mongod."""

    def __init__(self, options: Options, log: ServerLog, router: RouterMongod, cluster: Cluster) -> None:
        self.options = options
        self.log = log
        self.router = router
        self.cluster = cluster
        self.loop = asyncio.get_running_loop()
        self.forwarded = forwarded_commands()
        self.pins: dict[int, ReplicaSet | Pool] = {}
        self.connections: set[ClientConnection] = set()
        self.total_connections = 0
        self.command_counts: dict[str, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.deflated = (0, 0)  # bytes of replies before and after zlib
        self.inflated = (0, 0)  # bytes of requests as they came compressed, and opened
        self.started = time.time()
        self.process_id = ObjectId()
        self.stop = asyncio.Event()
        self.build_info: dict[str, Any] = {}
        self.default_concern: dict[str, Any] = {}  # what a write without a write concern is given
        self.write_concern = b""  # the cluster's default as a BSON element, empty for w: 1
        self.wire_version = 17  # of MongoDB 6.0; replaced by what the router mongod says
        self._listeners: list[asyncio.Server] = []

    async def listen(self) -> None:
        """Accept clients. OSError when the port is taken."""
        for host in self.options.hosts:
            listener = await self.loop.create_server(
                lambda: ClientConnection(self),
                host,
                self.options.port,
                backlog=self.options.backlog,
                ssl=self.cluster.config.access.downstream,
            )
            self._listeners.append(listener)

    def close(self) -> None:
        """Stop accepting and leave every client."""
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.transport.abort()

    def joined(self, connection: ClientConnection) -> None:
        """Count a client; refuse it when there are too many."""
        self.total_connections += 1
        connection.number = self.total_connections
        self.connections.add(connection)
        if len(self.connections) > self.options.max_connections:
            self.log.alert("NETWORK", "Connection refused because there are too many open connections",
                          remote=connection.peer, connectionCount=len(self.connections))  # fmt: skip
            connection.transport.abort()
        elif not self.options.quiet:
            self.log.note("NETWORK", "Connection accepted", remote=connection.peer, connectionId=connection.number,
                          connectionCount=len(self.connections))  # fmt: skip

    def left(self, connection: ClientConnection) -> None:
        """Forget a client."""
        self.connections.discard(connection)
        if not self.options.quiet:
            self.log.note("NETWORK", "Connection ended", remote=connection.peer, connectionId=connection.number,
                          connectionCount=len(self.connections))  # fmt: skip

    def pin(self, cursor: int, node: ReplicaSet | Pool) -> None:
        """Remember where a cursor lives that is not the router mongod's."""
        while len(self.pins) >= MAX_PINS:
            self.pins.pop(next(iter(self.pins)))
        self.pins[cursor] = node

    async def learn(self, pool: Pool) -> None:
        """Ask the router mongod what it is: version and wire version are what clients are told."""
        self.build_info = await pool.call("admin", {"buildInfo": 1})
        self.wire_version = (await pool.call("admin", {"hello": 1}))["maxWireVersion"]

    async def learn_defaults(self) -> None:
        """Read the cluster's default write concern: a mongos adds it to writes that name none. CommandError."""
        reply = await self.cluster.config.call("admin", {"getDefaultRWConcern": 1})
        default = {
            name: value for name, value in reply["defaultWriteConcern"].items() if name in ("w", "wtimeout", "j")
        }
        self.default_concern = {} if default.get("w") == 1 else {"writeConcern": default}
        # A document of one field is its length, the element and a zero byte.
        self.write_concern = wire.encode(self.default_concern)[4:-1]
        for forwarded in self.forwarded.values():
            if forwarded.name in ("insert", "update", "delete"):
                forwarded.concern = self.write_concern

    async def show_signs_of_life(self) -> None:
        """Write to config.mongos that this router is there, as tools expect (sh.status). Runs until cancelled."""
        name = f"{os.uname().nodename}:{self.options.port}"
        created = datetime.now(UTC)
        while True:
            alive = {
                "ping": datetime.now(UTC), "up": int(time.time() - self.started), "waiting": True, "created": created,
                "mongoVersion": self.build_info["version"], "advisoryHostFQDNs": [],
            }  # fmt: skip
            update = {"q": {"_id": name}, "u": {"$set": alive}, "upsert": True}
            try:
                await self.cluster.config.call("config", {"update": "mongos", "updates": [update]})
                await self.learn_defaults()
            except CommandError as error:
                self.log.alert("SHARDING", "Cannot reach the config server", error=str(error))
            await asyncio.sleep(PING_INTERVAL)
