"""What the doctor finds in an account, and that it makes nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from microshard.backends.ec2 import network
from tests.unit.backends.ec2.definitions import FILE

from .command import Said, microshard
from .fleets import Lab
from .strict import Fault
from .test_policy import documented

Doctor = Callable[..., Said]


@pytest.fixture
def doctor(lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Doctor:
    monkeypatch.setattr(network, "public_address", lambda: "192.0.2.9")

    def ask(*words: object) -> Said:
        before = lab.simulation.everything()
        said = microshard(capsys, "doctor", "--on", "ec2", *words)
        assert lab.simulation.everything() == before
        return said

    return ask


def test_all_is_well(doctor: Doctor, lab: Lab) -> None:
    lab.simulation.policy = documented()
    said = doctor("--region", "eu-west-1")
    assert said.code == 0, said.out
    for words in (
        "ok     credentials: account 123456789012 pays; you are arn:aws:iam::123456789012:user/tester",
        "ok     region: eu-west-1 answers",
        "ok     permissions: none of 36 was refused",
        "ok     quotas: 1152 vCPUs of Standard on demand instances, 0 in use",
        "ok     image: debian-12 is ami-0c120000000000001 (debian-12-amd64-20250115-1993), login admin",
        "ok     SSH: would be opened to 192.0.2.9/32 only",
    ):
        assert words in said.out


@pytest.mark.parametrize("region", ["us-gov-west-1", "cn-north-1"])
def test_regions_of_other_partitions_are_known(doctor: Doctor, region: str) -> None:
    assert f"ok     region: {region} answers" in doctor("--region", region).out


def test_no_credentials(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    said = doctor()
    assert said.code == 4
    assert said.out.startswith("WRONG  credentials: GetCallerIdentity: NoCredentials: Unable to locate credentials.")
    assert "AWS_PROFILE" in said.out


def test_expired_credentials(doctor: Doctor, lab: Lab) -> None:
    lab.simulation.inject(Fault("*", "ExpiredToken", times=None))
    said = doctor()
    assert said.code == 4
    assert "The session has expired: log in again." in said.out
    assert len(lab.simulation.calls) == 1


def test_a_region_that_is_not_there(doctor: Doctor, lab: Lab) -> None:
    said = doctor("--region", "eu-west-11")
    assert said.code == 4
    assert "no region is named eu-west-11; did you mean eu-west-1?" in said.out
    assert lab.simulation.calls == []


def test_missing_permissions_are_listed_with_the_page_that_has_them(doctor: Doctor, lab: Lab) -> None:
    lab.simulation.policy = documented() - {"ec2:RunInstances", "ec2:DeleteVpc"}
    said = doctor()
    assert said.code == 4
    assert "WRONG  permissions: 2 of 36 are missing: ec2:RunInstances, ec2:DeleteVpc" in said.out
    assert "docs/ec2.md" in said.out


def test_an_experiment_is_compared_with_the_account(doctor: Doctor, lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    text = FILE.replace("c5.2xlarge}", "c5.9xlarg, image: ami-0123456789abcdef0}")
    file.write_text(text.replace('version: "7.0"', 'version: "6.0"'))
    lab.simulation.quota = 8
    said = doctor(file)
    assert said.code == 4
    assert "ok     instance types: c5.4xlarge is offered in us-east-1a" in said.out
    assert "WRONG  instance types: c5.9xlarg is offered in none of the zones" in said.out
    assert "similar: c5.9xlarge" in said.out
    assert "WRONG  image: DescribeImages: InvalidAMIID.NotFound: The image id '[ami-0123456789abcdef0]'" in said.out
    assert "WRONG  MongoDB: MongoDB 6.0 has no packages for al2023 on x86_64" in said.out
    assert "WRONG  quotas: 8 vCPUs of Standard" in said.out
    assert "SSH: would be opened to 192.0.2.7/32 only" in said.out


def test_leftovers_of_earlier_runs_are_listed(doctor: Doctor, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microshard.backends.ec2.checks.user", lambda: "tester")
    fleet = lab.provision()
    said = doctor()
    assert "note   runs: tester has resources of small-1" in said.out
    assert fleet.run == "small-1"
    assert lab.teardown().clean
