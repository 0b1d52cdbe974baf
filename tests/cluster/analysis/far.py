"""`python far.py DELAY`: two network namespaces DELAY seconds apart each way; prints the pids that hold them.

The first, 10.9.0.1, is for the client, the second, 10.9.0.2, for the servers. What one sends through its tun device
is kept for a while and written to the other's. Both are gone when this process ends.
"""

import ctypes
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque

CLONE_NEWNET = 0x40000000  # linux/sched.h
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h


def namespace(own: int, other: int) -> int:
    """A namespace of its own for this process, with a way to the other address; the tun device's descriptor."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"far", IFF_TUN | IFF_NO_PI))
    for words in ("link set lo up", f"addr add 10.9.0.{own} peer 10.9.0.{other} dev far", "link set far up mtu 1400"):
        subprocess.run(["ip", *words.split()], check=True)
    return tun


def carry(ways: dict[int, int], delay: float) -> None:
    """Hand each packet on, `delay` seconds after it came."""
    waiting: deque[tuple[float, int, bytes]] = deque()
    while True:
        rest = max(waiting[0][0] - time.monotonic(), 0) if waiting else None
        for source in select.select(list(ways), [], [], rest)[0]:
            waiting.append((time.monotonic() + delay, ways[source], os.read(source, 65536)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, target, packet = waiting.popleft()
            os.write(target, packet)


def main() -> None:
    """Make both, say who holds them, carry packets until the end."""
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        here.close()  # or the end of the parent would never be seen
        tun = namespace(2, 1)
        socket.send_fds(there, [b"x"], [tun])
        there.recv(1)  # until the parent is gone
        os._exit(0)
    there.close()
    _, (far, *_), _, _ = socket.recv_fds(here, 1, 1)
    near = namespace(1, 2)
    print(os.getpid(), child, flush=True)
    carry({near: far, far: near}, float(sys.argv[1]))


if __name__ == "__main__":
    main()
