"""Parsers of /proc on recorded files."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from microshard.hostlib import host_counters as host

STAT = """\
cpu  10 2 30 400 5 6 7 8 0 0
cpu0 5 1 15 200 2 3 3 4 0 0
cpu1 5 1 15 200 3 3 4 4 0 0
intr 12345 0 1
ctxt 999
btime 1795230000
"""
DISKSTATS = """\
   1       0 ram0 0 0 0 0 0 0 0 0 0 0 0
   7       0 loop0 11 0 90 3 0 0 0 0 0 4 3 0 0 0 0 0 0
   7       1 loop1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 259       0 nvme0n1 4000 10 80000 900 2000 30 64000 800 0 1500 1700 0 0 0 0 12 3
 259       1 nvme0n1p1 10 0 20 1 0 0 0 0 0 1 1 0 0 0 0 0 0
"""
NET = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 5000 10 0 0 0 0 0 0 5000 10 0 0 0 0 0 0
  eth0:123456 100 0 0 0 0 0 0 654 9 0 0 0 0 0 0
"""
PROCESS = (
    "4242 (mongod (x) y) S 17 4242 4242 0 -1 4194560 9 0 3 0 150 50 7 8 20 0 61 0 98765 2147483648 25000 "
    "18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)


def test_cpu_time_is_split_into_five_kinds() -> None:
    times, cores = host.parse_cpu(STAT)
    assert times == {"user": 12, "sys": 43, "iowait": 5, "idle": 400, "steal": 8}
    assert cores == 2


def test_memory_is_in_bytes() -> None:
    text = "MemTotal:       24683000 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\nHugePages_Total:       0\n"
    assert host.parse_memory(text) == {"total": 24683000 * 1024, "available": 20000000 * 1024}


def test_disks_that_did_something_are_listed_in_bytes() -> None:
    assert host.parse_disks(DISKSTATS) == {
        "loop0": [11, 90 * 512, 0, 0, 4, 3],
        "nvme0n1": [4000, 80000 * 512, 2000, 64000 * 512, 1500, 1700],
        "nvme0n1p1": [10, 20 * 512, 0, 0, 1, 1],
    }


def test_interfaces_are_read_with_and_without_a_space_after_their_name() -> None:
    assert host.parse_network(NET) == {"lo": [5000, 5000, 20], "eth0": [123456, 654, 109]}


def test_a_process_name_may_hold_parentheses_and_spaces() -> None:
    assert host.parse_stat(PROCESS) == {
        "state": "S",
        "parent": 17,
        "session": 4242,
        "ticks": 200,
        "started": 98765,
        "rss": 25000 * host.PAGE,
        "faults": 3,
    }


def test_io_is_what_went_to_storage() -> None:
    text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 5\n"
    assert host.parse_io(text) == [4096, 8192]


def test_a_counter_that_was_reset_did_not_grow() -> None:
    assert host.grown([5, 1], [3, 9]) == [2, 0]


def test_allocated_bytes_are_blocks_not_lengths(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "full").write_bytes(os.urandom(1 << 20))
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 30)
    assert 1 << 20 <= host.allocated_bytes(str(tmp_path)) < 1 << 22


def test_the_page_of_an_ebs_volume_has_the_time_beyond_its_limits() -> None:
    """The layout of "Amazon EBS detailed performance statistics": a magic number, eleven counters, histograms."""
    counters = (100, 200, 1 << 20, 1 << 21, 5000, 6000, 11, 22, 33, 44, 7)
    page = struct.pack("<II11Q", 0x3C23B510, 0, *counters) + bytes(4096 - 96)
    assert host.parse_ebs_page(page) == [11, 22, 33, 44]
    assert host.parse_ebs_page(bytes(4096)) == [], "another vendor's page"
    assert host.ebs_exceeded("loop0") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_a_drivers_counters_are_those_of_ethtool() -> None:
    """The driver veth, as every kernel has it, counts one thing that is known: the index of its peer."""
    script = (
        "import json, subprocess; from microshard.hostlib import host_counters as host;"
        "subprocess.run('ip link add near type veth peer name far'.split(), check=True);"
        "peer = json.loads(subprocess.check_output('ip -j link show far'.split()))[0]['ifindex'];"
        "print(json.dumps([peer, *map(host.driver_counters, ['near', 'lo', 'no'])]))"
    )
    command = ["unshare", "-n", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "RTNETLINK" in done.stderr or "unshare" in done.stderr:
        pytest.skip(done.stderr)
    peer, near, loopback, nothing = json.loads(done.stdout)
    assert near["peer_ifindex"] == peer
    assert (loopback, nothing) == ({}, {})
