"""The machines an experiment runs on: kind, volumes, kernel and NUMA settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from microshard.definition.base import Model
from microshard.definition.ec2 import Ec2, Image, InstanceType, Market

# Limits of EBS volume types as published by AWS (EBS volume types, user guide): GiB and IOPS.
_SIZE_GIB = {
    "gp2": (1, 16384),
    "gp3": (1, 65536),
    "io1": (4, 16384),
    "io2": (4, 65536),
    "st1": (125, 16384),
    "standard": (1, 1024),
}
_IOPS = {"gp3": (3000, 80000), "io1": (100, 64000), "io2": (100, 256000)}
_IOPS_PER_GIB = {"gp3": 500, "io1": 50, "io2": 1000}


class Volume(Model):
    """A volume of a host and what it can deliver."""

    type: Literal["gp2", "gp3", "io1", "io2", "st1", "standard", "instance_store", "emulated"] = "gp3"
    """Kind of volume: an EBS volume type, the instance's own NVMe, or a throttled loop device."""
    size_gib: Annotated[int, Field(ge=1, le=65536, json_schema_extra={"unit": "GiB"})] = 100
    """Size of the volume."""
    iops: Annotated[int, Field(ge=1, le=256000, json_schema_extra={"unit": "IOPS"})] | None = None
    """Provisioned IOPS (gp3, io1, io2) or the limit of an emulated volume; null for the type's own rate."""
    throughput_mibps: Annotated[int, Field(ge=1, le=2000, json_schema_extra={"unit": "MiB/s"})] | None = None
    """Provisioned throughput (gp3) or the limit of an emulated volume; null for the type's own rate."""

    @model_validator(mode="after")
    def _within_the_type(self) -> Volume:
        low, high = _SIZE_GIB.get(self.type, (1, 65536))
        if not low <= self.size_gib <= high:
            raise ValueError(f"size_gib: {self.type} volumes have {low} to {high} GiB, not {self.size_gib}")
        if self.iops is not None and self.type != "emulated":
            if self.type not in _IOPS:
                raise ValueError(f"iops: {self.type} volumes take no provisioned IOPS (gp3, io1, io2 and emulated do)")
            low, high = _IOPS[self.type]
            high = min(high, max(low, self.size_gib * _IOPS_PER_GIB[self.type]))
            if not low <= self.iops <= high:
                raise ValueError(
                    f"iops: {self.type} volumes of {self.size_gib} GiB take {low} to {high} IOPS, not {self.iops}"
                )
        if self.type in {"io1", "io2"} and self.iops is None:
            raise ValueError(f"iops: {self.type} volumes need provisioned IOPS")
        if self.throughput_mibps is not None and self.type not in {"gp3", "emulated"}:
            raise ValueError(f"throughput_mibps: only gp3 and emulated volumes take it, not {self.type}")
        return self


class Volumes(Model):
    """Which volume holds what; journal and log fall back to the data volume."""

    data: Volume | None = None
    """Volume of the dbPaths; null keeps them on the host's root volume."""
    journal: Volume | None = None
    """Volume of the journals."""
    log: Volume | None = None
    """Volume of the mongod logs."""


class Kernel(Model):
    """Settings of the host's kernel; null leaves a setting as it is."""

    readahead_sectors: (
        Annotated[int, Field(ge=0, le=65536, json_schema_extra={"unit": "sectors of 512 bytes"})] | None
    ) = None
    """Readahead of the data volumes, as in `blockdev --setra`."""
    transparent_huge_pages: Literal["never", "madvise", "always"] | None = None
    """Transparent huge pages, with defrag set alike."""
    swappiness: Annotated[int, Field(ge=0, le=200)] | None = None
    """`vm.swappiness`."""


class Numa(Model):
    """How processes are bound to NUMA nodes and cores."""

    policy: Literal["none", "interleave", "node_round_robin", "cores_per_shard"] = "none"
    """Prefix of numactl each process is started with."""


class HostGroup(Model):
    """Hosts of one kind."""

    count: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of hosts."""
    instance_type: InstanceType | None = None
    """EC2 instance type, for example c4.4xlarge."""
    alternative_types: Annotated[list[InstanceType], Field(max_length=10)] = Field(default=[])
    """EC2 instance types taken in this order where no zone has room for instance_type."""
    image: Image = "al2023"
    """EC2 machine image: a distribution, ami-…, ssm:/path of a parameter, or name:PATTERN (the newest that fits)."""
    market: Market = "on_demand"
    """How EC2 instances are bought; spot ones are cheaper and may be taken away while they are measured."""
    threads_per_core: Annotated[int, Field(ge=1, le=2)] | None = None
    """Hardware threads of a core EC2 gives; 1 switches hyper-threading off, null leaves the type's own."""
    root_size_gib: Annotated[int, Field(ge=8, le=16384, json_schema_extra={"unit": "GiB"})] = 16
    """Size of the root volume (gp3) on EC2."""
    volumes: Volumes = Volumes()
    """Volumes of every host of the group."""
    kernel: Kernel = Kernel()
    """Kernel settings of every host of the group."""
    numa: Numa = Numa()
    """NUMA binding of the processes on the group's hosts."""

    @model_validator(mode="after")
    def _types_in_order(self) -> HostGroup:
        if self.alternative_types and self.instance_type is None:
            raise ValueError("alternative_types: there is no instance_type they could stand in for")
        types = [self.instance_type, *self.alternative_types]
        if len(set(types)) != len(types):
            raise ValueError("alternative_types: a type is there twice")
        return self


class Infrastructure(Model):
    """The groups of hosts."""

    shard_hosts: HostGroup = HostGroup()
    """Hosts of the data-bearing processes."""
    config_hosts: HostGroup | None = None
    """Hosts of the config servers; null puts them on the shard hosts."""
    mongos_hosts: HostGroup | None = None
    """Hosts of the mongos; null puts them on the client hosts."""
    client_hosts: HostGroup = HostGroup()
    """Hosts of the workload's clients."""
    ec2: Ec2 = Ec2()
    """What only EC2 asks for."""
