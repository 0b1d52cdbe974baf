"""A mirror of MongoDB's repository for Amazon Linux 2023, with packages made and signed as MongoDB makes its own."""

import shutil
from pathlib import Path

from tests.hosts.bed import Machine
from tests.hosts.mirror import AFTERWARDS, CONFIGURATION, KEY, UNIT

# Packages are made on a machine of the bed: this one need not have rpm.
_WORK = "var/tmp/rpms"
_SPEC = """Name: {name}
Version: {version}
Release: 1.amzn2023
Summary: a part of MongoDB
License: none
AutoReqProv: no
{more}
%description
A part of MongoDB.
{afterwards}
%files
{files}
"""
_BUILD = """set -e
cd /{work}
export HOME=/{work}
for spec in *.spec; do
  rpmbuild --quiet -bb --define "_topdir $PWD/top" --buildroot "$PWD/${{spec%.spec}}" "$spec"
done
mkdir -m 700 gnupg
gpg="gpg --homedir gnupg --batch --quiet --pinentry-mode loopback --passphrase="
$gpg --quick-generate-key mirror rsa2048 sign never
$gpg --armor --export mirror >key.asc
rpmsign --define "_gpg_path $PWD/gnupg" --define "__gpg /usr/bin/gpg" --define "_gpg_name mirror" \\
  --addsign $(find top/RPMS -name '*.rpm' ! -name '*-{unsigned}-*') >/dev/null
gpgconf --homedir gnupg --kill all
mkdir repository
find top/RPMS -name '*.rpm' -exec mv -t repository {{}} +
createrepo_c --quiet repository
"""


class RpmMirror:
    """A folder with the same folders as the original; its packages are what `servers` says, then `index` makes them."""

    def __init__(self, folder: Path, machine: Machine, series: str) -> None:
        self.folder, self._machine = folder, machine
        self._repository = folder / "yum/amazon/2023/mongodb-org" / series / "x86_64"
        self._work = machine.root / _WORK
        self._work.mkdir(parents=True)
        # What Amazon Linux has and this machine has not: a shell, for the scripts of packages, as rpm knows it.
        self._add("bash", "5", {}, more="Provides: /bin/sh")

    def servers(self, version: str) -> None:
        """The two packages of the servers, which only say their version: Debian's packages have a real mongod."""
        server = {
            "usr/bin/mongod": f"#!/bin/sh\necho db version v{version}\n",
            "etc/mongod.conf": CONFIGURATION,
            "usr/lib/systemd/system/mongod.service": UNIT,
        }
        self._add("mongodb-org-server", version, server, afterwards=AFTERWARDS)
        self._add("mongodb-org-mongos", version, {"usr/bin/mongos": f"#!/bin/sh\necho mongos version v{version}\n"})

    def _add(self, name: str, version: str, files: dict[str, str], afterwards: str = "", more: str = "") -> None:
        root = self._work / f"{name}-{version}"
        root.mkdir()
        for path, content in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
            file.chmod(0o755 if "/bin/" in path else 0o644)
        script = f"%post\n{afterwards.partition('set -e')[2]}" if afterwards else ""
        listed = "\n".join(f"/{path}" for path in files)
        spec = _SPEC.format(name=name, version=version, more=more, afterwards=script, files=listed)
        (self._work / f"{name}-{version}.spec").write_text(spec, encoding="utf-8")

    def index(self, unsigned: str) -> None:
        """All packages, those of one version without a signature, the repository, and the key."""
        self._machine.enter("sh", "-c", _BUILD.format(work=_WORK, unsigned=unsigned))
        shutil.copytree(self._work / "repository", self._repository)
        shutil.copy(self._work / "key.asc", self.folder / KEY)
        shutil.rmtree(self._work)
