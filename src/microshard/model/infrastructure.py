"""The hosts of an experiment: instance types and network on EC2, volumes, kernel and NUMA settings."""

import ipaddress
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from microshard.model.base import AllowedText, Model
from microshard.model.ec2_facts import VolumeLimits, ebs_types

InstanceType = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,30}\.[a-z0-9-]{1,20}$"),
    AllowedText("an EC2 instance type such as c5.4xlarge"),
]
Image = Annotated[
    str,
    StringConstraints(
        pattern=r"^(al2023|ubuntu-22\.04|ubuntu-24\.04|debian-12|ami-[0-9a-f]{8,17}|ssm:/[A-Za-z0-9_./{}-]{1,200}|name:.{1,128})$"
    ),
    AllowedText("al2023, ubuntu-22.04, ubuntu-24.04, debian-12, ami-…, ssm:/path or name:PATTERN"),
]
Market = Literal["on_demand", "spot", "spot_or_on_demand"]
_Region = Annotated[
    str, StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z]+)+-[0-9]$"), AllowedText("a region such as us-east-1")
]
_Zone = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z]+)+-[0-9]([a-z]|-[a-z0-9-]+)$"),
    AllowedText("an availability zone such as us-east-1a"),
]
_Vpc = Annotated[
    str, StringConstraints(pattern=r"^vpc-[0-9a-f]{8,17}$"), AllowedText("the id of a VPC such as vpc-0123abcd")
]
_Subnet = Annotated[
    str,
    StringConstraints(pattern=r"^subnet-[0-9a-f]{8,17}$"),
    AllowedText("the id of a subnet such as subnet-0123abcd"),
]
_Owner = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"),
    AllowedText("a name of letters, digits and . _ @ + - (at most 64)"),
]

# A device is named, never guessed: by path or by serial number.
DeviceName = Annotated[
    str,
    StringConstraints(pattern=r"^(/dev/[^ ]+|serial:[^ ]+)$"),
    AllowedText("a path below /dev such as /dev/disk/by-id/…, or serial: and a serial number"),
]


class Volume(Model):
    """A volume of a host and what it can deliver."""

    type: Literal["gp2", "gp3", "io1", "io2", "st1", "sc1", "standard", "instance_store", "existing", "emulated"] = (
        "gp3"
    )
    """Kind of volume: an EBS volume type, the instance's own NVMe, a device of a host you have, or a throttled loop
    device on this machine."""
    size_gib: Annotated[int, Field(ge=1, le=65536, json_schema_extra={"unit": "GiB"})] = 100
    """Size of the volume."""
    iops: Annotated[int, Field(ge=1, le=256000, json_schema_extra={"unit": "IOPS"})] | None = None
    """Provisioned IOPS (gp3, io1, io2) or the limit of an emulated volume; null for the type's own rate."""
    throughput_mibps: Annotated[int, Field(ge=1, le=2000, json_schema_extra={"unit": "MiB/s"})] | None = None
    """Provisioned throughput (gp3) or the limit of an emulated volume; null for the type's own rate."""
    filesystem: Literal["xfs", "ext4"] = "xfs"
    """Filesystem, on the whole device without partitions. The MongoDB production notes recommend XFS for WiredTiger."""
    lazy_init: bool = False
    """Leave ext4's inode tables and journal to be initialised by a kernel thread later, during the measurement; mkfs
    ends sooner."""
    policy: Literal["single", "raid0", "per_shard"] = "single"
    """One device; RAID 0 (mdadm) over `count` devices; or `count` devices of which each shard of a host gets one,
    in turns."""
    count: Annotated[int, Field(ge=1, le=24)] = 1
    """Devices of the policies raid0 and per_shard."""
    devices: Annotated[list[DeviceName], Field(max_length=24)] = Field(default=[])
    """Devices of hosts you have: `/dev/disk/by-id/…`, another path below /dev, or `serial:` and the serial number
    (`vol-…` for an EBS volume). `microshard_volumes` of a host in the inventory overrides it."""
    overwrite: Annotated[list[str], Field(max_length=24)] = Field(default=[])
    """Serial numbers of devices that may be formatted although they carry something that is not microshard's."""

    def _contradictions(self) -> Iterator[str]:
        limits = ebs_types().get(self.type)
        low, high = limits.gib if limits else (1, 65536)
        if not low <= self.size_gib <= high:
            yield f"size_gib: {self.type} volumes have {low} to {high} GiB, not {self.size_gib}"
        if limits is not None and limits.iops_required and self.iops is None:
            yield f"iops: {self.type} volumes need provisioned IOPS"
        if self.type != "emulated":
            yield from self._beyond_the_rates(limits or VolumeLimits(gib=(low, high)))
        yield from self._against_the_policy()

    def _beyond_the_rates(self, limits: VolumeLimits) -> Iterator[str]:
        """IOPS or throughput that AWS does not provision for the type and size."""
        of_size = f"{self.type} volumes of {self.size_gib} GiB take"
        if self.iops is not None:
            if limits.iops is None:
                yield f"iops: {self.type} volumes take no provisioned IOPS (gp3, io1, io2 and emulated do)"
                return
            low, high = limits.iops[0], limits.highest_iops(self.size_gib)
            if not low <= self.iops <= high:
                yield f"iops: {of_size} {low} to {high} IOPS, not {self.iops}"
        if self.throughput_mibps is not None:
            if limits.mibps is None:
                yield f"throughput_mibps: only gp3 and emulated volumes take it, not {self.type}"
                return
            low, high = limits.mibps[0], limits.highest_mibps(self.iops)
            if not low <= self.throughput_mibps <= high:
                given = f"with {self.iops or (limits.iops or (0,))[0]} IOPS"
                yield f"throughput_mibps: {of_size} {low} to {high} MiB/s {given}, not {self.throughput_mibps}"

    def _against_the_policy(self) -> Iterator[str]:
        """What the policy, the filesystem and the type do not allow together."""
        if self.lazy_init and self.filesystem != "ext4":
            yield f"lazy_init: {self.filesystem} has nothing to initialise later, only ext4 has"
        if self.policy == "single" and self.count != 1:
            yield f"count: {self.count} devices need policy raid0 or per_shard"
        if self.policy == "raid0" and self.count < 2:
            yield "count: raid0 needs two devices or more"
        if self.devices and self.type not in {"existing", "instance_store"}:
            found = f"{self.type} volumes are found by their serial number"
            yield f"devices: {found}, only those of type existing are named"
        if self.devices and len(self.devices) != self.count:
            yield f"devices: {len(self.devices)} are named, count is {self.count}"
        if len(set(self.devices)) != len(self.devices):
            yield "devices: one is named twice"


