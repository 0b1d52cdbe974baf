"""The engine `wire`: a load through compressed connections; bytes before and after, by every process's serverStatus."""

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from microshard.model.phases.wire import WireLink, WirePhase
from microshard.model.plan import PlannedPhase
from microshard.model.result import Column, Table
from microshard.workloads.background_load import BackgroundLoad
from microshard.workloads.base import Context, Engine, PhaseError
from microshard.workloads.connections import Client, connect, on_loopback
from microshard.workloads.link import SlowLink
from microshard.workloads.servers import direct

# What pymongo compresses with; zstd is part of Python from 3.14 on.
MODULES = {"snappy": "snappy", "zlib": "zlib",
           "zstd": "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"}  # fmt: skip
COLUMNS = Column.several(
    "process; compressor; before compression, bytes; after compression, bytes; "
    "before decompression, bytes; after decompression, bytes; ratio"
)
Readings = dict[tuple[str, ...], tuple[int, ...]]


class WireEngine(Engine[WirePhase]):
    """Runs a load between two readings of the network counters of all processes."""

    keys_model = WirePhase
    link: SlowLink | None = None

    def __init__(self, phase: PlannedPhase, context: Context) -> None:
        super().__init__(phase, context)
        self.load = BackgroundLoad(self.keys.load)
        self.clients: dict[str, Client] = {}

    @classmethod
    def lacks(cls, parameters: Mapping[str, Any]) -> str | None:
        """A kernel that has the link."""
        link = WireLink.model_validate(parameters["link"])
        return SlowLink(link.kind, link.delay_ms, link.rate_mbps).why_not()

    def prepare(self) -> None:
        """Check that the client can compress; connect to every process; start link and workers."""
        for name in self.keys.client_compressors:
            try:
                importlib.import_module(MODULES[name])
            except ImportError as error:
                message = f"the client does not support {name} ({error}): pip install 'microshard[compression]'"
                raise PhaseError("NoCompressor", message) from error
        for process in self.context.job.point.processes:
            client = self.clients[process.name] = self.opened(direct(process))
            router = client.admin.command("serverStatus").get("microshard", {}).get("routerMongod")
            if router:
                uri = on_loopback(process.uri, router["port"])
                self.clients[f"{process.name}/router"] = self.opened(connect(uri, directConnection=True))
        self.known = self.context.count(self.keys.namespace)
        options: dict[str, Any] = {}
        if self.keys.client_compressors:
            options["compressors"] = ",".join(self.keys.client_compressors)
        uri = self.context.job.connection_string
        if self.keys.link.kind != "none":
            uri, options = on_loopback(uri, self._start_link()), options | {"directConnection": True}
        self.load.prepare(self, [self.keys.namespace], self.known, uri=uri, options=options)

    def _start_link(self) -> int:
        """Start the link; the port of loopback at which it begins."""
        host, _, port = self._entry_point().rpartition(":")
        link = self.keys.link
        self.link = SlowLink(link.kind, link.delay_ms, link.rate_mbps)
        self.on_close(self.link.close)
        return self.link.start(host, int(port))

    def _entry_point(self) -> str:
        """The mongos, the stand-alone mongod or the primary of the replica set."""
        processes = self.context.job.point.processes
        for process in processes:
            if process.role in {"mongos", "standalone"}:
                return process.endpoint
        for process in processes:
            if self.clients[process.name].admin.command("isMaster").get("ismaster"):
                return process.endpoint
        raise PhaseError("NoPrimary", "the replica set has no primary to send to")

    def _read_counters(self) -> tuple[Readings, Readings]:
        """Since the start of each process: bytes into and out of (de)compression, and bytes on the wire, in and out."""
        compression: Readings = {}
        wire: Readings = {}
        for process, client in self.clients.items():
            network = client.admin.command("serverStatus")["network"]
            wire[(process,)] = (
                int(network.get("physicalBytesIn", network["bytesIn"])),
                int(network.get("physicalBytesOut", network["bytesOut"])),
            )
            for name, entry in (network.get("compression") or {}).items():
                if isinstance(entry, dict) and "compressor" in entry:
                    out, back = entry["compressor"], entry["decompressor"]
                    values = (out["bytesIn"], out["bytesOut"], back["bytesIn"], back["bytesOut"])
                    compression[process, name] = tuple(map(int, values))
        return compression, wire

    def run(self) -> None:
        """Run the load between two readings of all counters. Raises PhaseError."""
        before = self._read_counters()
        self.load.measure(self, self.keys.seconds_long)
        compression, wire = map(_differences, before, self._read_counters())
        self._report(compression, wire)
        self.load.check_count(self.known, self.context.count(self.keys.namespace))

    def _report(self, compression: Readings, wire: Readings) -> None:
        """Table, figures and counters of what went over the wire during the load."""
        result, seconds = self.outcome, self.outcome.ended - self.outcome.started
        rows: list[list[Any]] = [
            [*key, *values, round(values[0] / values[1], 4) if values[1] else None]
            for key, values in sorted(compression.items())
            if any(values)
        ]
        result.table = Table(COLUMNS, rows)
        given, sent = sum(row[2] for row in rows), sum(row[3] for row in rows)
        result.counters |= {"bytes before compression": given, "bytes after compression": sent}
        result.details = {"wire": {name: {"in": into, "out": out} for (name,), (into, out) in sorted(wire.items())}}
        if operations := sum(self.load.operations.values()):
            on_the_wire = sum(out for _, out in wire.values()) / operations
            self.add_figure("bytes on the wire", "bytes/operation", on_the_wire, "lower")
        self.add_figure("compression ratio", "", given / sent if sent else 1.0, "higher")
        self.add_figure("sent by all servers", "MB/s", sum(out for _, out in wire.values()) / seconds / 1e6, "lower")
        self.add_figure("client CPU", "cores", (result.client_cpu_seconds or 0.0) / seconds, "lower")
        if self.link is not None:
            self._report_link(self.link)
        offered = ", ".join(self.keys.client_compressors) or "none"
        result.notes["compressors"] = f"the client offers {offered}; it does not count what it saves itself"

    def _report_link(self, running: SlowLink) -> None:
        """What the link carried, and what it is."""
        carried = running.carried()
        self.outcome.counters |= {"bytes to the server": carried["up"], "bytes from the server": carried["down"]}
        link = self.keys.link
        speed = "any rate" if link.rate_mbps is None else f"{link.rate_mbps:g} Mbit/s"
        how = "relay in user space" if link.kind == "relay" else f"{link.kind} in a network namespace"
        caveat = ": no real network" if link.kind == "relay" else ""
        self.outcome.notes["link"] = f"{how}, {link.delay_ms:g} ms each way, {speed}{caveat}"


def _differences(before: Readings, after: Readings) -> Readings:
    """What was counted between two readings."""
    return {
        key: tuple(new - old for old, new in zip(before.get(key, (0,) * len(values)), values, strict=True))
        for key, values in after.items()
    }


ENGINE = WireEngine
