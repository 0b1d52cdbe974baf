"""How long making and removing fleets takes, against the simulated EC2 in a process of its own.

    python bench/ec2_fleet.py [--hosts 16 64]

Each host has three data volumes. The simulation answers at once, so the figures are the time of our own code, of boto3
and of the simulation; `calls` shows whether they grow by pages or by hosts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from microshard.cloud.api import Api, Patience
from microshard.cloud.fleet import provision
from microshard.cloud.ledger import Memory
from microshard.cloud.spec import FleetSpec, GroupSpec, VolumeSpec
from microshard.cloud.teardown import teardown

_ROOT = Path(__file__).parents[1]
_VOLUMES = (
    VolumeSpec("data", "gp3", 512, 6000, 500),
    VolumeSpec("journal", "io1", 25, 1000),
    VolumeSpec("log", "standard", 20),
)


class CountingApi(Api):
    """Counts the calls that were made through it."""

    calls = 0

    def call(self, action: str, **parameters: object) -> dict[str, object]:
        """One more."""
        self.calls += 1
        return super().call(action, **parameters)

    def make(self, action: str, **parameters: object) -> dict[str, object]:
        """One more."""
        self.calls += 1
        return super().make(action, **parameters)


def measure(url: str, hosts: int) -> str:
    """Make and remove a fleet; one line of the table."""
    spec = FleetSpec(
        run=f"bench-{hosts}",
        owner="bench",
        experiment="bench",
        expires_at=int(time.time()) + 3600,
        controller_cidrs=("192.0.2.7/32",),
        groups=(GroupSpec("shard_hosts", hosts, ("c5.4xlarge",), _VOLUMES),),
    )
    began = time.perf_counter()
    api = CountingApi("us-east-1", endpoint=url, patience=Patience(poll=0.05))
    with tempfile.TemporaryDirectory() as folder:
        book = Memory()
        fleet = provision(api, spec, book, Path(folder) / "ssh")
        made, calls_made = time.perf_counter(), api.calls
        removal = teardown(api, spec.run, book)
        gone = time.perf_counter()
    if len(fleet.hosts) != hosts or not removal.clean:
        raise SystemExit(f"{hosts} hosts: {removal.left}")
    return f"{hosts:5} {made - began:9.2f} {calls_made:6} {gone - made:9.2f} {api.calls - calls_made:6}"


def main() -> None:
    """Print a table, one line a fleet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[16, 64])
    wish = parser.parse_args()
    dummies = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    os.environ.update({**dict.fromkeys(dummies, "testing"), "AWS_EC2_METADATA_DISABLED": "true"})
    command = [sys.executable, "-m", "tests.cloud.strict"]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
        url = server.stdout.readline().strip()
        measure(url, 1)  # moto loads its models at the first call
        print("hosts  make (s)  calls remove (s)  calls")
        for hosts in wish.hosts:
            print(measure(url, hosts), flush=True)


if __name__ == "__main__":
    main()