class Volumes(Model):
    """Which volume holds what; journal and log fall back to the data volume."""

    data: Volume | None = None
    """Volume of the dbPaths; null keeps them on the host's root volume."""
    journal: Volume | None = None
    """Volume of the journals."""
    log: Volume | None = None
    """Volume of the mongod logs."""

    def named(self) -> list[tuple[str, Volume]]:
        """The volumes there are, with what they hold: data, journal, log."""
        pairs = (("data", self.data), ("journal", self.journal), ("log", self.log))
        return [(name, volume) for name, volume in pairs if volume is not None]


class Kernel(Model):
    """Settings of the host's kernel; null leaves a setting as it is.

    What is set is kept over a reboot, read back, recorded with the results, and put back at teardown.
    """

    production_notes: bool = False
    """Set what the MongoDB production notes recommend for the version, wherever a setting here is null."""
    readahead_sectors: (
        Annotated[int, Field(ge=0, le=65536, multiple_of=8, json_schema_extra={"unit": "sectors of 512 bytes"})] | None
    ) = None
    """Readahead of the data volumes, as in `blockdev --setra`; the kernel keeps whole pages of 8 sectors."""
    transparent_huge_pages: Literal["never", "madvise", "always"] | None = None
    """Transparent huge pages, with defrag set to the same unless it is given."""
    transparent_huge_pages_defrag: Literal["never", "madvise", "defer", "defer+madvise", "always"] | None = None
    """When the kernel compacts memory to make huge pages; null takes the value of transparent_huge_pages."""
    swappiness: Annotated[int, Field(ge=0, le=200)] | None = None
    """`vm.swappiness`."""
    max_map_count: Annotated[int, Field(ge=65530, le=2147483647)] | None = None
    """`vm.max_map_count`: memory areas of a process; mongod needs two per connection."""
    zone_reclaim_mode: Annotated[int, Field(ge=0, le=7)] | None = None
    """`vm.zone_reclaim_mode`: whether a NUMA node frees its page cache before it uses another node's memory."""
    overcommit_memory: Annotated[int, Field(ge=0, le=2)] | None = None
    """`vm.overcommit_memory`."""
    dirty_ratio: Annotated[int, Field(ge=1, le=100, json_schema_extra={"unit": "% of RAM"})] | None = None
    """`vm.dirty_ratio`: dirty pages at which a writer has to wait."""
    dirty_background_ratio: Annotated[int, Field(ge=0, le=100, json_schema_extra={"unit": "% of RAM"})] | None = None
    """`vm.dirty_background_ratio`: dirty pages at which the kernel begins to write."""
    tcp_keepalive_s: Annotated[int, Field(ge=1, le=32767, json_schema_extra={"unit": "s"})] | None = None
    """`net.ipv4.tcp_keepalive_time`."""
    somaxconn: Annotated[int, Field(ge=1, le=2147483647)] | None = None
    """`net.core.somaxconn`: connections that may wait for mongod to accept them."""
    open_files: Annotated[int, Field(ge=1024, le=1048576)] | None = None
    """Limit of open files and processes of the user that runs mongod (`nofile`, `nproc`)."""
    time_sync: bool | None = None
    """Whether a time service must be running; false stops it while the run lasts."""
    cpu_governor: Literal["performance", "powersave", "schedutil", "ondemand", "conservative"] | None = None
    """CPU frequency governor; refused on a host whose CPUs have none."""
    smt: bool | None = None
    """Whether both threads of a core are used; refused on a host where it cannot be changed."""

    def _contradictions(self) -> Iterator[str]:
        low, high = self.dirty_background_ratio, self.dirty_ratio
        if low is not None and high is not None and low >= high:
            yield f"dirty_background_ratio: {low} must be below dirty_ratio, {high}"


