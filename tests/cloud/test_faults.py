"""Bad input and bad luck: the right error or the right way round it, and nothing left after the teardown."""

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import pytest

from microshard.backends.ec2.api import Api, CapacityError, CloudError, LaunchError
from microshard.backends.ec2.spec import VolumeSpec
from tests.conftest import todays

from .fleets import REGION, Lab, WatchedLedger
from .strict import Fault, Simulation


@pytest.fixture(autouse=True)
def _nothing_is_left(lab: Lab) -> Iterator[None]:
    """After every test here: teardown, and an empty account."""
    yield
    lab.simulation.faults.clear()
    lab.simulation.policy = None
    result = lab.teardown()
    assert result.clean, result.left
    assert lab.simulation.everything() == {}


def failing(lab: Lab) -> CloudError:
    with pytest.raises(CloudError) as caught:
        lab.provision()
    return caught.value


def launches(simulation: Simulation) -> int:
    return simulation.actions().count("RunInstances")


def test_a_profile_that_is_not_there(lab: Lab) -> None:
    with pytest.raises(CloudError, match="NoCredentials: The config profile \\(nobody\\)"):
        Api(REGION, endpoint=lab.simulation.url, profile="nobody")


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestExpired", "AuthFailure"])
def test_credentials_that_are_refused_are_not_tried_again(lab: Lab, code: str) -> None:
    lab.simulation.inject(Fault("*", code, times=None))
    assert failing(lab).code == code
    assert len(lab.simulation.calls) == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("RunInstances", "ExpiredToken", skip=1), "log in again"),
        (Fault("CreateSecurityGroup", "UnauthorizedOperation", times=None), "CreateSecurityGroup: Unauthorized"),
    ],
)
def test_a_call_that_is_refused_is_named_with_advice(lab: Lab, fault: Fault, words: str) -> None:
    lab.simulation.inject(dataclasses.replace(fault))
    assert words in str(failing(lab))


def test_an_endpoint_that_does_not_answer(lab: Lab) -> None:
    api = Api(REGION, endpoint="http://127.0.0.1:9", retry=dataclasses.replace(lab.retry, attempts=1))
    with pytest.raises(CloudError, match="Unreachable"):
        api.call("describe_vpcs")


@pytest.mark.parametrize(
    ("group", "fleet", "code"),
    [
        ({"instance_types": ("c5.huge",)}, {}, "InvalidInstanceType"),
        ({"image": "ami-00000000000000000"}, {}, "InvalidAMIID.NotFound"),
        ({"image": "name:windows-*"}, {}, "InvalidAMIID.NotFound"),
        ({"image": "ssm:/aws/service/none"}, {}, "ParameterNotFound"),
        ({"image": "gentoo"}, {}, "UnknownImage"),
        ({"image": "ami-0a102300000000002"}, {}, "WrongArchitecture"),
        ({"threads_per_core": 4}, {}, "InvalidThreadsPerCore"),
        ({"instance_types": ("t3.large",)}, {"placement_group": True}, "NoClusterPlacement"),
        ({"volumes": (VolumeSpec("data", "instance_store", 90),)}, {}, "NoInstanceStore"),
    ],
)
def test_what_cannot_be_launched_is_found_before_anything_is_created(
    lab: Lab, group: dict[str, Any], fleet: dict[str, Any], code: str
) -> None:
    error = failing(lab.group(0, **group).change(**fleet))
    assert error.code == code
    assert lab.simulation.everything() == {}


@pytest.mark.parametrize(
    ("group", "fleet", "code"),
    [
        ({}, {"vpc_id": "vpc-00000000000000000"}, "NoSubnet"),
        ({}, {"zones": ("us-east-1e",)}, "Unsupported"),
        ({"volumes": (VolumeSpec("data", "io1", 10, 900),)}, {}, "InvalidParameterCombination"),
    ],
)
def test_what_is_refused_later_is_named(lab: Lab, group: dict[str, Any], fleet: dict[str, Any], code: str) -> None:
    assert failing(lab.group(0, **group).change(**fleet)).code == code
    assert lab.simulation.everything().get("instance") is None


