"""What hosts lack, and hosts that do not reach one another: named, with the next step."""

from pathlib import Path

import pytest

from tests.hosts.controller import Controller, small


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_a_host_lacks_is_reported_by_its_name_and_with_the_next_step(
    controller: Controller, tmp_path: Path
) -> None:
    file, lab = controller.write(small()), controller.bed
    plain = lab.write_inventory(name="plain", user="plain", microshard_folder="/opt/lab/runs")
    code, said = controller.run("plan", file, "--on", plain)
    assert code == 4
    assert "host2: /opt/lab/runs cannot be written and plain may not use sudo" in said
    nobody = lab.write_inventory(name="nobody", user="nobody-there")
    code, said = controller.run("plan", file, "--on", nobody)
    assert (code, "host1: it does not take this user's key; check ansible_user" in said) == (4, True), said
    python = lab.write_inventory(name="python", ansible_python_interpreter="/usr/bin/python9")
    code, said = controller.run("plan", file, "--on", python)
    assert (code, "Python is missing on it" in said) == (4, True), said
    known = lab.folder / "known_hosts"
    right = known.read_text()
    known.write_text("".join(f"{line}\n" for line in right.splitlines() if lab.machines[2].address not in line))
    try:
        code, said = controller.run("plan", file, "--on", lab.inventory)
    finally:
        known.write_text(right)
    assert (code, "host3: its host key is not the one in known_hosts" in said) == (4, True), said
    four = small(infrastructure={"shard_hosts": {"count": 4}})
    code, said = controller.run("plan", controller.write(four), "--on", lab.inventory)
    assert code == 2
    assert "4 needed" in said
    assert "host1, host2, host3" in said


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_member_that_cannot_reach_another_is_reported_with_both_names(controller: Controller) -> None:
    lab = controller.bed
    one, other = lab.machines[1:]
    lab.ssh(other, "sudo", "ip", "route", "add", "unreachable", one.address)
    try:
        code, said = controller.run("run", controller.write(small()), "--on", lab.inventory)
    finally:
        lab.ssh(other, "sudo", "ip", "route", "del", "unreachable", one.address)
    assert code == 3, said
    said = " ".join(said.split())
    assert f"replSetInitiate of shard02 on {one.address}:27101 (shard02-1 on host2): " in said
    assert f"{other.address}:27100 (shard02-2 on host3) failed with Couldn't get a connection" in said
    assert "these hosts must reach one another (routes, firewall)" in said
    assert controller.left() == []