class Numa(Model):
    """How processes are bound to NUMA nodes and cores."""

    policy: Literal["none", "interleave", "node_round_robin", "cores_per_shard"] = "none"
    """How numactl starts each process. interleave: memory from all nodes in turn; node_round_robin: shard 1 on node 0,
    shard 2 on node 1 …, cores and memory; cores_per_shard: equal numbers of neighbouring cores for every data-bearing
    process. Other processes of a host get the nodes interleaved, or the reserved cores."""
    nodes: Annotated[list[Annotated[int, Field(ge=0, le=1023)]], Field(min_length=1, max_length=64)] | None = None
    """Numbers of the NUMA nodes that are used; null is every node of the host."""
    reserved_cores: Annotated[int, Field(ge=0, le=1024, json_schema_extra={"unit": "cores"})] = 1
    """cores_per_shard: the first cores, kept for the config servers and mongos of the host; none of the host's are kept
    where it has neither."""

    def _contradictions(self) -> Iterator[str]:
        if self.nodes is not None and len(set(self.nodes)) != len(self.nodes):
            yield "nodes: a node is given twice"
        if self.policy == "none" and self.nodes is not None:
            yield "nodes: without a policy no process is bound to any"
        if self.policy != "cores_per_shard" and "reserved_cores" in self.model_fields_set:
            yield "reserved_cores: goes with policy cores_per_shard"