def test_the_quota_is_named_and_not_tried_around(lab: Lab) -> None:
    lab.simulation.quota = 8
    lab.group(1, instance_types=("c5.4xlarge", "c5.2xlarge"))
    error = failing(lab)
    assert error.code == "VcpuLimitExceeded"
    assert "Service Quotas" in str(error)
    assert launches(lab.simulation) == 2


def test_missing_capacity_once_goes_to_the_next_zone_with_all_hosts(lab: Lab) -> None:
    lab.simulation.inject(Fault("RunInstances", "InsufficientInstanceCapacity", skip=1))
    fleet = lab.provision()
    assert {h.zone for h in fleet.hosts} == {"us-east-1b"}
    assert len(lab.simulation.everything()["instance"]) == 3, "what was launched in the first zone was given back"
    assert fleet.notes == ("no capacity for 1 x c5.large on-demand in us-east-1a: InsufficientInstanceCapacity",)


def test_missing_capacity_of_one_type_takes_the_next_listed(lab: Lab) -> None:
    lab.simulation.inject(Fault("RunInstances", "InsufficientInstanceCapacity", instance_type="c5.xlarge", times=None))
    fleet = lab.group(0, instance_types=("c5.xlarge", "c5d.xlarge", "m5.xlarge")).provision()
    assert {h.instance_type for h in fleet.hosts if h.group == "shard_hosts"} == {"c5d.xlarge"}
    assert "shard_hosts: c5d.xlarge instead of c5.xlarge" in fleet.notes


def test_missing_capacity_everywhere_ends_after_each_way_was_tried_once(lab: Lab) -> None:
    lab.simulation.inject(Fault("RunInstances", "InsufficientInstanceCapacity", times=None))
    error = failing(lab.change(zones=("us-east-1a", "us-east-1b")).group(0, instance_types=("c5.xlarge", "m5.xlarge")))
    assert isinstance(error, CapacityError)
    assert len(error.attempts) == launches(lab.simulation) == 4


def test_missing_spot_capacity_falls_back_to_on_demand_in_the_same_zone(lab: Lab) -> None:
    lab.simulation.inject(Fault("RunInstances", "InsufficientInstanceCapacity", market="spot", times=None))
    fleet = lab.group(0, market="spot_or_on_demand").provision()
    assert {(h.market, h.zone) for h in fleet.hosts} == {("on-demand", "us-east-1a")}
    assert any("spot in us-east-1a" in note for note in fleet.notes)


def test_spot_alone_does_not_fall_back(lab: Lab) -> None:
    lab.simulation.inject(Fault("RunInstances", "MaxSpotInstanceCountExceeded", market="spot", times=None))
    assert isinstance(failing(lab.group(0, market="spot").change(zones=("us-east-1a",))), CapacityError)


@pytest.mark.parametrize("action", ["RunInstances", "CreateVpc", "DescribeInstances", "*"])
def test_throttling_is_waited_out(lab: Lab, action: str) -> None:
    lab.simulation.inject(Fault(action, "RequestLimitExceeded", times=2))
    assert len(lab.provision().hosts) == 3


def test_throttling_without_end_is_an_error_after_a_bounded_number_of_calls(lab: Lab) -> None:
    lab.simulation.inject(Fault("RunInstances", "RequestLimitExceeded", times=None))
    assert failing(lab).code == "RequestLimitExceeded"
    assert launches(lab.simulation) == lab.retry.attempts


CREATIONS = [
    "ImportKeyPair", "CreateVpc", "CreateInternetGateway", "AttachInternetGateway", "CreateRoute",
    "CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "CreatePlacementGroup", "CreateSubnet", "RunInstances",
]  # fmt: skip


