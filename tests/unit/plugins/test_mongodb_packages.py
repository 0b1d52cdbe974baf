"""What is installed from MongoDB's repositories, by distribution."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

_FILE = Path(__file__).parents[3] / "plugins" / "filter" / "mongodb_packages.py"


def wanted(version: str, name: str, release: str, machine: str = "x86_64", servers: str = "") -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("mongodb_packages", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    facts = {
        "distribution": name,
        "distribution_version": release,
        "distribution_major_version": release.split(".", maxsplit=1)[0],
        "architecture": machine,
    }
    found: dict[str, Any] = module.mongodb_packages(version, facts, servers)
    return found


@pytest.mark.parametrize(
    ("name", "release", "machine", "line"),
    [
        ("Debian", "12.11", "x86_64", "arch=amd64 {key} ] {here}/apt/debian bookworm/mongodb-org/8.0 main"),
        ("Ubuntu", "22.04", "aarch64", "arch=arm64 {key} ] {here}/apt/ubuntu jammy/mongodb-org/8.0 multiverse"),
        ("Ubuntu", "24.04", "x86_64", "arch=amd64 {key} ] {here}/apt/ubuntu noble/mongodb-org/8.0 multiverse"),
    ],
)
def test_debian_and_ubuntu_get_a_signed_source_and_pinned_packages(
    name: str, release: str, machine: str, line: str
) -> None:
    key = "signed-by=/usr/share/keyrings/mongodb-server-8.0.asc"
    assert wanted("8.0.4", name, release, machine) == {
        "manager": "apt",
        "key_url": "https://pgp.mongodb.com/server-8.0.asc",
        "key_path": "/usr/share/keyrings/mongodb-server-8.0.asc",
        "repository_path": "/etc/apt/sources.list.d/mongodb-org-8.0.list",
        "repository": f"deb [ {line.format(key=key, here='https://repo.mongodb.org')}\n",
        "names": ["mongodb-org-server", "mongodb-org-mongos"],
        "packages": ["mongodb-org-server=8.0.4", "mongodb-org-mongos=8.0.4"],
        "installed": r"installed 8\.0\.4$",
    }


def test_amazon_linux_gets_a_checked_repository_of_its_processor() -> None:
    found = wanted("7.0.14", "Amazon", "2023", "aarch64")
    assert (found["manager"], found["repository_path"]) == ("dnf", "/etc/yum.repos.d/mongodb-org-7.0.repo")
    assert found["repository"].splitlines() == [
        "[mongodb-org-7.0]",
        "name=MongoDB 7.0",
        "baseurl=https://repo.mongodb.org/yum/amazon/2023/mongodb-org/7.0/aarch64/",
        "gpgcheck=1",
        "enabled=1",
        "gpgkey=file:///etc/pki/rpm-gpg/mongodb-server-7.0.asc",
    ]
    assert found["packages"] == ["mongodb-org-server-7.0.14", "mongodb-org-mongos-7.0.14"]


def test_a_series_alone_pins_the_series() -> None:
    assert re.match(wanted("6.0", "Ubuntu", "22.04")["installed"], "installed 6.0.19")
    assert not re.match(wanted("6.0", "Ubuntu", "22.04")["installed"], "installed 6.1.0")
    assert wanted("6.0", "Ubuntu", "22.04")["packages"][0] == "mongodb-org-server=6.0.*"
    assert wanted("8.0", "Amazon", "2023")["packages"][0] == "mongodb-org-server-8.0.*"


def test_a_mirror_takes_the_place_of_the_servers() -> None:
    assert (
        " http://mirror.lab/apt/debian bookworm/"
        in wanted("8.0", "Debian", "12", servers="http://mirror.lab/")["repository"]
    )


@pytest.mark.parametrize(
    ("which", "words"),
    [
        (("8.0", "Fedora", "41"), "no packages of MongoDB are known here for Fedora 41"),
        (("8.0", "Debian", "11"), "known here for Debian 11"),
        (("8.0", "Debian", "12", "riscv64"), "processors of kind riscv64"),
        (("eight", "Debian", "12"), "'eight' is not a version"),
    ],
)
def test_what_there_are_no_packages_for_is_refused_by_name(which: tuple[str, ...], words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        wanted(*which)
