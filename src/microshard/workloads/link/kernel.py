"""A link of the kernel's own between client and door: a network namespace, a veth pair, and a queueing discipline.

One relay listens on loopback and connects from a namespace it has made for itself; another, on this side of the veth
pair, passes the bytes on to the door. What lies between the two is a real network with real packets: `tc` gives each
end netem (delay and rate) or tbf (rate). The namespace belongs to the relay alone and has no name: when the relay ends,
however it ends, the kernel takes namespace, veth pair and disciplines away.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

from microshard.workloads.base import PhaseError

NEEDED = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux"}


class Relay:
    """A relay process; see relay.py."""

    def __init__(self, work: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "microshard.workloads.link.relay"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.port = int(self.ask(json.dumps(work | {"parent": os.getpid()}))["port"])

    def ask(self, line: str) -> dict[str, Any]:
        """Send a line, get the answer. Raises PhaseError when the relay has ended instead."""
        assert self.process.stdin and self.process.stdout and self.process.stderr  # noqa: S101, PT018
        try:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and says why
        answer = self.process.stdout.readline()
        if not answer:
            code, words = self.process.wait(), self.process.stderr.read().strip().splitlines()
            raise PhaseError("NoLink", f"the relay has ended with exit code {code}: {words[-1] if words else ''}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


class KernelLink:
    """Two relays and what lies between them."""

    def __init__(self, kind: str, delay_ms: float, rate_mbps: float | None) -> None:
        self.kind, self.delay_ms, self.rate_mbps = kind, delay_ms, rate_mbps
        self.relays: list[Relay] = []

    def start(self, host: str, port: int) -> int:
        """The port of loopback from which the link leads to the door. Raises PhaseError with the kernel's reason."""
        reason = self.why_not()
        if reason:
            raise PhaseError("NoLink", reason)
        # 169.254.x.y are for links between two ends; the third number keeps several runs apart.
        number = os.getpid() % 250 + 2
        here, there, device = f"169.254.{number}.1", f"169.254.{number}.2", f"ms{os.getpid()}"
        plain = {"delay_ms": 0, "rate_mbps": None}
        far = Relay({**plain, "host": here, "port": 0, "namespace": True})
        self.relays.append(far)
        inside = ["nsenter", f"--net=/proc/{far.process.pid}/ns/net"]
        _do("ip", "link", "add", device, "type", "veth", "peer", "name", "far", "netns", str(far.process.pid))
        _do("ip", "address", "add", f"{here}/30", "dev", device)
        _do("ip", "link", "set", "dev", device, "up")
        _do(*inside, "ip", "address", "add", f"{there}/30", "dev", "far")
        _do(*inside, "ip", "link", "set", "dev", "far", "up")
        _do("tc", "qdisc", "add", "dev", device, "root", *self.discipline())
        _do(*inside, "tc", "qdisc", "add", "dev", "far", "root", *self.discipline())
        near = Relay({**plain, "host": host, "port": port, "bind": here})
        self.relays.append(near)
        far.ask(json.dumps({"port": near.port}))
        return far.port

    def discipline(self) -> list[str]:
        """Words of `tc` for one direction (tc-netem(8), tc-tbf(8))."""
        if self.kind == "tbf":
            rate = self.rate_mbps or 0.0
            # At least what leaves in a tick of 4 ms, and a whole segment of the largest kind.
            burst = max(65_536, int(rate * 1e6 / 8 * 0.004))
            return ["tbf", "rate", f"{rate:g}mbit", "burst", f"{burst}", "latency", "200ms"]
        words = ["netem", "delay", f"{self.delay_ms:g}ms", "limit", "100000"]
        return [*words, "rate", f"{self.rate_mbps:g}mbit"] if self.rate_mbps is not None else words

    def why_not(self) -> str | None:
        """Why this link cannot be made here; None when it can. Tries the discipline in a namespace of its own."""
        if os.geteuid() != 0:
            return f"link {self.kind}: network namespaces and tc are root's; kind: relay needs no root"
        missing = sorted({package for tool, package in NEEDED.items() if shutil.which(tool) is None})
        if missing:
            return f"link {self.kind}: not installed: {', '.join(missing)}"
        script = f"ip link set lo up && tc qdisc add dev lo root {' '.join(self.discipline())}"
        tried = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return None
        words = " ".join(tried.stderr.split()) or f"exit code {tried.returncode}"
        return f"link {self.kind}: this kernel refuses it ({words}); kind: relay delays and limits without the kernel"

    def carried(self) -> dict[str, int]:
        """End the near relay's work: bytes to the door and from it."""
        answer = self.relays[1].ask("stop")
        return {"up": int(answer["up"]), "down": int(answer["down"])}

    def close(self) -> None:
        """End both relays; the kernel takes the rest away."""
        for relay in self.relays:
            relay.close()


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PhaseError("NoLink", f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
