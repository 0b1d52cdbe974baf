"""The bed itself: what it gives, and that nothing of it is left."""

import subprocess
from pathlib import Path

import pytest

from tests.hosts.bed import Bed, bed, lacking
from tests.hosts.bed.lab import beds, make
from tests.hosts.needs import REQUIRED, need


@pytest.mark.long
def test_every_machine_boots_with_volumes_and_is_reached_with_its_own_key(lab: Bed) -> None:
    for machine in lab.machines:
        said = lab.ssh(machine, "hostname; sudo id -un; ls", *machine.devices.values()).stdout.split()
        assert said == [machine.name, "root", *sorted(machine.devices.values())]
    assert len({device for machine in lab.machines for device in machine.devices.values()}) == 9


@pytest.mark.long
def test_a_foreign_host_key_is_not_taken(lab: Bed, tmp_path: Path) -> None:
    strange = tmp_path / "known_hosts"
    strange.write_text((lab.folder / "known_hosts").read_text().replace("AAAAI", "AAAAJ", 1))
    options = [option.replace(str(lab.folder / "known_hosts"), str(strange)) for option in lab.ssh_options]
    command = lab.inside(["ssh", *options, f"lab@{lab.machines[0].address}", "true"])
    assert "Host key verification failed" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.long
def test_two_beds_do_not_disturb_one_another_and_nothing_is_left() -> None:
    need(lacking())
    with bed(1) as first:
        device = first.machines[0].devices["data"]
        with bed(1) as second:
            second.machines[0].kill()
            assert second.ssh(second.machines[0], "true").returncode == 255
            assert first.ssh(first.machines[0], "true").returncode == 0
        assert first.ssh(first.machines[0], "hostname").stdout.strip() == "host1"
    assert {first.name, second.name}.isdisjoint(one.name for one in beds())  # other tests may have some
    assert str(first.folder) not in Path("/proc/mounts").read_text()
    assert str(first.folder) not in subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
    assert not Path(f"/run/netns/{first.namespace}").exists()
    assert Path(device).exists()


@pytest.mark.long
def test_a_bed_whose_owner_was_killed_is_swept_by_the_next() -> None:
    need(lacking())
    owner = subprocess.Popen(["sleep", "60"])
    orphan = make(1, owner=owner.pid)
    machine_key = orphan.machines[0].public_key
    owner.kill()
    owner.wait()
    with bed(1) as heir:
        assert heir.name == orphan.name  # the name is free again
        assert heir.machines[0].public_key != machine_key


def test_where_machines_are_required_nothing_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no loop devices"):
        need("no loop devices")
    monkeypatch.setenv(REQUIRED, "required")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(pytest.fail.Exception, match="no loop devices"):
        need("no loop devices")
    monkeypatch.setattr("os.geteuid", lambda: 1000)  # who cannot install what is missing
    with pytest.raises(pytest.skip.Exception):
        need("no loop devices")
