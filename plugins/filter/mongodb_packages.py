"""What a distribution needs to install one version of MongoDB from MongoDB's own repositories."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

_SERVERS = "https://repo.mongodb.org"
_KEYS = "https://pgp.mongodb.com"  # one signing key a release series
# The servers alone: no shell, no tools, and not the package of all packages, which would bring them.
_NAMES = ("mongodb-org-server", "mongodb-org-mongos")
# (distribution, its major version or version as Ansible tells it) → (folder below the repository, component).
# From MongoDB's manual, "Install MongoDB Community Edition on Debian, on Ubuntu, on Amazon Linux".
_APT = {
    ("Debian", "12"): ("apt/debian", "bookworm", "main"),
    ("Ubuntu", "22.04"): ("apt/ubuntu", "jammy", "multiverse"),
    ("Ubuntu", "24.04"): ("apt/ubuntu", "noble", "multiverse"),
}
_YUM = {("Amazon", "2023"): "yum/amazon/2023"}
_ANY = re.escape("*")
_DEBIAN_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def mongodb_packages(version: str, facts: Mapping[str, Any], servers: str = "") -> dict[str, Any]:
    """Key, repository file and packages, for the package manager of a host (`manager`: apt or dnf).

    `version` as far as given: 6.0 pins the series, 6.0.5 the release. `servers` stands in for repo.mongodb.org, for
    hosts that reach a mirror only. With apt `installed` matches dpkg-query's status and version of a package that is
    as wanted. Raises AnsibleFilterError by distribution and processor.
    """
    name, machine = str(facts["distribution"]), str(facts["architecture"])
    parts = version.split(".")
    if len(parts) not in {2, 3} or not all(part.isdigit() for part in parts):
        raise AnsibleFilterError(f"mongodb_packages: {version!r} is not a version such as 6.0 or 6.0.5")
    if machine not in _DEBIAN_MACHINES:
        raise AnsibleFilterError(f"MongoDB has no packages for processors of kind {machine}")
    series = ".".join(parts[:2])
    common = {"key_url": f"{_KEYS}/server-{series}.asc", "names": list(_NAMES)}
    here = (servers or _SERVERS).rstrip("/")
    for release in (str(facts["distribution_version"]), str(facts["distribution_major_version"])):
        if (name, release) in _APT:
            return {**common, **_apt((name, release), parts, series, machine, here)}
        if (name, release) in _YUM:
            return {**common, **_yum((name, release), parts, series, machine, here)}
    known = ", ".join(" ".join(one) for one in (*_APT, *_YUM))
    raise AnsibleFilterError(
        f"no packages of MongoDB are known here for {name} {facts['distribution_version']}, only for {known}; "
        "take topology.mongodb.source: tarball"
    )


def _apt(which: tuple[str, str], parts: list[str], series: str, machine: str, servers: str) -> dict[str, Any]:
    folder, suite, component = _APT[which]
    key = f"/usr/share/keyrings/mongodb-server-{series}.asc"
    where = f"{servers}/{folder} {suite}/mongodb-org/{series} {component}"
    pinned = ".".join(parts) if len(parts) == 3 else f"{series}.*"
    return {
        "manager": "apt",
        "key_path": key,
        "repository_path": f"/etc/apt/sources.list.d/mongodb-org-{series}.list",
        "repository": f"deb [ arch={_DEBIAN_MACHINES[machine]} signed-by={key} ] {where}\n",
        "packages": [f"{name}={pinned}" for name in _NAMES],
        "installed": f"installed {re.escape(pinned).replace(_ANY, '.*')}$",
    }


def _yum(which: tuple[str, str], parts: list[str], series: str, machine: str, servers: str) -> dict[str, Any]:
    key = f"/etc/pki/rpm-gpg/mongodb-server-{series}.asc"
    lines = [
        f"[mongodb-org-{series}]",
        f"name=MongoDB {series}",
        f"baseurl={servers}/{_YUM[which]}/mongodb-org/{series}/{machine}/",
        "gpgcheck=1",
        "enabled=1",
        f"gpgkey=file://{key}",
    ]
    pinned = ".".join(parts) if len(parts) == 3 else f"{series}.*"
    return {
        "manager": "dnf",
        "key_path": key,
        "repository_path": f"/etc/yum.repos.d/mongodb-org-{series}.repo",
        "repository": "\n".join(lines) + "\n",
        "packages": [f"{name}-{pinned}" for name in _NAMES],
    }


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Filters by name."""
        return {"mongodb_packages": mongodb_packages}
