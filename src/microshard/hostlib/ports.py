"""Who holds a port."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys

from . import proc

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
    inodes = _listening_inodes(address, port)
    if not inodes:
        return "a process that does not show itself in /proc/net/tcp"
    for process in proc.everyone():
        if inodes & _socket_inodes(process.pid):
            return f"pid {process.pid} ({' '.join(process.command)[:200]})"
    return "a process of another user (its files in /proc cannot be read)"


def _listening_inodes(address: str, port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            bound, _, bound_port = row[1].rpartition(":")
            if row[3] == _LISTEN and int(bound_port, 16) == port and _covers(bound, address):
                inodes.add(row[9])
    return inodes


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
