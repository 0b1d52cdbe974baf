"""A fleet as it is made, over real HTTP."""

import dataclasses
import stat
from pathlib import Path
from typing import Any

import pytest

from microshard.backends.ec2.api import CloudError
from microshard.backends.ec2.ec2_plan import plan_ec2
from microshard.backends.ec2.fleet import lost_hosts
from microshard.backends.ec2.spec import GroupSpec, VolumeSpec

from .fleets import FULL, Lab, WatchedLedger, client
from .strict import Image, Simulation

MIXED = """\
microshard: 1
name: mixed
infrastructure:
  ec2: {region: us-east-1, controller_cidrs: [192.0.2.7/32]}
  shard_hosts: {instance_type: c5.xlarge, volumes: {data: {type: gp3, size_gib: 100}}}
  other_shard_hosts: {instance_type: c5d.xlarge, volumes: {data: {type: instance_store, size_gib: 90}}}
  client_hosts: {instance_type: c5.large}
topology:
  mongodb: {source: packages, version: "8.0"}
  placement: {shards: [[shard_hosts-1], [other_shard_hosts-1]], config_servers: [client_hosts-1]}
  shards: {count: 2}
  collections: [{namespace: vosa.mot_results, shard_key: {_id: hashed}}]
workload:
  - load: {engine: insert, documents: 1000}
  - measure: {engine: aggregate, pipeline: mot_greenness}
budget: {max_hours: 1}
"""


@pytest.fixture
def ec2(simulation: Simulation) -> Any:
    return client(simulation.url)


@pytest.fixture
def full(lab: Lab) -> Lab:
    lab.spec = FULL
    return lab


def test_three_groups_with_their_volumes_come_up_and_are_read_back(full: Lab) -> None:
    fleet = full.provision()
    assert [h.name for h in fleet.hosts] == [
        "shard_hosts-1", "shard_hosts-2", "shard_hosts-3", "config_hosts-1", "client_hosts-1", "client_hosts-2",
    ]  # fmt: skip
    first = fleet.hosts[0]
    assert {v.purpose: (v.type, v.size_gib, v.iops, v.throughput_mibps) for v in first.volumes} == {
        "root": ("gp3", 16, 3000, 125),
        "data": ("gp3", 512, 6000, 500),
        "journal": ("io1", 25, 1000, None),
        "log": ("standard", 20, None, None),
    }
    assert all(v.serial == v.id.replace("-", "") for v in first.volumes)
    assert {h.user for h in fleet.hosts} == {"ec2-user", "admin", "ubuntu"}
    assert {h.market for h in fleet.hosts if h.group == "client_hosts"} == {"spot"}
    # The Local Zone that the account has opted in to comes first by name, and is none of the zones.
    assert {h.zone for h in fleet.hosts} == {"us-east-1a"}
    assert fleet.launched == 6
    assert full.teardown().clean
    assert full.simulation.everything() == {}


@pytest.mark.parametrize(
    ("kind", "gib", "iops"),
    [("gp2", 100, None), ("gp3", 100, 4000), ("io1", 100, 4000), ("io2", 100, 4000), ("st1", 125, None),
     ("standard", 100, None)],
)  # fmt: skip
def test_every_type_of_volume_is_made_and_read_back(lab: Lab, kind: str, gib: int, iops: int | None) -> None:
    fleet = lab.group(0, volumes=(VolumeSpec("data", kind, gib, iops),)).change(groups=lab.spec.groups[:1]).provision()
    (data,) = [v for v in fleet.hosts[0].volumes if v.purpose == "data"]
    assert (data.type, data.size_gib) == (kind, gib)
    assert data.iops == (iops or {"gp2": 300}.get(kind))
    assert lab.teardown().clean


