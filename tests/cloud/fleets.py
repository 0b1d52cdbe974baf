"""What the tests of this folder share: fleets to make, and how to look at them."""

from __future__ import annotations

import dataclasses
import functools
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]

from microshard.backends.ec2.api import Api, RetryPolicy
from microshard.backends.ec2.fleet import Ec2Fleet, provision
from microshard.backends.ec2.spec import FleetSpec, GroupSpec, VolumeSpec
from microshard.backends.ec2.teardown import TeardownResult, teardown
from microshard.model.run_records import LedgerRecord
from microshard.records.run_folder import Ledger

from .strict import Simulation

REGION = "us-east-1"
# Short, because the simulation answers at once; `visible` is longer than the delays the tests set.
RETRY_POLICY = RetryPolicy(
    launch=0.6, terminate=3.0, depend=30.0, visible=1.0, poll=0.02, connect=2.0, answer=5.0, attempts=4, backoff=0.01
)  # fmt: skip

SMALL = FleetSpec(
    run="small-1",
    owner="tester",
    experiment="small",
    expires_at=4_000_000_000,
    controller_cidrs=("192.0.2.7/32",),
    groups=(
        GroupSpec("shard_hosts", 2, ("c5.xlarge",), (VolumeSpec("data", "gp3", 100, 4000, 250),)),
        GroupSpec("client_hosts", 1, ("c5.large",)),
    ),
)
FULL = dataclasses.replace(
    SMALL,
    run="full-1",
    placement_group=True,
    groups=(
        GroupSpec(
            "shard_hosts",
            3,
            ("c5.4xlarge",),
            (
                VolumeSpec("data", "gp3", 512, 6000, 500),
                VolumeSpec("journal", "io1", 25, 1000),
                VolumeSpec("log", "standard", 20),
            ),
            threads_per_core=1,
        ),
        GroupSpec("config_hosts", 1, ("c5.large",), (VolumeSpec("data", "io2", 20, 2000),), image="debian-12"),
        GroupSpec("client_hosts", 2, ("c5.2xlarge",), image="ubuntu-24.04", market="spot"),
    ),
)


def dummy_environment(url: str) -> dict[str, str]:
    """An environment in which AWS's tools know the simulation and nothing else."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def only_loopback(setattr_: Callable[[Any, str, Any], None]) -> None:
    """Refuse every connection that is not to this machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and not str(address[0]).startswith("127."):
            raise AssertionError(f"a test wants to connect to {address[0]}")
        connect(self, address)

    setattr_(socket.socket, "connect", guarded)


class WatchedLedger(Ledger):
    """A ledger that tells a test of every record."""

    def __init__(self, ledger: Ledger, watch: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(ledger.path)
        self.watch = watch

    def append(self, record: LedgerRecord) -> None:
        super().append(record)
        self.watch(dataclasses.asdict(record))


@functools.cache
def _api(url: str, retry: RetryPolicy) -> Api:
    return Api(REGION, endpoint=url, retry=retry)


class Lab:
    """A fleet to be made in the simulation, with a ledger on disk as a run has one."""

    def __init__(self, simulation: Simulation, folder: Path, spec: FleetSpec) -> None:
        self.simulation = simulation
        self.folder = folder
        self.spec = spec
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.retry = RETRY_POLICY
        self.said: list[str] = []

    def change(self, **changes: Any) -> Lab:
        """Change the spec."""
        self.spec = dataclasses.replace(self.spec, **changes)
        return self

    def group(self, index: int, **changes: Any) -> Lab:
        """Change a group of the spec."""
        groups = list(self.spec.groups)
        groups[index] = dataclasses.replace(groups[index], **changes)
        return self.change(groups=tuple(groups))

    def api(self, **changes: Any) -> Api:
        """A connection to the simulation; those of one patience are shared, because making one takes 0.3 s."""
        return _api(self.simulation.url, dataclasses.replace(self.retry, **changes))

    def provision(self) -> Ec2Fleet:
        """Make the fleet."""
        return provision(self.api(), self.spec, self.ledger, self.folder / "ssh", self.said.append)

    def teardown(self) -> TeardownResult:
        """Remove it."""
        return teardown(self.api(), self.spec.run, self.ledger, self.said.append)


@functools.cache
def client(url: str) -> Any:
    """A plain boto3 client of the simulated EC2, to look with."""
    return boto3.client("ec2", region_name=REGION, endpoint_url=url)
