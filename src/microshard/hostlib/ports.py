"""Which process holds a port."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys

from . import proc
from .host_counters import read

_LISTEN = "0A"


def is_free(address: str, port: int) -> bool:
    """Whether a server could bind here now. A port in TIME_WAIT counts as free, as it does for mongod."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def holder(address: str, port: int) -> str:
    """The process that listens on the port, for a message: `pid 4711 (nginx -g daemon off;)`."""
    inodes = {inode for bound, number, inode in listeners() if number == port and _covers(bound, address)}
    if not inodes:
        return "a process that is not listed in /proc/net/tcp"
    for process in proc.all_processes():
        if inodes & _socket_inodes(process.pid):
            return f"pid {process.pid} ({process.command_line[:200]})"
    return "a process of another user (its files in /proc cannot be read)"


def listeners() -> list[tuple[str, int, str]]:
    """Address (the kernel's hexadecimal words), port and inode of every listening TCP socket."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (read(table) or "").splitlines()[1:]:
            row = line.split()
            if row[3] == _LISTEN:
                address, _, port = row[1].rpartition(":")
                found.append((address, int(port, 16), row[9]))
    return found


def _covers(table_address: str, address: str) -> bool:
    """Whether a listener at `table_address` (the kernel's hexadecimal words) also holds `address`."""
    raw = bytes.fromhex(table_address)
    if sys.byteorder == "little":
        raw = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    bound = ipaddress.ip_address(raw)
    mapped = getattr(bound, "ipv4_mapped", None)
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return True  # a name: any listener on the port is worth naming
    return bound.is_unspecified or wanted in {bound, mapped}


def _socket_inodes(pid: int) -> set[str]:
    found = set()
    try:
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass  # it ended meanwhile, or belongs to another user
    return found