@pytest.mark.parametrize(
    ("kind", "volume", "entry"),
    [
        ("c5.xlarge", VolumeSpec("data", "gp3", 100), {"purpose": "data", "serial": "vol"}),
        ("c4.4xlarge", VolumeSpec("data", "standard", 512), {"purpose": "data", "device": "/dev/xvdf"}),
        ("c4.4xlarge", VolumeSpec("data", "gp3", 100, number=2), {"purpose": "data", "device": "/dev/xvdba"}),
        ("m5d.2xlarge", VolumeSpec("data", "instance_store", 279), None),
        ("i3.8xlarge", VolumeSpec("data", "instance_store", 1769), None),
        ("i3.8xlarge", VolumeSpec("log", "gp3", 10), {"purpose": "log", "device": "/dev/xvdh"}),
        ("d2.xlarge", VolumeSpec("data", "instance_store", 1000), {"purpose": "data", "device": "/dev/xvdf"}),
    ],
)
def test_the_inventory_says_how_the_type_shows_a_disk(
    lab: Lab, kind: str, volume: VolumeSpec, entry: dict[str, str] | None
) -> None:
    fleet = lab.change(groups=(GroupSpec("shard_hosts", 1, (kind,), (volume,)),)).provision()
    (host,) = fleet.hosts
    named = fleet.inventory("python")["all"]["hosts"][host.name]["microshard_volumes"]
    if entry is not None and "serial" in entry:
        entry = {**entry, "serial": host.volumes[1].id.replace("-", "")}
    assert [known for known in named if known["purpose"] != "root"] == ([entry] if entry else [])
    assert lab.teardown().clean


def test_shards_on_nvme_beside_shards_on_ebs(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "mixed.yml").write_text(MIXED)
    planned = plan_ec2(tmp_path / "mixed.yml")
    planned.raise_on_violations()
    assert {p.name: p.host for p in planned.plan.points[0].processes if p.role != "mongos"} == {
        "config1": "client_hosts-1", "shard01": "shard_hosts-1", "shard02": "other_shard_hosts-1",
    }  # fmt: skip
    (estimate,) = planned.estimate.fleets
    fleet = lab.change(groups=estimate.groups).provision()
    groups = fleet.inventory("python")["all"]["children"]
    assert groups["shard_hosts"] == {
        "hosts": {"shard_hosts-1": {}}, "children": {"other_shard_hosts": {"hosts": {"other_shard_hosts-1": {}}}}
    }  # fmt: skip
    assert {h.name: [v.type for v in h.volumes] for h in fleet.hosts} == {
        "shard_hosts-1": ["gp3", "gp3"], "other_shard_hosts-1": ["gp3", "instance_store"], "client_hosts-1": ["gp3"],
    }  # fmt: skip
    launches = [c for c in lab.simulation.calls if c.action == "RunInstances"]
    assert launches[1].tags("instance")["microshard:serves"] == "other_shard_hosts shard_hosts"
    assert lab.teardown().clean


def test_several_volumes_of_one_purpose_are_attached_and_read_back(lab: Lab) -> None:
    disks = tuple(VolumeSpec("data", "gp3", 100, 4000, 250, number) for number in (1, 2, 3))
    fleet = lab.group(0, volumes=disks).provision()
    host = fleet.hosts[0]
    assert [v.device for v in host.volumes if v.purpose == "data"] == ["/dev/sdf", "/dev/xvdba", "/dev/xvdbb"]
    assert len({v.id for v in host.volumes}) == 4
    assert lab.teardown().clean


def test_everything_made_carries_the_tags_of_the_run(full: Lab, ec2: Any) -> None:
    full.provision()
    tagged: dict[str, set[str]] = {}
    for region in full.simulation.account.regions.values():
        for name, tags in region.backend.tags.items():
            if tags.get("microshard:run") == "full-1" and tags.get("microshard:owner") == "tester":
                assert tags["microshard:expires-at"] == "4000000000"
                assert tags["microshard:experiment"] == "small"
                tagged.setdefault(name.partition("-")[0], set()).add(name)
    everything = full.simulation.everything()
    names = {"instance": "i", "volume": "vol", "network-interface": "eni", "security-group": "sg", "key-pair": "key",
             "subnet": "subnet", "internet-gateway": "igw", "vpc": "vpc"}  # fmt: skip
    for kind, prefix in names.items():
        assert len(tagged[prefix]) == len(everything[kind]), kind
    filters = [{"Name": "tag:microshard:run", "Values": ["full-1"]}]
    assert len(ec2.describe_spot_instance_requests(Filters=filters)["SpotInstanceRequests"]) == 2
    assert len(ec2.describe_placement_groups(Filters=filters)["PlacementGroups"]) == 1


