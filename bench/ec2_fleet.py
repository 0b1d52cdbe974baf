"""How long making and removing fleets takes, against the simulated EC2 in a process of its own.

Each host has three data volumes. The simulation answers at once, so the figures are the time of our own code, of boto3
and of the simulation; the calls show whether they grow by pages or by hosts.
"""

import os
import subprocess
import sys
import time
from collections import defaultdict

from bench.alone import ROOT, alone, rounds, say, scratch
from bench.findings import Findings, absolute, growth
from microshard.backends.ec2.api import Api, RetryPolicy
from microshard.backends.ec2.fleet import provision
from microshard.backends.ec2.spec import FleetSpec, GroupSpec, VolumeSpec
from microshard.backends.ec2.teardown import teardown
from microshard.records.run_folder import Ledger

_VOLUMES = (
    VolumeSpec("data", "gp3", 512, 6000, 500),
    VolumeSpec("journal", "io1", 25, 1000),
    VolumeSpec("log", "standard", 20),
)


class CountingApi(Api):
    """Counts the calls made through it."""

    calls = 0

    def call(self, action: str, **parameters: object) -> dict[str, object]:
        """Count it."""
        self.calls += 1
        return super().call(action, **parameters)

    def create(self, action: str, **parameters: object) -> dict[str, object]:
        """Count it."""
        self.calls += 1
        return super().create(action, **parameters)


def fleet(url: str, hosts: int) -> dict[str, float]:
    """Make and remove a fleet: seconds and calls of both."""
    spec = FleetSpec(
        run=f"bench-{hosts}-{time.monotonic_ns()}",
        owner="bench",
        experiment="bench",
        expires_at=int(time.time()) + 3600,
        controller_cidrs=("192.0.2.7/32",),
        groups=(GroupSpec("shard_hosts", hosts, ("c5.4xlarge",), _VOLUMES),),
    )
    began = time.perf_counter()
    api = CountingApi("us-east-1", endpoint=url, retry=RetryPolicy(poll=0.05))
    with scratch() as folder:
        ledger = Ledger(folder / "ledger.jsonl")
        created = provision(api, spec, ledger, folder / "ssh")
        made, calls_made = time.perf_counter(), api.calls
        result = teardown(api, spec.run, ledger)
        gone = time.perf_counter()
    if len(created.hosts) != hosts or not result.clean:
        raise SystemExit(f"{hosts} hosts: {result.left}")
    return {
        "make": made - began,
        "remove": gone - made,
        "calls to make": float(calls_made),
        "calls to remove": float(api.calls - calls_made),
    }


def measure(quick: bool) -> Findings:
    """Seconds and calls; growth with hosts."""
    sizes = (4, 16) if quick else (4, 16, 64)
    dummies = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    os.environ.update({**dict.fromkeys(dummies, "testing"), "AWS_EC2_METADATA_DISABLED": "true"})
    command = [sys.executable, "-m", "tests.cloud.strict"]
    taken: dict[str, dict[int, list[float]]] = defaultdict(dict)
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
        url = server.stdout.readline().strip()
        fleet(url, 1)  # moto loads its models at the first call
        for _ in rounds(1, 1 if quick else 3, 40):
            for hosts in sizes:
                for name, value in fleet(url, hosts).items():
                    taken[name].setdefault(hosts, []).append(value)
                say(f"{hosts} hosts: " + ", ".join(f"{name} {taken[name][hosts][-1]:.2f}" for name in taken))
    found = Findings()
    most = sizes[-1]
    for name in ("make", "remove"):
        found.rows.append(absolute(0, f"{name} a fleet of {most} hosts, simulated EC2", taken[name][most], "s"))
    for name, series in taken.items():
        found.growths.append(growth(name, "hosts of a fleet", "calls" if "calls" in name else "s", series))
    return found


if __name__ == "__main__":
    sys.exit(alone(measure))
