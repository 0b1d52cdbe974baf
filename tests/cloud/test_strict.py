"""The simulation itself: what the real EC2 refuses is refused, what it keeps is kept, faults strike as ordered."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError, ConnectionClosedError  # type: ignore[import-untyped]

from microshard.model.ec2_facts import ebs_types

from .fleets import REGION
from .strict import Fault, Simulation

AMI = "ami-0c120000000000001"


@pytest.fixture(scope="module")
def _once() -> dict[str, Any]:
    return {}


@pytest.fixture
def ec2(simulation: Simulation, _once: dict[str, Any]) -> Any:
    """A client that tries once."""
    if "client" not in _once:
        _once["client"] = boto3.client(
            "ec2", region_name=REGION, endpoint_url=simulation.url,
            config=Config(retries={"mode": "standard", "total_max_attempts": 1}),
        )  # fmt: skip
    return _once["client"]


@pytest.fixture
def place(ec2: Any) -> dict[str, str]:
    """A VPC with a subnet and a security group."""
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/20", AvailabilityZone="us-east-1a")["Subnet"]["SubnetId"]
    group = ec2.create_security_group(VpcId=vpc, GroupName="g", Description="d")["GroupId"]
    return {"vpc": vpc, "subnet": subnet, "group": group}


Launch = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def launch(ec2: Any, place: dict[str, str]) -> Launch:
    def run(**more: Any) -> list[dict[str, Any]]:
        interface = {"DeviceIndex": 0, "SubnetId": place["subnet"], "Groups": [place["group"]]}
        request = {"ImageId": AMI, "InstanceType": "c5.large", "MinCount": 1, "MaxCount": 1}
        found: list[dict[str, Any]] = ec2.run_instances(**{**request, "NetworkInterfaces": [interface], **more})[
            "Instances"
        ]
        return found

    return run


def volume(device: str = "/dev/sdf", **ebs: Any) -> dict[str, Any]:
    return {"BlockDeviceMappings": [{"DeviceName": device, "Ebs": {"VolumeSize": 100, "Encrypted": True, **ebs}}]}


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


@pytest.mark.parametrize(
    ("ebs", "kept"),
    [
        ({"VolumeType": "gp3", "Iops": 4000, "Throughput": 500}, ("gp3", 4000, 500)),
        ({"VolumeType": "gp3"}, ("gp3", 3000, 125)),
        ({"VolumeType": "io1", "Iops": 1000}, ("io1", 1000, None)),
        ({"VolumeType": "io2", "Iops": 5000}, ("io2", 5000, None)),
        ({"VolumeType": "gp2"}, ("gp2", 300, None)),
        ({"VolumeType": "standard"}, ("standard", None, None)),
    ],
)
def test_volume_rates_requested_at_launch_are_kept(
    launch: Launch, ec2: Any, ebs: dict[str, Any], kept: tuple[str, int | None, int | None]
) -> None:
    launch(**volume(**ebs))
    found = {v["Attachments"][0]["Device"]: v for v in ec2.describe_volumes()["Volumes"]}
    data = found["/dev/sdf"]
    assert (data["VolumeType"], data.get("Iops"), data.get("Throughput")) == kept
    assert "/dev/xvda" in found, "the image's root volume is made without being named"


@pytest.mark.parametrize(
    ("ebs", "code"),
    [
        ({"VolumeType": "io1"}, "MissingParameter"),
        ({"VolumeType": "gp2", "Iops": 1000}, "InvalidParameterCombination"),
        ({"VolumeType": "gp3", "Iops": 60000}, "InvalidParameterCombination"),
        ({"VolumeType": "gp3", "Iops": 3000, "Throughput": 900}, "InvalidParameterCombination"),
        ({"VolumeType": "io1", "Iops": 5001}, "InvalidParameterCombination"),
        ({"VolumeType": "st1", "VolumeSize": 10}, "InvalidParameterValue"),
    ],
)
def test_volumes_beyond_their_type_are_refused(launch: Launch, ebs: dict[str, Any], code: str) -> None:
    assert code_of(lambda: launch(**volume(**ebs))) == code


def test_limits_of_volumes_are_those_of_awss_own_service_model() -> None:
    members = botocore.session.get_session().get_service_model("ec2").shape_for("EbsBlockDevice").members
    size, iops, throughput = (
        re.sub(r"<[^>]+>|,", "", members[name].documentation) for name in ("VolumeSize", "Iops", "Throughput")
    )
    for name, limits in ebs_types().items():
        for said, unit, range_ in ((size, "GiB", limits.gib), (iops, "IOPS", limits.iops)):
            found = re.search(rf"\b{name}\b[^:]*: *(\d+) - (\d+) {unit}", said)
            assert (found and tuple(map(int, found.groups()))) == range_, f"{name}: {unit}"
    found = re.search(r"Minimum value of (\d+)\. Maximum value of (\d+)", throughput)
    assert found is not None
    assert tuple(map(int, found.groups())) == ebs_types()["gp3"].mibps
    assert {name for name, limits in ebs_types().items() if limits.iops_required} == {"io1", "io2"}
    assert "required for io1 and io2" in iops


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"InstanceType": "c5.huge"}, "InvalidParameterValue"),
        ({"ImageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound"),
        ({"InstanceType": "m6g.large"}, "InvalidParameterValue"),
        ({"KeyName": "nobody"}, "InvalidKeyPair.NotFound"),
        ({"Placement": {"GroupName": "nowhere"}}, "InvalidPlacementGroup.Unknown"),
        ({"CpuOptions": {"CoreCount": 5, "ThreadsPerCore": 1}}, "InvalidParameterValue"),
        ({"UserData": "x" * 16385}, "InvalidParameterValue"),
        ({"SecurityGroupIds": ["sg-1"]}, "InvalidParameterCombination"),
        (volume("/dev/xvda", VolumeSize=7), "InvalidBlockDeviceMapping"),
        ({"InstanceType": "c3.large", "EbsOptimized": True}, "Unsupported"),
    ],
)
def test_launches_the_real_one_refuses_are_refused(launch: Launch, change: dict[str, Any], code: str) -> None:
    assert code_of(lambda: launch(**change)) == code


def test_a_client_token_launches_once(launch: Launch, simulation: Simulation) -> None:
    first = launch(ClientToken="t")
    again = launch(ClientToken="t")
    assert [i["InstanceId"] for i in first] == [i["InstanceId"] for i in again]
    assert len(simulation.everything()["instance"]) == 1
    assert code_of(lambda: launch(ClientToken="t", MinCount=2, MaxCount=2)) == "IdempotentParameterMismatch"
    assert launch(ClientToken="u")[0]["InstanceId"] != first[0]["InstanceId"]


def test_what_is_in_use_cannot_be_deleted(
    launch: Launch, ec2: Any, place: dict[str, str], simulation: Simulation
) -> None:
    ec2.create_placement_group(GroupName="close", Strategy="cluster")
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=place["vpc"])
    interface = {
        "DeviceIndex": 0, "SubnetId": place["subnet"], "Groups": [place["group"]], "AssociatePublicIpAddress": True,
    }  # fmt: skip
    instance = launch(Placement={"GroupName": "close"}, NetworkInterfaces=[interface])[0]["InstanceId"]
    deletions = {
        "security group": lambda: ec2.delete_security_group(GroupId=place["group"]),
        "subnet": lambda: ec2.delete_subnet(SubnetId=place["subnet"]),
        "gateway": lambda: ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=place["vpc"]),
        "placement": lambda: ec2.delete_placement_group(GroupName="close"),
        "vpc": lambda: ec2.delete_vpc(VpcId=place["vpc"]),
    }
    assert {name: code_of(delete) for name, delete in deletions.items()} == {
        **dict.fromkeys(deletions, "DependencyViolation"),
        "placement": "InvalidPlacementGroup.InUse",
    }
    ec2.terminate_instances(InstanceIds=[instance])
    for name in ("security group", "subnet", "gateway", "placement"):
        deletions[name]()
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    deletions["vpc"]()
    assert simulation.everything() == {}


def test_states_take_their_time(launch: Launch, ec2: Any, simulation: Simulation) -> None:
    clock = [100.0]
    simulation.timing.now = lambda: clock[0]
    simulation.timing.pending = simulation.timing.terminating = 5.0
    name = launch()[0]["InstanceId"]

    def state() -> str:
        return str(ec2.describe_instances(InstanceIds=[name])["Reservations"][0]["Instances"][0]["State"]["Name"])

    assert state() == "pending"
    clock[0] += 6
    assert state() == "running"
    ec2.terminate_instances(InstanceIds=[name])
    assert state() == "shutting-down"
    assert simulation.everything()["volume"]
    clock[0] += 6
    assert state() == "terminated"
    assert "volume" not in simulation.everything()


def test_new_things_are_not_visible_at_once(launch: Launch, ec2: Any, simulation: Simulation) -> None:
    clock = [100.0]
    simulation.timing.now = lambda: clock[0]
    simulation.timing.consistency = 2.0
    name = launch()[0]["InstanceId"]
    assert ec2.describe_instances()["Reservations"] == []
    assert code_of(lambda: ec2.terminate_instances(InstanceIds=[name])) == "InvalidInstanceID.NotFound"
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    assert vpc not in {v["VpcId"] for v in ec2.describe_vpcs()["Vpcs"]}
    assert code_of(lambda: ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/20")) == "InvalidVpcID.NotFound"
    clock[0] += 3
    assert len(ec2.describe_instances()["Reservations"]) == 1
    assert vpc in {v["VpcId"] for v in ec2.describe_vpcs()["Vpcs"]}


def test_spot_instances_have_a_request_that_ends_with_them(launch: Launch, ec2: Any, simulation: Simulation) -> None:
    tags = [{"ResourceType": "spot-instances-request", "Tags": [{"Key": "run", "Value": "r"}]}]
    made = launch(InstanceMarketOptions={"MarketType": "spot"}, TagSpecifications=tags)[0]
    filters = [{"Name": "tag:run", "Values": ["r"]}]
    request = ec2.describe_spot_instance_requests(Filters=filters)["SpotInstanceRequests"][0]
    assert (request["State"], request["InstanceId"]) == ("active", made["InstanceId"])
    simulation.end_instance(made["InstanceId"])
    assert ec2.describe_spot_instance_requests(Filters=filters)["SpotInstanceRequests"][0]["State"] == "closed"
    assert code_of(lambda: launch(TagSpecifications=tags)) == "InvalidParameterValue"


def test_the_quota_counts_virtual_processors(launch: Launch, simulation: Simulation) -> None:
    simulation.quota = 4
    launch(MinCount=2, MaxCount=2)
    assert code_of(launch) == "VcpuLimitExceeded"


def test_a_fault_strikes_its_action_as_often_as_ordered(ec2: Any, simulation: Simulation) -> None:
    fault = simulation.inject(Fault("DescribeVpcs", "RequestLimitExceeded", times=2, skip=1))
    ec2.describe_vpcs()
    assert code_of(ec2.describe_vpcs) == "RequestLimitExceeded"
    ec2.describe_subnets()
    assert code_of(ec2.describe_vpcs) == "RequestLimitExceeded"
    ec2.describe_vpcs()
    assert fault.struck == 2


def test_missing_capacity_strikes_a_zone_with_the_status_of_the_real_one(
    launch: Launch, simulation: Simulation
) -> None:
    simulation.inject(Fault("RunInstances", "InsufficientInstanceCapacity", zone="us-east-1b", times=None))
    launch()
    simulation.inject(Fault("RunInstances", "InsufficientInstanceCapacity", zone="us-east-1a"))
    with pytest.raises(ClientError) as caught:
        launch()
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500


@pytest.mark.parametrize(("lost", "made"), [("before", 0), ("after", 1)])
def test_an_answer_is_lost_before_or_after_the_deed(ec2: Any, simulation: Simulation, lost: Any, made: int) -> None:
    simulation.inject(Fault("CreateVpc", lost=lost))
    with pytest.raises(ConnectionClosedError):
        ec2.create_vpc(CidrBlock="10.0.0.0/16")
    assert len(simulation.everything().get("vpc", [])) == made


def test_launches_can_be_stuck_unattached_or_other_than_requested(
    launch: Launch, ec2: Any, simulation: Simulation
) -> None:
    for alter in ("stuck_pending", "never_attach", "iops=3000"):
        simulation.inject(Fault("RunInstances", alter=alter))
    made = launch(**volume(VolumeType="gp3", Iops=5000))[0]["InstanceId"]
    assert ec2.describe_instances(InstanceIds=[made])["Reservations"][0]["Instances"][0]["State"]["Name"] == "pending"
    data = next(v for v in ec2.describe_volumes()["Volumes"] if v["Attachments"][0]["Device"] == "/dev/sdf")
    assert (data["Iops"], data["Attachments"][0]["State"]) == (3000, "attaching")


def test_tagging_at_creation_needs_a_permission_of_its_own(ec2: Any, simulation: Simulation) -> None:
    simulation.policy = {"ec2:CreateVpc"}
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": "a", "Value": "b"}]}]
    assert code_of(lambda: ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags)) == "UnauthorizedOperation"
    ec2.create_vpc(CidrBlock="10.0.0.0/16")
    assert simulation.permissions == {"ec2:CreateVpc", "ec2:CreateTags"}


def test_a_region_aws_does_not_have_is_refused(simulation: Simulation) -> None:
    nowhere = boto3.client("ec2", region_name="us-nowhere-1", endpoint_url=simulation.url)
    assert code_of(nowhere.describe_vpcs) == "AuthFailure"


def test_every_fault_that_was_found_has_a_test_that_is_there() -> None:
    tests = Path(__file__).parents[1]
    table = (tests / "cloud" / "strict" / "README.md").read_text(encoding="utf-8").partition("## Faults")[2]
    named = re.findall(r"`(\w[\w/]*\.py)::(\w+)`", table)
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in (tests / file).read_text(encoding="utf-8"), (file, test)


def test_everything_looks_at_the_account_and_not_at_its_answers(ec2: Any, simulation: Simulation) -> None:
    assert simulation.everything() == {}
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    simulation.inject(Fault("Describe*", "UnauthorizedOperation", times=None))
    assert simulation.everything()["vpc"] == [vpc]
