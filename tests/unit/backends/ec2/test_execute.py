"""What a run on EC2 counts while it goes on."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from microshard.backends.ec2.ec2_plan import plan_ec2
from microshard.backends.ec2.execute import _Run
from microshard.records.run_folder import RunFolder
from microshard.run.completed_steps import RunProgress
from microshard.run.progress import Progress
from tests.unit.backends.ec2.test_cost_estimate import FILE


@pytest.fixture
def run(tmp_path: Path) -> _Run:
    (tmp_path / "x.yml").write_text(FILE)
    seen = plan_ec2(tmp_path / "x.yml")
    folder = RunFolder.create(tmp_path / "runs", "x")
    stocks = [RunProgress((), plan.steps) for plan in seen.plans]
    return _Run(seen, folder, Progress(folder, seen.plan, Console(file=io.StringIO())), {}, stocks)


@pytest.mark.parametrize(
    ("got", "usd", "said"),
    [
        ("c5.4xlarge", 0.68, ""),
        ("m5.4xlarge", 0.768, ""),  # on demand in us-east-1
        ("zz9.large", 0.68, "there is no price of zz9.large in us-east-1; money is counted as for the types listed"),
    ],
)
def test_hosts_are_paid_as_they_were_got(run: _Run, got: str, usd: float, said: str) -> None:
    (fleet,) = run.seen.view.fleets
    assert fleet.cost.hourly_usd is not None
    run.meter.reprice(fleet.cost.hourly_usd)
    hosts = [("shard_hosts", got), ("client_hosts", "c5.2xlarge")]
    told = {"hosts": [{"group": group, "instance_type": kind} for group, kind in hosts]}
    assert [remark[: len(said)] for remark in run._priced_as_made(fleet, told)] == ([said] if said else [])
    assert run.meter.hourly_usd == pytest.approx(fleet.cost.hourly_usd - 0.68 + usd)
