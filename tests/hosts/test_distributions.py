"""MongoDB's packages the way of other distributions than the bed's, by their own package managers, from a mirror."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.bed import Bed, Machine
from tests.hosts.mirror import KEY, Mirror, served
from tests.hosts.mirror_rpm import RpmMirror
from tests.hosts.needs import need
from tests.hosts.readme_examples import play

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SERIES, VERSION, YOUNGER, UNSIGNED = "8.0", "8.0.4", "8.0.99", "8.0.5"
NAMES = ("mongodb-org-mongos", "mongodb-org-server")
_LEAVE = """
apt-get -qq --allow-change-held-packages purge mongodb-org-server mongodb-org-mongos >/dev/null 2>&1
dnf --quiet --assumeyes --disableexcludes=all remove 'mongodb-org-*' bash >/dev/null 2>&1
rm -f /etc/apt/sources.list.d/mongodb-org-* /usr/share/keyrings/mongodb-server-* /etc/systemd/system/mongod.service
rm -rf /etc/yum.repos.d /etc/pki/rpm-gpg ~root/.rpmdb /var/cache/dnf /var/lib/dnf /var/tmp/rpms
rm -rf /var/lib/mongodb /var/log/mongodb
mv /etc/apt/sources.list.aside /etc/apt/sources.list
mv /etc/dnf/dnf.conf.aside /etc/dnf/dnf.conf
ln -sf ../usr/lib/os-release /etc/os-release
systemctl daemon-reload; userdel mongodb 2>/dev/null
true
"""


@dataclass(frozen=True)
class Distribution:
    """What a machine says it is, and its commands about packages."""

    says: dict[str, str]
    packages: Callable[[Path, Machine], None]  # makes the mirror
    installed: str  # a line for each package: name and version, as its manager keeps it
    held: str  # the packages nothing upgrades
    upgrade: str  # what an upgrade would do
    refusal: str  # what is said of a version nobody has signed


def _ubuntu(suite: str) -> Callable[[Path, Machine], None]:
    def make(folder: Path, machine: Machine) -> None:
        need("" if shutil.which("gpg") and shutil.which("dpkg-deb") else "a mirror needs gnupg and dpkg")
        mirror = Mirror(folder, "apt/ubuntu")
        for version in (VERSION, YOUNGER):
            mirror.servers(version, f"#!/bin/sh\necho db version v{version}\n")
        mirror.index(f"{suite}/mongodb-org/{SERIES}", "multiverse")

    return make


def _amazon(folder: Path, machine: Machine) -> None:
    mirror = RpmMirror(folder, machine, SERIES)
    for version in (VERSION, UNSIGNED, YOUNGER):
        mirror.servers(version)
    mirror.index(UNSIGNED)


_APT = (
    "dpkg-query --show --showformat '${Package} ${Version}\\n' " + " ".join(NAMES),
    "apt-mark showhold",
    "apt-get --simulate upgrade",
    f"no available installation candidate for mongodb-org-server={UNSIGNED}",
)
_DNF = (
    "rpm --query --queryformat '%{NAME} %{VERSION}\\n' " + " ".join(NAMES),
    "sed -n 's/^exclude=//p' /etc/dnf/dnf.conf | tr , '\\n' | sort",
    "dnf --assumeno upgrade",
    f"mongodb-org-server-{UNSIGNED}-1.amzn2023.x86_64.rpm is not signed",
)
DISTRIBUTIONS = {
    "ubuntu-22.04": Distribution(
        {"NAME": "Ubuntu", "ID": "ubuntu", "VERSION_ID": "22.04", "VERSION_CODENAME": "jammy"}, _ubuntu("jammy"), *_APT
    ),
    "ubuntu-24.04": Distribution(
        {"NAME": "Ubuntu", "ID": "ubuntu", "VERSION_ID": "24.04", "VERSION_CODENAME": "noble"}, _ubuntu("noble"), *_APT
    ),
    "amazon-2023": Distribution({"NAME": "Amazon Linux", "ID": "amzn", "VERSION_ID": "2023"}, _amazon, *_DNF),
}


class Elsewhere:
    """A machine of the bed that says it has another distribution, and reaches no repository but a mirror."""

    def __init__(self, lab: Bed, distribution: Distribution, url: str, folder: Path) -> None:
        self.lab, self.distribution, self.machine = lab, distribution, lab.machines[2]
        self.inventory = lab.write_inventory({"shard_hosts": [self.machine.name]}, name="distribution")
        self.folder = folder
        self._mirror = {"mongodb_binaries_servers": url, "mongodb_binaries_key_url": f"{url}/{KEY}"}
        said = "".join(f'{name}="{value}"\n' for name, value in distribution.says.items())
        self.output_of("rm /etc/os-release; mv /etc/apt/sources.list /etc/apt/sources.list.aside")
        self.output_of("cp -p /etc/dnf/dnf.conf /etc/dnf/dnf.conf.aside; mkdir -p /etc/yum.repos.d /etc/pki/rpm-gpg")
        self.machine.write("etc/os-release", said)

    def output_of(self, script: str) -> str:
        """What a script says on it, as root, however it ends."""
        return self.machine.enter("sh", "-c", f"{script}\ntrue")

    def prepared(self, version: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        """The packages of a version by the role."""
        text = json.dumps(
            [{"hosts": "shard_hosts", "gather_facts": False, "roles": ["microshard.lab.mongodb_binaries"]}]
        )
        given = {
            "mongodb_binaries_source": "packages",
            "mongodb_binaries_version": version,
            **self._mirror,
            **variables,
        }
        return play(self.lab, "mongodb_binaries", self.folder, inventory=self.inventory, text=text, **given)


@pytest.fixture(params=DISTRIBUTIONS)
def elsewhere(request: pytest.FixtureRequest, lab: Bed, tmp_path: Path) -> Iterator[Elsewhere]:
    distribution = DISTRIBUTIONS[request.param]
    folder = tmp_path / "mirror"
    folder.mkdir()
    machine = lab.machines[2]
    try:
        distribution.packages(folder, machine)
        with served(lab, folder) as url:
            yield Elsewhere(lab, distribution, url, tmp_path)
    finally:
        machine.enter("sh", "-c", _LEAVE)


def test_packages_are_pinned_and_held_and_their_service_never_starts(elsewhere: Elsewhere) -> None:
    output_of, distribution = elsewhere.output_of, elsewhere.distribution
    done = elsewhere.prepared(VERSION)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(output_of(distribution.installed).splitlines()) == [f"{name} {VERSION}" for name in NAMES]
    assert sorted(output_of(distribution.held).splitlines()) == list(NAMES)
    assert YOUNGER not in output_of(distribution.upgrade)
    assert output_of("systemctl is-enabled mongod; systemctl is-active mongod").split() == ["masked", "inactive"]
    assert output_of("ls -A /var/lib/mongodb /var/log/mongodb") == "/var/lib/mongodb:\n\n/var/log/mongodb:"

    again = elsewhere.prepared(VERSION)
    assert again.returncode == 0, again.stdout
    assert "changed=0" in again.stdout, again.stdout

    # Another release, although the packages are held; and one that nobody has signed, or that there is not
    assert elsewhere.prepared(YOUNGER).returncode == 0
    assert sorted(output_of(distribution.installed).splitlines()) == [f"{name} {YOUNGER}" for name in NAMES]
    refused = elsewhere.prepared(UNSIGNED)
    assert refused.returncode != 0, refused.stdout
    assert distribution.refusal in " ".join(refused.stdout.split()), refused.stdout
    assert sorted(output_of(distribution.installed).splitlines()) == [f"{name} {YOUNGER}" for name in NAMES]


# Holds the lock until its input ends.
_HOLD = """
import fcntl, sys
lock = open("/var/lib/apt/lists/lock", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("elsewhere", ["ubuntu-24.04"], indirect=True)
def test_a_held_lock_and_a_repository_that_does_not_answer_are_named(elsewhere: Elsewhere) -> None:
    lab = elsewhere.lab
    words = ["ssh", *lab.ssh_options, f"lab@{elsewhere.machine.address}", "sudo", "python3", "-c", shlex.quote(_HOLD)]
    holder = subprocess.Popen(lab.inside(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        held = elsewhere.prepared(VERSION, mongodb_binaries_lock_retries=1, mongodb_binaries_lock_delay=1)
    finally:
        holder.communicate(timeout=20)
    assert "another program has held apt's lock" in " ".join(held.stdout.replace("''", "'").split()), held.stdout
    away = elsewhere.prepared(VERSION, mongodb_binaries_servers="http://127.0.0.1:9")
    assert "cannot be read" in " ".join(away.stdout.split()), away.stdout
    assert "127.0.0.1:9" in away.stdout
