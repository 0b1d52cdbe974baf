"""Every shipped experiment gets the hosts and volumes it plans, `today` and as `published`, and they are removed."""

from collections import Counter
from pathlib import Path

import pytest

from microshard.backends.ec2.ec2_plan import plan_ec2
from microshard.backends.ec2.fleet import Ec2Fleet
from microshard.backends.ec2.spec import GroupSpec, fleet_spec
from microshard.backends.ec2.tables import InstanceFacts, find_instance
from tests.conftest import todays
from tests.unit.plan.test_published import FILES, UNPUBLISHED, without_data

from .fleets import Lab


def found_as(fleet: Ec2Fleet, name: str) -> Counter[tuple[str, str]]:
    """What the inventory says of the disks of a host: purpose, and by what the role finds it."""
    entries = fleet.inventory("python")["all"]["hosts"][name]["microshard_volumes"]
    return Counter((entry["purpose"], next(key for key in entry if key != "purpose")) for entry in entries)


def expected(group: GroupSpec, facts: InstanceFacts) -> Counter[tuple[str, str]]:
    """The same by what AWS documents of the type: NVMe disks of an instance store are found by their model."""
    by = {True: "serial", False: "device"}
    wanted = Counter({("root", by[facts.ebs_nvme]): 1})
    for volume in group.volumes:
        if volume.type != "instance_store":
            wanted[volume.purpose, by[facts.ebs_nvme]] += 1
        elif not facts.disks_nvme:
            wanted[volume.purpose, "device"] += 1
    return wanted


@pytest.mark.parametrize("scale", ["today", "published"])
@pytest.mark.parametrize("file", todays(FILES, 3))
def test_its_fleets_come_up_with_the_volumes_of_the_plan(lab: Lab, file: Path, scale: str) -> None:
    if scale == "published" and file.stem in UNPUBLISHED:
        return
    if lacks := without_data(file):
        pytest.skip(lacks)
    lab.simulation.quota = 5000
    planned = plan_ec2(file, scale=scale)
    planned.raise_on_violations()
    for estimate in planned.estimate.fleets:
        lab.spec = fleet_spec(
            estimate.infrastructure, run=f"{file.stem}-1", owner="tester", experiment=file.stem,
            expires_at=4_000_000_000, controller_cidrs=("192.0.2.7/32",),
        )  # fmt: skip
        fleet = lab.provision()
        assert Counter(host.group for host in fleet.hosts) == {group.name: group.count for group in estimate.groups}
        groups = {group.name: group for group in estimate.groups}
        for host in fleet.hosts:
            group, facts = groups[host.group], find_instance(host.instance_type)
            assert facts is not None
            assert host.instance_type == group.instance_types[0]
            assert {(v.purpose, v.type, v.size_gib) for v in host.volumes} == {
                (v.purpose, v.type, v.size_gib) for v in (group.root_volume, *group.volumes)
            }
            assert found_as(fleet, host.name) == expected(group, facts)
        # The hosts of the plan are those of the fleet: every process of every point has its host
        made = {host.name for host in fleet.hosts}
        assert {h.name for point in planned.plan.points if point.id in estimate.points for h in point.hosts} <= made
        assert lab.teardown().clean
    assert lab.simulation.everything() == {}