def test_hosts_demand_imdsv2_end_themselves_and_have_encrypted_volumes(full: Lab, ec2: Any) -> None:
    full.provision()
    launches = [c for c in full.simulation.calls if c.action == "RunInstances"]
    assert len(launches) == 3, "one RunInstances a group"
    for call in launches:
        assert call.get("MetadataOptions.HttpTokens") == "required"
        assert call.get("InstanceInitiatedShutdownBehavior") == "terminate"
        assert all(m["Ebs.Encrypted"] == "true" for m in call.members("BlockDeviceMapping"))
        assert call.get("MinCount") == call.get("MaxCount")
    assert all(v["Encrypted"] for v in ec2.describe_volumes()["Volumes"])
    shard = next(c for c in launches if c.get("InstanceType") == "c5.4xlarge")
    assert (shard.get("CpuOptions.CoreCount"), shard.get("CpuOptions.ThreadsPerCore")) == ("8", "1")
    assert all(c.get("Placement.GroupName") == "microshard-full-1" for c in launches)


def test_ssh_is_open_to_the_controller_and_the_cluster_ports_to_the_run_alone(lab: Lab, ec2: Any) -> None:
    fleet = lab.provision()
    rules = ec2.describe_security_groups(GroupIds=[fleet.security_group])["SecurityGroups"][0]["IpPermissions"]
    by_port = {r["FromPort"]: r for r in rules}
    assert set(by_port) == {22, 27000}
    assert [r["CidrIp"] for r in by_port[22]["IpRanges"]] == ["192.0.2.7/32"]
    assert not by_port[22]["UserIdGroupPairs"]
    assert not by_port[27000]["IpRanges"]
    assert [p["GroupId"] for p in by_port[27000]["UserIdGroupPairs"]] == [fleet.security_group]


def test_the_host_key_is_known_before_the_first_connection(lab: Lab) -> None:
    fleet = lab.provision()
    known = Path(fleet.known_hosts).read_text(encoding="ascii").splitlines()
    assert sorted(line.split()[0] for line in known) == sorted(str(h.public_address) for h in fleet.hosts)
    public = Path(lab.folder / "ssh" / "host_ed25519.pub").read_text(encoding="ascii").strip()
    assert all(line.partition(" ")[2] == public for line in known)
    instance = fleet.hosts[0].instance_id
    assert client(lab.simulation.url).describe_instance_attribute(InstanceId=instance, Attribute="userData")[
        "UserData"
    ]["Value"]
    for name in ("id_ed25519", "host_ed25519", "known_hosts"):
        assert stat.S_IMODE((lab.folder / "ssh" / name).stat().st_mode) == 0o600


def test_the_private_key_never_goes_over_the_wire(lab: Lab) -> None:
    lab.provision()
    private = (lab.folder / "ssh" / "id_ed25519").read_text(encoding="ascii").splitlines()[2]
    assert not any(private in value for call in lab.simulation.calls for value in call.parameters.values())
    assert "CreateKeyPair" not in lab.simulation.actions()


def test_provisioning_again_changes_nothing(lab: Lab) -> None:
    first = lab.provision()
    before = lab.simulation.everything()
    lab.simulation.calls.clear()
    second = lab.provision()
    assert second.launched == 0
    assert second.hosts == first.hosts
    assert lab.simulation.everything() == before
    made = [a for a in lab.simulation.actions() if a.startswith(("Create", "Run", "Import"))]
    assert made == ["CreateRoute"], "a route is set, not made: the same one again is accepted as it is"


def test_a_host_that_was_lost_is_replaced_and_the_others_stay(lab: Lab) -> None:
    first = lab.provision()
    lab.simulation.end_instance(first.hosts[0].instance_id)
    second = lab.provision()
    assert second.launched == 1
    assert len(second.hosts) == 3
    assert {h.instance_id for h in first.hosts[1:]} < {h.instance_id for h in second.hosts}
    assert second.zone == first.zone


def test_an_interrupted_host_is_named_with_the_reason(lab: Lab) -> None:
    fleet = lab.provision()
    hosts = {h.name: h.instance_id for h in fleet.hosts}
    assert lost_hosts(lab.api(), hosts) == {}
    lab.simulation.end_instance(fleet.hosts[1].instance_id, "Server.SpotInstanceTermination")
    assert lost_hosts(lab.api(), hosts) == {"shard_hosts-2": "Server.SpotInstanceTermination"}


