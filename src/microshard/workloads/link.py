"""A slow link between the client and the entry point of a cluster: relayed in user space, or made by the kernel.

`python -m microshard.workloads.link` is a relay process. Standard input: one JSON line {"host", "port", "delay_ms",
"rate_mbps", "parent"}, later "stop". Standard output: {"port"} where it listens on loopback, at the end {"up", "down"}:
bytes it has carried to the server and from it. All connections share the link. A piece of data leaves when those before
it have left at the given rate, and arrives `delay_ms` later; each direction has the full rate, as in a full-duplex
line. It is no network: no packets, no loss. "bind" is another address to listen on. With "namespace" it connects from a
new network namespace and reads the port to connect to from a second line.
"""

import asyncio
import ctypes
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from microshard.hostlib.proc import die_with_parent
from microshard.workloads.base import PhaseError

PIECE = 16_384  # bytes read at a time: 1 ms of a link of 131 Mbit/s
QUEUE = 64  # pieces in transit on a connection; beyond that the sender has to wait, as with full socket buffers
CLONE_NEWNET = 0x40000000  # linux/sched.h
PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux"}


# The relay process


@dataclass(slots=True)
class Direction:
    """One direction of the link."""

    delay: float  # s
    bytes_per_second: float | None
    carried: int = 0
    free_at: float = 0.0

    def arrival(self, size: int, now: float) -> float:
        """When a piece that is sent now reaches the other end."""
        self.carried += size
        if self.bytes_per_second:
            self.free_at = max(self.free_at, now) + size / self.bytes_per_second
            return self.free_at + self.delay
        return now + self.delay


@dataclass(slots=True)
class RelayServer:
    """Accepts connections and carries them to the server."""

    host: str
    port: int
    up: Direction
    down: Direction

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        try:
            server_reader, server_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            carry(reader, server_writer, self.up), carry(server_reader, writer, self.down), return_exceptions=True
        )


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
    """Bytes from one socket to the other, late and no faster than the link."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE)

    async def deliver() -> None:
        while True:
            at, data = await queue.get()
            await asyncio.sleep(max(0.0, at - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    delivery = loop.create_task(deliver())
    try:
        while data := await reader.read(PIECE):
            await queue.put((direction.arrival(len(data), loop.time()), data))
    except OSError:
        pass
    await queue.put((direction.arrival(0, loop.time()), b""))
    await delivery


def enter_new_network() -> None:
    """Connect from a new network namespace from now on; sockets that listen stay where they were."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no network namespace: {os.strerror(number)}")


async def run(work: dict[str, Any]) -> None:
    """Listen until the line "stop"."""
    rate = None if work["rate_mbps"] is None else work["rate_mbps"] * 1e6 / 8
    delay = work["delay_ms"] / 1000
    relay = RelayServer(work["host"], work["port"], Direction(delay, rate), Direction(delay, rate))
    server = await asyncio.start_server(relay.serve, work.get("bind", "127.0.0.1"), 0)
    in_background = asyncio.get_running_loop().run_in_executor
    if work.get("namespace"):
        enter_new_network()
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    if work.get("namespace"):
        # The parent sets up the network of the namespace meanwhile and then sends the port to connect to.
        relay.port = int(json.loads(await in_background(None, sys.stdin.readline))["port"])
        print("{}", flush=True)
    await in_background(None, sys.stdin.readline)
    print(json.dumps({"up": relay.up.carried, "down": relay.down.carried}), flush=True)


def main() -> int:
    """The command; returns the exit code."""
    work = json.loads(sys.stdin.readline())
    die_with_parent(work["parent"])
    asyncio.run(run(work))
    return 0


# The parent's side


