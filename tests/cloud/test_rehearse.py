"""`microshard rehearse`: what an account would refuse is said at once, what it costs, and nothing is created."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.backends.ec2.definitions import FILE, TWO_FLEETS

from .command import Said, microshard
from .fleets import Lab
from .strict import Fault
from .test_policy import documented

Rehearse = Callable[..., Said]


@pytest.fixture
def rehearse(lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Rehearse]:
    def at(text: str = FILE) -> Said:
        (tmp_path / "x.yml").write_text(text)
        return microshard(capsys, "rehearse", tmp_path / "x.yml", "--on", "ec2")

    yield at
    assert lab.simulation.everything() == {}, "nothing was created"
    creations = [c for c in lab.simulation.calls if not c.action.startswith(("Describe", "Get"))]
    assert creations, "every call of the plan was sent"
    assert {c.get("DryRun") for c in creations} == {"true"}
    assert list(tmp_path.iterdir()) == [tmp_path / "x.yml"], "nor a run's folder"


@pytest.mark.parametrize("validates", [False, True])
def test_a_plan_that_would_be_accepted(rehearse: Rehearse, lab: Lab, *, validates: bool) -> None:
    lab.simulation.policy = documented()
    lab.simulation.dry_runs_validate = validates
    lab.simulation.prices = {"c5.4xlarge": 0.68, "c5.2xlarge": 0.4, "gp3": 0.08, "io2": 0.13}
    said = rehearse(FILE.replace("c5.2xlarge}", "c5.2xlarge, market: spot_or_on_demand}"))
    assert said.code == 0, said.out + said.err
    for words in (
        "USD an hour",
        "clock: this machine and AWS agree to 1 s",
        "ok     prices: c5.4xlarge costs 0.6800 USD an hour, as in the table",
        "note   prices: c5.2xlarge costs 0.4000 USD an hour; the table of 20",
        "ok     prices: a GiB of gp3 costs 0.0800 USD a month, as in the table",
        "note   prices: a GiB of io2 costs 0.1300 USD a month; the table of 20",
        "ok     fleet1: zones: us-east-1a, us-east-1b",
        "ok     fleet1: launch: shard_hosts: 1 x c5.4xlarge on-demand in us-east-1a would be accepted",
        "client_hosts: 1 x c5.2xlarge spot in us-east-1a would be accepted",
        "client_hosts: 1 x c5.2xlarge on-demand in us-east-1a would be accepted",
        "Nothing was created. None of it was refused.",
    ):
        assert words in said.out, said.out


def test_every_refusal_is_said_at_once(rehearse: Rehearse, lab: Lab) -> None:
    lab.simulation.policy = documented() - {"ec2:CreateVpc", "pricing:GetProducts", "servicequotas:GetServiceQuota"}
    lab.simulation.clock = -900.0
    lab.simulation.inject(Fault("RunInstances", "UnauthorizedOperation", instance_type="m5.4xlarge"))
    said = rehearse(TWO_FLEETS)
    assert said.code == 4, said.out
    for words in (
        "WRONG  permissions: 1 of 36 are missing: ec2:CreateVpc",
        "?      quotas: GetServiceQuota: AccessDeniedException",
        "?      prices: AWS's price list was not read (AccessDeniedException)",
        "WRONG  clock: this machine is 900 s ahead of AWS",
        "ok     fleet1: launch: shard_hosts: 1 x c5.4xlarge",
        "WRONG  fleet2: launch: shard_hosts: 1 x m5.4xlarge on-demand in us-east-1a: RunInstances: Unauthorized",
        "3 of the above would be refused.",
    ):
        assert words in said.out, said.out


def test_what_is_planned_alone_is_said_in_the_first_line(rehearse: Rehearse) -> None:
    said = rehearse(FILE.replace("source: packages", "source: tarball"))
    assert said.out.startswith("Planned, not run: topology.mongodb.tarball: fill in "), said.out
    assert (said.code, "Nothing was created. None of it was refused." in said.out) == (2, True), said.out + said.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FILE.replace("us-east-1,", "us-east-1, vpc_id: vpc-0123456789abcdef0,"), "has no subnet, or does not exist"),
        (FILE.replace("c5.2xlarge}", "c5.2xlarge, image: ami-0123456789abcdef0}"), "InvalidAMIID.NotFound"),
        (FILE.replace("c5.4xlarge", "c5.4xlarg"), "types do not exist: [c5.4xlarg]"),
        (FILE.replace("us-east-1,", "us-east-1, zones: [us-east-1-bos-1a],"), "no zone of us-east-1 offers"),
    ],
)
def test_what_only_the_account_knows_is_refused_by_name(rehearse: Rehearse, text: str, words: str) -> None:
    said = rehearse(text)
    assert (said.code, words in said.out) == (4, True), said.out


def test_limits_of_the_plan_are_shown_with_the_accounts_refusals(rehearse: Rehearse, lab: Lab) -> None:
    lab.simulation.quota = 4
    said = rehearse()
    assert said.code == 2
    assert "limit exceeded: infrastructure: 24 vCPUs of Standard" in said.out
    assert "WRONG  quotas: 4 vCPUs" in said.out
    assert "2 of the above would be refused." in said.out