def test_every_creation_is_in_the_ledger_before_its_call(lab: Lab) -> None:
    seen: list[tuple[str, int]] = []

    def watch(record: dict[str, Any]) -> None:
        if record["state"] == "creating":
            seen.append((record["what"], len(lab.simulation.calls)))

    lab.ledger = WatchedLedger(lab.ledger, watch)
    lab.provision()
    actions = {
        "key-pair": "ImportKeyPair", "vpc": "CreateVpc", "internet-gateway": "CreateInternetGateway",
        "security-group": "CreateSecurityGroup", "subnet": "CreateSubnet", "instance": "RunInstances",
    }  # fmt: skip
    # The call that follows each record is the creation it announces.
    assert [lab.simulation.calls[n].action for _, n in seen] == [actions[what] for what, _ in seen]
    creations = [a for a in lab.simulation.actions() if a in actions.values()]
    assert len(creations) == len(seen) == 7


@pytest.mark.parametrize("key", ["subnet_id", "vpc_id"])
def test_a_given_network_is_used_and_stays(lab: Lab, ec2: Any, key: str) -> None:
    given = ec2.describe_subnets()["Subnets"][0]
    # moto's default VPC has no gateway, as AWS's has.
    network = {key: given["SubnetId" if key == "subnet_id" else "VpcId"], "public_addresses": key == "subnet_id"}
    fleet = lab.change(**network).provision()
    assert fleet.vpc_id == given["VpcId"]
    assert fleet.zone == given["AvailabilityZone"] or key == "vpc_id"
    assert "vpc" not in lab.simulation.everything()
    assert lab.teardown().clean
    assert lab.simulation.everything() == {}
    assert given["SubnetId"] in {s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}


def test_instance_store_needs_no_volume(lab: Lab) -> None:
    lab.group(0, instance_types=("c5d.xlarge",), volumes=(VolumeSpec("data", "instance_store", 90),))
    fleet = lab.provision()
    assert [v.purpose for v in fleet.hosts[0].volumes] == ["root", "data"]
    assert fleet.hosts[0].volumes[1].id == ""


@pytest.mark.parametrize("image", ["al2023", "ubuntu-22.04", "ubuntu-24.04", "debian-12", "name:debian-12-amd64-*"])
def test_images_are_found_by_distribution_and_by_name(lab: Lab, image: str) -> None:
    lab.group(0, image=image, count=1).change(groups=lab.spec.groups[:1])
    assert lab.provision().images["shard_hosts"].startswith("ami-")


def test_arm_types_get_an_arm_image(lab: Lab) -> None:
    lab.group(0, instance_types=("m6g.large",))
    fleet = lab.provision()
    assert fleet.images["shard_hosts"] != fleet.images["client_hosts"]


def test_calls_grow_by_pages_and_not_by_hosts(lab: Lab) -> None:
    lab.provision()
    few = len(lab.simulation.calls)
    assert lab.teardown().clean
    lab.simulation.calls.clear()
    lab.group(0, count=20).change(run="many-1").provision()
    assert len(lab.simulation.calls) <= few + 1
    lab.simulation.calls.clear()
    assert lab.teardown().clean
    assert len(lab.simulation.calls) < 60


def test_it_waits_for_what_is_not_visible_yet(lab: Lab) -> None:
    lab.simulation.timing.consistency = 0.15
    lab.simulation.timing.pending = 0.1
    lab.simulation.timing.terminating = 0.1
    lab.retry = dataclasses.replace(lab.retry, launch=5.0)
    fleet = lab.change(placement_group=True).group(1, market="spot").provision()
    assert len(fleet.hosts) == 3
    assert lab.teardown().clean
    assert lab.simulation.everything() == {}


def test_a_root_volume_smaller_than_the_images_snapshot_is_refused_before_anything_is_created(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "root_gib", 30)
    with pytest.raises(CloudError, match=r"al2023 needs 30 GiB: set infrastructure\.shard_hosts\.root_size_gib"):
        lab.provision()
    assert lab.simulation.everything() == {}


def test_in_a_vpc_of_the_account_a_subnet_that_the_internet_reaches_is_used(lab: Lab, ec2: Any) -> None:
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    private, public = (
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.1.{n}.0/24", AvailabilityZone="us-east-1a")["Subnet"]["SubnetId"]
        for n in (1, 2)
    )
    lab.change(vpc_id=vpc)
    with pytest.raises(CloudError, match="no subnet with a route to an internet gateway"):
        lab.provision()
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    ec2.associate_route_table(RouteTableId=table, SubnetId=public)
    fleet = lab.provision()
    used = ec2.describe_instances(InstanceIds=[h.instance_id for h in fleet.hosts])["Reservations"]
    assert {i["SubnetId"] for r in used for i in r["Instances"]} == {public} != {private}
    assert lab.teardown().clean