@pytest.mark.parametrize("action", todays(CREATIONS, 3))
def test_an_answer_lost_after_the_deed_makes_nothing_twice(lab: Lab, action: str) -> None:
    lab.change(placement_group=True)
    lab.simulation.inject(Fault(action, lost="after"))
    fleet = lab.provision()
    assert len(fleet.hosts) == 3
    assert {kind: len(ids) for kind, ids in lab.simulation.everything().items()} == {
        "instance": 3, "volume": 5, "network-interface": 3, "security-group": 1, "key-pair": 1, "placement-group": 1,
        "subnet": 1, "internet-gateway": 1, "route-table": 1, "vpc": 1,
    }  # fmt: skip


def test_every_answer_lost_is_an_error_and_what_was_launched_is_found(lab: Lab) -> None:
    lab.simulation.inject(Fault("RunInstances", lost="after", times=None))
    assert failing(lab).code == "Unreachable"
    assert len(lab.simulation.everything()["instance"]) == 2


@pytest.mark.parametrize(
    ("alter", "code", "words"),
    [
        ("stuck_pending", "LaunchTimeout", "(pending)"),
        ("never_attach", "VolumeNotAttached", "is attaching"),
        ("iops=3000", "VolumeMismatch", "IOPS is 3000, requested 4000"),
    ],
)
def test_instances_and_volumes_that_do_not_come_up_as_requested(lab: Lab, alter: str, code: str, words: str) -> None:
    lab.simulation.inject(Fault("RunInstances", alter=alter))
    error = failing(lab)
    assert isinstance(error, LaunchError)
    assert (error.code, words in str(error)) == (code, True), error


def end_first_launch(lab: Lab, reason: str) -> list[str]:
    """End the first instances as soon as they are launched; returns where their ids will be."""
    ended: list[str] = []

    def watch(record: dict[str, Any]) -> None:
        if record["state"] == "made" and record["what"] == "instance" and not ended:
            ended.extend(record["ids"])
            lab.simulation.end_instance(ended[0], reason)

    lab.ledger = WatchedLedger(lab.ledger, watch)
    return ended


@pytest.mark.parametrize(
    ("reason", "advice"), [("Client.InternalError", "kms:CreateGrant"), ("Client.VolumeLimitExceeded", "EBS quota")]
)
def test_an_instance_that_ends_while_it_starts(lab: Lab, reason: str, advice: str) -> None:
    lab.simulation.timing.pending = 60
    ended = end_first_launch(lab, reason)
    error = failing(lab)
    assert error.code == "InstanceEnded"
    assert ended[0] in str(error)
    assert advice in str(error), "what the reason stands for"


def test_capacity_that_is_missing_only_after_the_launch_goes_to_the_next_zone(lab: Lab) -> None:
    lab.simulation.timing.pending = 0.05
    end_first_launch(lab, "Server.InsufficientInstanceCapacity")
    assert lab.provision().zone == "us-east-1b"


def test_instances_without_tags_are_found_by_key_and_security_group(lab: Lab) -> None:
    lab.simulation.inject(Fault("RunInstances", alter="no_tags", times=None))
    lab.provision()
    assert lab.teardown().clean
    assert lab.simulation.everything() == {}


def test_an_instance_ended_by_someone_else_hinders_nothing(lab: Lab) -> None:
    fleet = lab.provision()
    lab.simulation.end_instance(fleet.hosts[0].instance_id)


def test_a_launch_shown_late_is_waited_for_by_the_teardown(lab: Lab) -> None:
    lab.simulation.inject(Fault("RunInstances", lost="after", times=None))
    lab.simulation.timing.consistency = 0.3
    lab.retry = dataclasses.replace(lab.retry, attempts=1)
    began = time.time()
    assert failing(lab).code == "Unreachable"
    result = lab.teardown()
    assert result.clean
    assert lab.simulation.everything() == {}
    assert time.time() - began > lab.simulation.timing.consistency