class Relay:
    """A relay process."""

    def __init__(self, **work: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "microshard.workloads.link"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.port = int(self.send(json.dumps(work | {"parent": os.getpid()}))["port"])

    def send(self, line: str) -> dict[str, Any]:
        """Send a line and return the answer. Raises PhaseError when the relay has ended instead."""
        stdin, stdout, stderr = self.process.stdin, self.process.stdout, self.process.stderr
        assert stdin and stdout and stderr  # noqa: S101, PT018 - for the type checker
        try:
            stdin.write(f"{line}\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and says why
        answer = stdout.readline()
        if not answer:
            code, errors = self.process.wait(), stderr.read().strip().splitlines()
            raise PhaseError("NoLink", f"the relay has ended with exit code {code}: {errors[-1] if errors else ''}")
        found: dict[str, Any] = json.loads(answer)
        return found


class SlowLink:
    """A link of kind relay: one relay process; of kind netem or tbf: two relays with a real network between them.

    One of the two listens on loopback and connects from a new namespace; the other, on this side of the veth pair,
    passes the bytes on to the server. `tc` gives each end of the pair netem (delay and rate) or tbf (rate). The
    namespace has no name and ends with its relay, however that ends; the kernel then removes veth pair and disciplines.
    """

    def __init__(self, kind: str, delay_ms: float, rate_mbps: float | None) -> None:
        self.kind, self.delay_ms, self.rate_mbps = kind, delay_ms, rate_mbps
        self.relays: list[Relay] = []

    def start(self, host: str, port: int) -> int:
        """Connect to the server; returns the port of loopback. Raises PhaseError with the kernel's reason."""
        if self.kind == "relay":
            self.relays.append(Relay(host=host, port=port, delay_ms=self.delay_ms, rate_mbps=self.rate_mbps))
            return self.relays[0].port
        reason = self.why_not()
        if reason:
            raise PhaseError("NoLink", reason)
        # 169.254.x.y are for links between two ends; the third number keeps several runs apart.
        number = os.getpid() % 250 + 2
        near_address, far_address, device = f"169.254.{number}.1", f"169.254.{number}.2", f"ms{os.getpid()}"
        far = Relay(host=near_address, port=0, delay_ms=0, rate_mbps=None, namespace=True)
        self.relays.append(far)
        inside = ["nsenter", f"--net=/proc/{far.process.pid}/ns/net"]
        _run("ip", "link", "add", device, "type", "veth", "peer", "name", "far", "netns", str(far.process.pid))
        for prefix, address, end in (([], near_address, device), (inside, far_address, "far")):
            _run(*prefix, "ip", "address", "add", f"{address}/30", "dev", end)
            _run(*prefix, "ip", "link", "set", "dev", end, "up")
            _run(*prefix, "tc", "qdisc", "add", "dev", end, "root", *self.discipline())
        near = Relay(host=host, port=port, delay_ms=0, rate_mbps=None, bind=near_address)
        self.relays.append(near)
        far.send(json.dumps({"port": near.port}))
        return far.port

    def discipline(self) -> list[str]:
        """Arguments of `tc` for one direction (tc-netem(8), tc-tbf(8))."""
        if self.kind == "tbf":
            rate = self.rate_mbps or 0.0
            # At least what leaves in a tick of 4 ms, and a whole segment of the largest kind.
            burst = max(65_536, int(rate * 1e6 / 8 * 0.004))
            return ["tbf", "rate", f"{rate:g}mbit", "burst", f"{burst}", "latency", "200ms"]
        arguments = ["netem", "delay", f"{self.delay_ms:g}ms", "limit", "100000"]
        return [*arguments, "rate", f"{self.rate_mbps:g}mbit"] if self.rate_mbps is not None else arguments

    def why_not(self) -> str | None:
        """Why the kernel cannot make this link here; None when it can. Tries the discipline in a new namespace."""
        if self.kind not in {"netem", "tbf"}:
            return None
        if os.geteuid() != 0:
            return f"link {self.kind}: network namespaces and tc need root; kind: relay does not"
        missing = sorted({package for tool, package in PACKAGES.items() if shutil.which(tool) is None})
        if missing:
            return f"link {self.kind}: not installed: {', '.join(missing)}"
        script = f"ip link set lo up && tc qdisc add dev lo root {' '.join(self.discipline())}"
        tried = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return None
        error = " ".join(tried.stderr.split()) or f"exit code {tried.returncode}"
        return f"link {self.kind}: this kernel refuses it ({error}); kind: relay delays and limits without the kernel"

    def carried(self) -> dict[str, int]:
        """Stop relaying and return the bytes carried to the server ("up") and from it ("down")."""
        answer = self.relays[-1].send("stop")
        return {"up": int(answer["up"]), "down": int(answer["down"])}

    def close(self) -> None:
        """End the relays; the kernel removes the rest."""
        for relay in self.relays:
            relay.process.kill()
            relay.process.communicate()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PhaseError("NoLink", f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")


if __name__ == "__main__":
    sys.exit(main())
