"""A guest as an image makes it: nothing installed, no lists of packages, its first start not over, apt's lock held."""

import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.bed import Bed, bed, lacking
from tests.hosts.mirror import Mirror, served
from tests.hosts.needs import need
from tests.hosts.readme_examples import play

NAMES = ("mdadm", "numactl", "xfsprogs")
COMMANDS = {"mdadm": "usr/sbin/mdadm", "numactl": "usr/bin/numactl", "xfsprogs": "usr/sbin/mkfs.xfs"}
BUSY, HELD = 15, 30  # seconds: cloud-init, apt's lock after it

# cloud-init as the role meets it: it waits with `status --wait`, and it is cloud-init that writes where packages are.
_CLOUD_INIT = """#!/bin/sh
[ "$1 $2" = "status --wait" ] || exit 2
while [ ! -e /run/first-start-is-over ]; do sleep 0.2; done
echo waited >>/run/cloud-init-has-waited
"""
# The first start: packages' sources are written at its end; then something like apt-daily holds both locks.
_FIRST_START = f"""
import fcntl, time
time.sleep({BUSY})
open("/etc/apt/sources.list", "w").write(open("/run/sources").read())
locks = [open(path, "w") for path in ("/var/lib/apt/lists/lock", "/var/lib/dpkg/lock-frontend")]
for lock in locks:
    fcntl.lockf(lock, fcntl.LOCK_EX)
open("/run/first-start-is-over", "w").close()
time.sleep({HELD})
"""


@pytest.fixture
def lab() -> Iterator[Bed]:
    need(lacking())
    with bed(1) as made:
        yield made


@pytest.mark.long
def test_a_guest_gets_what_it_lacks_when_its_first_start_is_over(lab: Bed, tmp_path: Path) -> None:
    (machine,) = lab.machines
    mirror = Mirror(tmp_path / "mirror")
    for name in NAMES:
        mirror.add(name, "99", {COMMANDS[name]: f"#!/bin/sh\necho {name}\n"})
    mirror.index("tools", "main")
    machine.write("usr/bin/cloud-init", _CLOUD_INIT, 0o755)
    machine.enter("sh", "-ec", "dpkg --purge --force-depends numactl xfsprogs; rm -rf /var/lib/apt/lists")
    machine.enter("sh", "-ec", "mkdir -p /var/lib/apt/lists/partial; : >/etc/apt/sources.list")
    inventory = lab.write_inventory({"shard_hosts": [machine.name]}, name="guest")
    with served(lab, mirror.folder) as url:
        machine.enter("sh", "-ec", f"echo 'deb [trusted=yes] {url}/apt/debian tools main' >/run/sources")
        words = ["ssh", *lab.ssh_options, f"lab@{machine.address}", "sudo", "python3", "-c", shlex.quote(_FIRST_START)]
        began = time.monotonic()
        first_start = subprocess.Popen(lab.inside(words), stdin=subprocess.DEVNULL)
        try:
            done = play(lab, "host_packages", tmp_path, inventory=inventory, host_packages_names=NAMES)
            took = time.monotonic() - began
        finally:
            first_start.wait(timeout=60)
    assert done.returncode == 0, done.stdout
    assert machine.enter("cat", "/run/cloud-init-has-waited") == "waited"
    assert took >= BUSY + HELD, "nothing was installed beside the first start"
    for name in NAMES:
        assert machine.enter("dpkg-query", "--show", "--showformat", "${Version}", name) == "99"
