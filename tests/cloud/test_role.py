"""The role as a playbook uses it, with Ansible's own command."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.readme_examples import Here, succeed

from .fleets import REGION, Lab, dummy_environment
from .strict import Fault, Simulation

ROOT = Path(__file__).parents[2]


class Play:
    """Runs the role ec2_fleet on this machine."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.folder = lab.folder
        playbook = [
            {"name": "Fleet", "hosts": "localhost", "gather_facts": False, "roles": ["microshard.lab.ec2_fleet"]}
        ]
        (self.folder / "play.yml").write_text(json.dumps(playbook))

    def run(self, *options: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        spec = {f"ec2_fleet_{key}": value for key, value in dataclasses.asdict(self.lab.spec).items()}
        given = {**spec, "ec2_fleet_folder": str(self.folder), "ec2_fleet_region": REGION, **variables}
        (self.folder / "vars.json").write_text(json.dumps(given))
        return self.playbook("play.yml", "-e", f"@{self.folder / 'vars.json'}", *options)

    def playbook(self, name: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook of the folder with the dummy credentials."""
        command = [str(Path(sys.executable).with_name("ansible-playbook")), str(self.folder / name), *options]
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("AWS_")},
            **dummy_environment(self.lab.simulation.url),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            **environment,
        }
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def play(lab: Lab) -> Play:
    return Play(lab)


def test_present_twice_and_absent_twice(play: Play) -> None:
    first = play.run()
    assert "changed=1" in first.stdout, first.stdout + first.stderr
    assert len(play.lab.simulation.everything()["instance"]) == 3
    assert "changed=0" in play.run().stdout
    written = json.loads((play.folder / "inventory.yml").read_text())["all"]
    assert set(written["hosts"]) == {"shard_hosts-1", "shard_hosts-2", "client_hosts-1"}
    assert set(written["children"]["config_hosts"]["hosts"]) == {"shard_hosts-1", "shard_hosts-2"}
    assert set(written["children"]["mongos_hosts"]["hosts"]) == {"client_hosts-1"}
    host = written["hosts"]["shard_hosts-1"]
    assert "StrictHostKeyChecking=yes" in host["ansible_ssh_common_args"]
    assert [v["purpose"] for v in host["microshard_volumes"]] == ["root", "data"]
    gone = play.run(ec2_fleet_state="absent")
    assert "changed=1" in gone.stdout, gone.stdout + gone.stderr
    assert play.lab.simulation.everything() == {}
    assert "changed=0" in play.run(ec2_fleet_state="absent").stdout


@pytest.mark.long
def test_check_mode_makes_and_removes_nothing(play: Play) -> None:
    assert "changed=1" in play.run("--check").stdout
    assert play.lab.simulation.everything() == {}
    play.lab.provision()
    before = play.lab.simulation.everything()
    assert "changed=1" in play.run("--check", ec2_fleet_state="absent").stdout
    assert play.lab.simulation.everything() == before


@pytest.mark.long
def test_what_aws_refuses_and_what_is_left_fail_the_play_with_their_names(play: Play) -> None:
    play.lab.simulation.inject(Fault("RunInstances", "VcpuLimitExceeded"))
    refused = play.run()
    assert refused.returncode == 2
    assert "Service Quotas" in refused.stdout
    play.lab.simulation.inject(Fault("DeleteVpc", "UnauthorizedOperation", times=None))
    left = play.run(ec2_fleet_state="absent")
    assert left.returncode == 2
    assert ": vpc vpc-" in left.stdout


def test_a_wrong_spec_fails_without_a_call_that_makes_anything(play: Play) -> None:
    wrong = play.run(ec2_fleet_controller_cidrs=["0.0.0.0/0"])
    assert wrong.returncode == 2
    assert "whole Internet" in wrong.stdout
    assert play.lab.simulation.calls == []


@pytest.mark.long
def test_a_wrong_type_fails_without_a_call_that_makes_anything(play: Play) -> None:
    wrong = play.run(ec2_fleet_groups=[{"name": "shard_hosts", "count": "some", "instance_types": ["c5.large"]}])
    assert wrong.returncode == 2
    assert "unable to convert to int" in wrong.stdout
    assert play.lab.simulation.calls == []


@pytest.mark.long
def test_the_example_of_the_readme_launches_its_hosts_and_removes_them(simulation: Simulation, tmp_path: Path) -> None:
    here = Here(ROOT / "inventories" / "local", 0)
    succeed(here, "ec2_fleet", tmp_path, ec2_fleet_owner="ann")
    assert len(simulation.everything()["instance"]) == 2
    assert (tmp_path / "replica-lag-1" / "inventory.yml").is_file()
    succeed(here, "ec2_fleet", tmp_path, ec2_fleet_owner="ann", state="absent")
    assert simulation.everything() == {}


SEEN = """\
{{ [groups.shard_hosts, groups.config_hosts, groups.mongos_hosts, groups.client_hosts] | to_json }} \
{{ [ansible_user, ansible_host == public_ip_address, microshard_address == private_ip_address,
    ansible_ssh_private_key_file, 'ssh/known_hosts' in ansible_ssh_common_args] | to_json }} \
{{ microshard_volumes | map(attribute='purpose') | to_json }}"""


@pytest.mark.long
def test_the_dynamic_inventory_shows_the_hosts_of_one_run_in_their_groups(play: Play) -> None:
    play.lab.provision()
    run = play.folder / "small-1"
    run.mkdir()
    task = {"name": "Say", "ansible.builtin.copy": {"content": SEEN, "dest": str(play.folder / "seen")}}
    local = {"delegate_to": "localhost", "become": False, "run_once": True}
    see = [{"name": "See", "hosts": "shard_hosts", "gather_facts": False, "tasks": [{**task, **local}]}]
    (play.folder / "see.yml").write_text(json.dumps(see))
    play.lab.change(run="other-1").provision()
    options = ("-i", str(ROOT / "inventories/ec2"), "-e", f"ansible_playbook_python={sys.executable}")
    said = play.playbook("see.yml", *options, AWS_REGION=REGION, MICROSHARD_RUN=str(run))
    assert said.returncode == 0, said.stdout + said.stderr
    decode, text = json.JSONDecoder().raw_decode, (play.folder / "seen").read_text()
    groups, end = decode(text)
    assert [len(members) for members in groups] == [2, 2, 1, 1]
    assert groups[0] == groups[1]
    assert groups[2] == groups[3]
    variables, after = decode(text[end:].lstrip())
    assert variables == ["ec2-user", True, True, f"{run}/ssh/id_ed25519", True]
    assert '["data"]' in text[end + after :]