class HostGroup(Model):
    """Hosts of one kind."""

    count: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of hosts."""
    instance_type: InstanceType | None = None
    """EC2 instance type, for example c4.4xlarge."""
    alternative_types: Annotated[list[InstanceType], Field(max_length=10)] = Field(default=[])
    """EC2 instance types tried in this order where no zone has capacity for instance_type."""
    image: Image = "al2023"
    """EC2 machine image: a distribution, ami-…, ssm:/path of a parameter, or name:PATTERN (the newest that fits)."""
    market: Market = "on_demand"
    """How EC2 instances are bought; spot instances are cheaper and may be interrupted during a measurement."""
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

    def _contradictions(self) -> Iterator[str]:
        if self.alternative_types and self.instance_type is None:
            yield "alternative_types: there is no instance_type that they replace"
        types = [self.instance_type, *self.alternative_types]
        if len(set(types)) != len(types):
            yield "alternative_types: a type is given twice"


class Ec2(Model):
    """Where on EC2 the hosts are, and who may reach them."""

    region: _Region | None = None
    """Region; null takes that of the AWS configuration (AWS_REGION, profile), else us-east-1."""
    zones: Annotated[list[_Zone], Field(max_length=20)] = Field(default=[])
    """Availability zones to try, in this order; empty tries all that have the types. All hosts are in one."""
    placement_group: bool = False
    """Whether all hosts are placed close together (a placement group with the strategy cluster)."""
    vpc_id: _Vpc | None = None
    """VPC to use, with a subnet in each zone that may be used; null creates one for the run."""
    subnet_id: _Subnet | None = None
    """Subnet to use, and with it its VPC and zone."""
    public_addresses: bool = True
    """Whether hosts get public addresses; false where the controller is in the same network."""
    controller_cidrs: Annotated[list[str], Field(min_length=1, max_length=20)] | Literal["auto"] = "auto"
    """IPv4 networks SSH is opened to; auto asks AWS (checkip.amazonaws.com) for this machine's address at the run."""
    owner: _Owner | None = None
    """Tag microshard:owner of everything made, by which `microshard gc` finds it; null takes the user's name."""

    def _contradictions(self) -> Iterator[str]:
        if self.vpc_id is not None and self.subnet_id is not None:
            yield "vpc_id: a subnet has its VPC already; give one of vpc_id and subnet_id"
        if self.subnet_id is not None and self.zones:
            yield "zones: a subnet is in one zone already; give one of zones and subnet_id"
        if self.region is not None:
            far = next((zone for zone in self.zones if not zone.startswith(self.region)), None)
            if far is not None:
                yield f"zones: {far} is not in {self.region}"
        if len(set(self.zones)) != len(self.zones):
            yield "zones: one is given twice"
        for cidr in () if self.controller_cidrs == "auto" else self.controller_cidrs:
            try:
                network = ipaddress.ip_network(cidr)
            except ValueError as error:
                yield f"controller_cidrs: {error}"
                return
            if network.version != 4:
                yield f"controller_cidrs: {cidr}: the hosts have IPv4 addresses; give the controller's"
            if network.prefixlen < 8:
                yield f"controller_cidrs: {cidr} opens SSH to too many; give the address of this machine"


class ProcessLimits(Model):
    """What a mongod may use of its host."""

    cpus: Annotated[float, Field(ge=0.05, le=1024, json_schema_extra={"unit": "cores"})] | None = None
    """CPU time, in cores: a quota of its control group, as all of these are; each is read back after the start."""
    memory_mb: Annotated[float, Field(ge=32, le=16_777_216, json_schema_extra={"unit": "MB"})] | None = None
    """Memory in MiB with the page cache of its files, none of it swapped; the kernel kills a mongod that needs more."""
    read_iops: Annotated[int, Field(ge=1, le=10_000_000, json_schema_extra={"unit": "1/s"})] | None = None
    """Reads a second from the disk of its dbPath."""
    write_iops: Annotated[int, Field(ge=1, le=10_000_000, json_schema_extra={"unit": "1/s"})] | None = None
    """Writes a second to that disk; as write_mibps it needs cgroup version 2, which counts the kernel's writeback."""
    read_mibps: Annotated[float, Field(ge=0.1, le=1_000_000, json_schema_extra={"unit": "MiB/s"})] | None = None
    """MiB a second read from that disk."""
    write_mibps: Annotated[float, Field(ge=0.1, le=1_000_000, json_schema_extra={"unit": "MiB/s"})] | None = None
    """MiB a second written to it."""

    def _contradictions(self) -> Iterator[str]:
        if not self.model_dump(exclude_none=True):
            yield "cpus: limits need at least one of cpus, memory_mb, read_iops, write_iops, read_mibps, write_mibps"


class Infrastructure(Model):
    """The groups of hosts."""

    shard_hosts: HostGroup = HostGroup()
    """Hosts of the data-bearing processes."""
    other_shard_hosts: HostGroup | None = None
    """More hosts of the data-bearing processes, of another kind: NVMe beside EBS, large beside small. They come after
    shard_hosts; topology.placement says which shard is where. In an inventory a child of the group shard_hosts."""
    config_hosts: HostGroup | None = None
    """Hosts of the config servers; null puts them on the shard hosts."""
    mongos_hosts: HostGroup | None = None
    """Hosts of the mongos; null puts them on the client hosts."""
    client_hosts: HostGroup = HostGroup()
    """Hosts of the workload's clients; several take every phase together, each its part."""
    ec2: Ec2 = Ec2()
    """Settings for EC2 only."""
    process_manager: Literal["auto", "direct", "systemd"] = "auto"
    """How processes are run. systemd: as instances of a unit, with limits and a separate user; direct: as
    daemons without a supervisor. auto: systemd where every host has it and its user may use sudo, unless
    microshard_process_manager in the inventory says otherwise; direct on this machine."""
