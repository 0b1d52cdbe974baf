"""MongoDB's packages on a host that reaches nothing but a mirror: pinned, held, their service never started."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.backends import mongod_wheels
from microshard.embedded import binary
from microshard.records.run_folder import find_runs
from tests.hosts.bed import Bed
from tests.hosts.controller import ANSIBLE_PLAYBOOK, Controller, small
from tests.hosts.mirror import KEY, Mirror, served
from tests.hosts.needs import need
from tests.packaged import packaged

SUITE = "bookworm/mongodb-org/{}"
OTHER = "6.0.27"
STEPS = ("p01/r1", "p02/r1", "p01/r2", "p02/r2")
_CLEAN = """
apt-get -qq --allow-change-held-packages purge mongodb-org-server mongodb-org-mongos >/dev/null 2>&1
rm -f /etc/apt/sources.list.d/mongodb-org-* /usr/share/keyrings/mongodb-server-* /etc/systemd/system/mongod.service
rm -rf /var/lib/mongodb /var/log/mongodb
mv /etc/apt/sources.list.aside /etc/apt/sources.list
systemctl daemon-reload; userdel mongodb 2>/dev/null || true
"""


class Host(Controller):
    """The command line, and one machine of the bed, which reaches no repository but the mirror."""

    def output_of(self, script: str) -> str:
        """What a script says on it, as root, however it ends."""
        return self.bed.machines[0].enter("sh", "-c", f"{script}\ntrue")

    def experiment(self, *versions: str) -> Path:
        mongodb = {"source": "packages", "version": versions[0]}
        axes = {"topology.mongodb.version": list(versions)} if versions[1:] else {}
        changes = {"infrastructure": {"shard_hosts": {"count": 1}}, "matrix": axes}
        return self.write(small(**changes, topology={"kind": "standalone", "mongodb": mongodb}))

    @property
    def last(self) -> Path:
        """The folder of the youngest run."""
        return find_runs(self.runs)[-1].path

    def prepared_again(self, **variables: Any) -> subprocess.CompletedProcess[str]:
        """The same preparations once more, by Ansible itself, with other variables than the run's."""
        words: list[str | Path] = [
            *(ANSIBLE_PLAYBOOK, "--inventory", self.inventory, "playbooks/prepare.yml"),
            *(
                "--limit",
                "host1",
                "--tags",
                "binaries",
                "--extra-vars",
                f"@{self.last / 'points' / 'p01' / 'vars.json'}",
            ),
            *("--extra-vars", json.dumps(variables)),
        ]
        root = Path(__file__).parents[2]
        return subprocess.run(self.bed.inside(words), cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture
def mirror(lab: Bed, tmp_path: Path) -> Iterator[str]:
    need("" if shutil.which("gpg") and shutil.which("dpkg-deb") else "a mirror needs gnupg and dpkg (apt-get install)")
    mongod = binary.find_mongod()
    version = binary.version(mongod)
    made = Mirror(tmp_path / "mirror")
    made.servers(version.text, mongod)
    made.servers(f"{version.major}.{version.minor}.99", "#!/bin/sh\nexit 1\n")  # younger, and not requested
    other = mongod_wheels.packaged_mongod(OTHER)
    if other.fetched:
        made.servers(OTHER, other.program, list((other.folder / "lib").iterdir()))
    made.index(SUITE.format(f"{version.major}.{version.minor}"), "main")
    with served(lab, made.folder) as url:
        yield url


@pytest.fixture
def host(lab: Bed, mirror: str, tmp_path: Path) -> Iterator[Host]:
    inventory = lab.write_inventory(
        name="packages", mongodb_binaries_servers=mirror, mongodb_binaries_key_url=f"{mirror}/{KEY}"
    )
    made = Host(lab, tmp_path, inventory)
    # The archive of Debian does not answer, without retries and looking up a name.
    made.output_of("mv /etc/apt/sources.list /etc/apt/sources.list.aside")
    made.output_of("echo deb file:/nowhere bookworm main >/etc/apt/sources.list")
    yield made
    made.run("down")
    made.output_of(_CLEAN)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_packages_come_from_a_mirror_pinned_and_held_and_their_service_never_starts(host: Host) -> None:
    version = binary.version(binary.find_mongod()).text
    code, said = host.run("up", host.experiment(version), "--on", host.inventory)
    assert code == 0, said
    names = "mongodb-org-mongos mongodb-org-server"
    form = "${Package} ${Version} ${db:Status-Want}\\n"
    listed = host.output_of(f"dpkg-query --show --showformat '{form}' {names}")
    assert listed.splitlines() == [f"{name} {version} hold" for name in names.split()]
    assert f"kept back:\n  {names}\n" in host.output_of("apt-get --simulate upgrade")  # a younger one is there
    assert host.output_of("systemctl is-enabled mongod; systemctl is-active mongod").split() == ["masked", "inactive"]
    assert host.output_of("ls -A /var/lib/mongodb /var/log/mongodb") == "/var/lib/mongodb:\n\n/var/log/mongodb:"

    # The only mongod there is is the run's, and it is that of the packages.
    assert host.output_of("readlink /proc/$(pgrep -x mongod)/exe") == "/usr/bin/mongod"
    (record,) = [json.loads(path.read_text()) for path in host.last.glob("points/p01/processes/*.json")]
    assert record["command"][0] == "/usr/bin/mongod"

    again = host.prepared_again()
    assert again.returncode == 0, again.stdout
    assert "changed=0" in again.stdout
    assert "changed=1" not in again.stdout

    other = host.prepared_again(mongodb_binaries_version=f"{version}9")
    assert other.returncode != 0
    assert f"no available installation candidate for mongodb-org-server={version}9" in other.stdout
    assert "[host1]" in other.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_versions_of_the_packages_are_measured_one_replacing_the_other(host: Host) -> None:
    packaged(OTHER)
    versions = [binary.version(binary.find_mongod()).text, OTHER]
    code, said = host.run("run", host.experiment(*versions), "--on", host.inventory, "--set", "repetitions=2")
    assert code == 0, said
    results = [json.loads((host.last / f"results/{step}.json").read_text()) for step in STEPS]
    assert [(result["versions"], result["valid"]) for result in results] == [([v], True) for v in versions * 2]
    assert len({result["phases"][-1]["answer_sha256"] for result in results}) == 1
    journal = [json.loads(line) for line in (host.last / "journal.jsonl").read_text().splitlines()]
    # Servers of the other version wait meanwhile, and are measured again without being started anew.
    assert [entry.get("stage") for entry in journal].count("deploy") == 2
    *_, later = [entry["point"] for entry in journal if entry["event"] == "hosts prepared"]
    assert host.output_of("dpkg-query --show mongodb-org-server").split()[1] == versions[("p01", "p02").index(later)]
