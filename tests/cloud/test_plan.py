"""The plan of an experiment with the account at hand: what it asks, and that it makes nothing."""

from pathlib import Path

import pytest

from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.experiment.errors import DefinitionError
from tests.unit.backends.ec2.definitions import FILE

from .fleets import Lab
from .strict import Fault


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "on-ec2.yml"
    path.write_text(FILE)
    return path


def look(file: Path, lab: Lab) -> Ec2Plan:
    planned = plan_ec2(file)
    assert lab.simulation.everything() == {}
    assert {a[:3] for a in lab.simulation.actions()} <= {"Des", "Get"}, "read-only calls"
    return planned


def test_quotas_and_images_are_fetched_with_credentials(file: Path, lab: Lab) -> None:
    lab.simulation.quota = 24
    planned = look(file, lab)
    assert str(planned.estimate.account) == "Standard on demand in us-east-1: 24 vCPUs, 0 in use"
    assert planned.estimate.account.images["us-east-1", "al2023"].startswith("ami-0a102300000000001 (al2023-ami-2023")
    planned.raise_on_violations()


def test_a_quota_that_others_have_used_up_is_an_error_before_anything_is_made(file: Path, lab: Lab) -> None:
    lab.provision()  # 2 c5.xlarge and a c5.large: 10 vCPUs
    lab.simulation.quota = 33
    planned = plan_ec2(file)
    with pytest.raises(DefinitionError, match=r"24 vCPUs .* quota is 33, 10 of it in use"):
        planned.raise_on_violations()
    assert lab.teardown().clean


@pytest.mark.parametrize("code", ["ExpiredToken", "UnauthorizedOperation", "AuthFailure"])
def test_an_account_that_does_not_answer_keeps_nobody_from_planning(file: Path, lab: Lab, code: str) -> None:
    lab.simulation.inject(Fault("*", code, times=None))
    planned = look(file, lab)
    assert f"us-east-1 ({code}: injected by the test)" in str(planned.estimate.account)
    assert planned.estimate.cost_usd is not None
    planned.raise_on_violations()
