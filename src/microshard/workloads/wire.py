"""The engine `wire`: a load through compressed connections; bytes before and after, by every process's serverStatus."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from typing import Any

from microshard.model.job import Phase
from microshard.model.phases.wire import WireLink, WirePhase
from microshard.workloads.access import on_loopback
from microshard.workloads.background_load import BackgroundLoad
from microshard.workloads.base import Client, Context, Engine, Metric, PhaseError, connect, cpu_seconds, read_keys
from microshard.workloads.link import KernelLink, Relay
from microshard.workloads.storage import direct

MODULES = {"snappy": "snappy", "zstd": "zstandard", "zlib": "zlib"}  # that pymongo compresses with
Counters = dict[tuple[str, str], tuple[int, int, int, int]]  # (process, compressor) → given, sent; received, opened


class WireEngine(Engine):
    """See WirePhase."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, WirePhase)
        self.load = BackgroundLoad(self.keys.load)
        self.link: Relay | KernelLink | None = None
        self.clients: dict[str, Client] = {}
        self.known = 0

    @classmethod
    def lacks(cls, parameters: Mapping[str, Any]) -> str | None:
        """A kernel that has the link."""
        link = WireLink.model_validate(parameters["link"])
        if link.kind not in {"netem", "tbf"}:
            return None
        return KernelLink(link.kind, link.delay_ms, link.rate_mbps).why_not()

    def prepare(self) -> None:
        """See that the client can compress; connect to every process; start relay and workers."""
        for name in self.keys.client_compressors:
            if importlib.util.find_spec(MODULES[name]) is None:
                package = {"snappy": "python-snappy", "zstd": "zstandard"}[name]
                raise PhaseError("NoCompressor", f"the client cannot speak {name}: Python package {package} is missing")
        for process in self.context.job.point.processes:
            self.clients[process.name] = client = direct(process)
            router = client.admin.command("serverStatus").get("microshard", {}).get("routerMongod")
            if router:
                uri = on_loopback(process.uri, router["port"])
                self.clients[f"{process.name}/router"] = connect(uri, directConnection=True)
        database, _, collection = self.keys.namespace.partition(".")
        with self.context.connect() as client:
            self.known = client[database][collection].count_documents({})
        options: dict[str, Any] = {}
        if self.keys.client_compressors:
            options["compressors"] = ",".join(self.keys.client_compressors)
        uri = self.context.job.connection_string
        if self.keys.link.kind != "none":
            uri, options = on_loopback(uri, self._start_link()), options | {"directConnection": True}
        self.load.prepare(
            uri,
            [(database, collection)],
            known=self.known,
            key_ranges=self.context.job.point.key_ranges(self.keys.namespace),
            options=options,
        )

    def _start_link(self) -> int:
        """The port of loopback at which the link begins."""
        host, _, port = self._door().rpartition(":")
        link = self.keys.link
        if link.kind == "relay":
            work = {"host": host, "port": int(port), "delay_ms": link.delay_ms, "rate_mbps": link.rate_mbps}
            self.link = Relay(work)
            return self.link.port
        self.link = KernelLink(link.kind, link.delay_ms, link.rate_mbps)
        return self.link.start(host, int(port))

    def _door(self) -> str:
        processes = self.context.job.point.processes
        for process in processes:
            if process.role in {"mongos", "standalone"}:
                return process.endpoint
        for process in processes:
            if self.clients[process.name].admin.command("hello").get("isWritablePrimary"):
                return process.endpoint
        raise PhaseError("NoPrimary", "the replica set has no primary to send to")

    def _counters(self) -> tuple[Counters, dict[str, tuple[int, int]]]:
        """What every process has compressed and opened since its start, and its bytes on the wire, in and out."""
        found: Counters = {}
        wire = {}
        for process, client in self.clients.items():
            network = client.admin.command("serverStatus")["network"]
            wire[process] = (
                int(network.get("physicalBytesIn", network["bytesIn"])),
                int(network.get("physicalBytesOut", network["bytesOut"])),
            )
            for name, entry in (network.get("compression") or {}).items():
                if isinstance(entry, dict) and "compressor" in entry:
                    out, back = entry["compressor"], entry["decompressor"]
                    found[process, name] = (
                        int(out["bytesIn"]), int(out["bytesOut"]), int(back["bytesIn"]), int(back["bytesOut"]),
                    )  # fmt: skip
        return found, wire

    def run(self) -> None:
        """The load between two readings of all counters."""
        result = self.outcome
        cpu = cpu_seconds()
        before, wire_before = self._counters()
        result.started = self.load.begin("load")
        try:
            while (left := result.started + self.keys.seconds_long - time.time()) > 0:
                self.load.check()
                time.sleep(min(left, 0.1))
                done = min(int(time.time() - result.started), int(self.keys.seconds_long))
                self.context.progress.report(self.phase.name, done, int(self.keys.seconds_long), "s")
            self.load.end()
        finally:
            result.ended = self.load.ended or time.time()
            result.client_cpu_seconds = cpu_seconds() - cpu + self.load.cpu_seconds
            result.counters = {"documents": self.load.inserted, "errors": int(self.load.failed)}
            result.latency, result.windows = self.load.latency(), self.load.windows()
        after, wire_after = self._counters()
        self._tell(
            {
                key: tuple(b - a for a, b in zip(before.get(key, (0,) * 4), now, strict=True))
                for key, now in after.items()
            },
            {key: tuple(b - a for a, b in zip(wire_before[key], now, strict=True)) for key, now in wire_after.items()},
        )
        self._verify()

    def _tell(self, used: dict[tuple[str, str], tuple[int, ...]], wire: dict[str, tuple[int, ...]]) -> None:
        result, seconds = self.outcome, self.outcome.ended - self.outcome.started
        rows: list[list[Any]] = [[process, name, *values, round(values[0] / values[1], 4) if values[1] else None]
                for (process, name), values in sorted(used.items()) if any(values)]  # fmt: skip
        columns = [("process", ""), ("compressor", ""), ("before compression", "bytes"), ("after compression", "bytes"),
                   ("before decompression", "bytes"), ("after decompression", "bytes"), ("ratio", "")]  # fmt: skip
        result.table = {"columns": [{"name": n, "unit": u} for n, u in columns], "rows": rows}
        given, sent = sum(row[2] for row in rows), sum(row[3] for row in rows)
        result.counters |= {"bytes before compression": given, "bytes after compression": sent}
        result.details = {"wire": {name: {"in": values[0], "out": values[1]} for name, values in sorted(wire.items())}}
        result.figures.append(Metric("compression ratio", "", given / sent if sent else 1.0, "higher"))
        total = sum(values[1] for values in wire.values())
        result.figures.append(Metric("sent by all servers", "MB/s", total / seconds / 1e6, "lower"))
        cpu = result.client_cpu_seconds / seconds
        result.figures.append(Metric("client CPU", "cores", cpu, "lower"))
        if self.link is not None:
            carried = self.link.carried()
            result.counters |= {"bytes to the door": carried["up"], "bytes from the door": carried["down"]}
            link = self.keys.link
            speed = "any rate" if link.rate_mbps is None else f"{link.rate_mbps:g} Mbit/s"
            made = "relay in user space" if link.kind == "relay" else f"{link.kind} in a network namespace"
            caveat = ": no real network" if link.kind == "relay" else ""
            result.notes["link"] = f"{made}, {link.delay_ms:g} ms each way, {speed}{caveat}"
        offered = ", ".join(self.keys.client_compressors) or "none"
        result.notes["compressors"] = f"the client offers {offered}; it does not count what it saves itself"
        rate = self.load.inserted / seconds
        result.metric = Metric("load rate", "documents/s", rate, "higher")
        result.samples = [rate]

    def _verify(self) -> None:
        database, _, collection = self.keys.namespace.partition(".")
        with self.context.connect() as client:
            found = client[database][collection].count_documents({})
        if found != self.known + self.load.inserted:
            raise PhaseError("WrongCount", f"{self.known} + {self.load.inserted} documents acknowledged, {found} there")

    def close(self) -> None:
        """End load, relay and connections."""
        self.load.close()
        if self.link is not None:
            self.link.close()
        for client in self.clients.values():
            client.close()


ENGINE = WireEngine
