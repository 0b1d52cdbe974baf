"""The policy in docs/ec2.md: enough for everything microshard does, and nothing more."""

import json
import re
from pathlib import Path

import botocore.session  # type: ignore[import-untyped]

from microshard.backends.ec2.account import VPC_QUOTA, fetch_quotas
from microshard.backends.ec2.checks import DRY_RUNS

from .fleets import FULL, Lab, client
from .strict import Fault

_DOCS = Path(__file__).parents[2] / "docs" / "ec2.md"


def documented() -> set[str]:
    found = re.search(r"```json\n(.*?)```", _DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    policy = json.loads(found[1])
    return {action for statement in policy["Statement"] for action in statement["Action"]}


def test_every_call_is_in_the_policy_and_no_permission_is_unused(lab: Lab) -> None:
    policy = documented()
    lab.spec = FULL
    admin = client(lab.simulation.url)
    lab.simulation.policy = policy
    fetch_quotas(lab.api(), [("c5.large", "on_demand")])
    lab.simulation.applied_quotas = False  # an account whose quotas were never changed
    assert lab.api().quota("vpc", VPC_QUOTA) == 5
    lab.api().price("c5.large")
    # A life with everything in it: three groups, spot, placement, a zone without room, things left behind.
    lab.simulation.inject(Fault("RunInstances", "InsufficientInstanceCapacity", skip=1))
    fleet = lab.provision()
    lab.simulation.policy = None
    subnet = next(s["SubnetId"] for s in admin.describe_subnets()["Subnets"] if s["VpcId"] == fleet.vpc_id)
    admin.create_network_interface(SubnetId=subnet, Groups=[fleet.security_group])
    stay = [{"DeviceName": "/dev/sdf", "Ebs": {"DeleteOnTermination": False}}]
    admin.modify_instance_attribute(InstanceId=fleet.hosts[0].instance_id, BlockDeviceMappings=stay)
    by_hand = {"ec2:CreateNetworkInterface", "ec2:ModifyInstanceAttribute"}
    lab.simulation.policy = policy
    result = lab.teardown()
    assert result.clean, result.errors
    assert result.errors == []
    assert lab.simulation.permissions - by_hand == policy


def test_the_doctor_tries_every_permission_of_ec2_in_the_policy() -> None:
    tried = {f"ec2:{''.join(part.capitalize() for part in action.split('_'))}" for action in DRY_RUNS}
    quotas = {"servicequotas:GetServiceQuota", "servicequotas:GetAWSDefaultServiceQuota"}
    assert tried | quotas | {"ssm:GetParameter", "pricing:GetProducts", "ec2:CreateTags"} == documented()


def test_aws_documents_dry_run_for_every_call_of_ec2_and_for_no_other() -> None:
    models = botocore.session.get_session()
    names = {"servicequotas": "service-quotas"}
    for permission in documented():
        service, _, action = permission.partition(":")
        shape = models.get_service_model(names.get(service, service)).operation_model(action).input_shape
        assert ("DryRun" in shape.members) == (service == "ec2"), permission


def test_without_any_one_permission_something_is_refused(lab: Lab) -> None:
    policy = documented()
    assert policy
    lab.simulation.policy = policy - {"ec2:CreateTags"}
    assert lab.teardown().clean
    lab.simulation.policy = policy - {"ec2:DescribeVolumes"}
    assert not lab.teardown().clean, "a look that was refused is not a clean account"
