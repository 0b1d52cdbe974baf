"""What the role mongodb_binaries installs from MongoDB's repositories, by distribution: its variables."""

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).parents[3] / "roles" / "mongodb_binaries"


def read(name: str) -> Any:
    """A file of the role, its strings templates."""
    return DataLoader().load_from_file(str(ROLE / name), trusted_as_template=True)


def of_host(version: str, name: str, release: str, machine: str = "x86_64", **given: Any) -> Templar:
    """The variables of the role on a host; `line` is that of apt's sources."""
    line = trust_as_template((ROLE / "templates/mongodb-org.list.j2").read_text(encoding="utf-8"))
    facts = {
        "distribution": name,
        "distribution_version": release,
        "distribution_major_version": release.split(".", maxsplit=1)[0],
        "architecture": machine,
        "packages": given.pop("packages", {}),
    }
    variables = {**read("defaults/main.yml"), **read("vars/main.yml"), "mongodb_binaries_version": version, **given}
    return Templar(loader=DataLoader(), variables={**variables, "ansible_facts": facts, "line": line})


@pytest.mark.parametrize(
    ("name", "release", "machine", "line"),
    [
        ("Debian", "12.11", "x86_64", "arch=amd64 {key} ] {here}/apt/debian bookworm/mongodb-org/8.0 main"),
        ("Ubuntu", "22.04", "aarch64", "arch=arm64 {key} ] {here}/apt/ubuntu jammy/mongodb-org/8.0 multiverse"),
        ("Ubuntu", "24.04", "x86_64", "arch=amd64 {key} ] {here}/apt/ubuntu noble/mongodb-org/8.0 multiverse"),
    ],
)
@pytest.mark.parametrize("mirror", ["", "http://mirror.lab/"])
def test_debian_and_ubuntu_get_a_signed_source(name: str, release: str, machine: str, line: str, mirror: str) -> None:
    host = of_host("8.0.4", name, release, machine, mongodb_binaries_servers=mirror)
    key = "signed-by=/usr/share/keyrings/mongodb-server-8.0.asc"
    here = mirror.rstrip("/") or "https://repo.mongodb.org"
    assert host.template(trust_as_template("{{ line }}")).strip() == f"deb [ {line.format(key=key, here=here)}"
    assert host.template(trust_as_template("{{ mongodb_binaries_key }}")) == "https://pgp.mongodb.com/server-8.0.asc"


def test_amazon_linux_gets_a_repository_of_its_own() -> None:
    host = of_host("7.0.14", "Amazon", "2023", "aarch64")
    assert host.template(trust_as_template("{{ mongodb_binaries_repository.manager }}")) == "dnf"
    assert host.template(trust_as_template("{{ mongodb_binaries_url }}")) == "https://repo.mongodb.org/yum/amazon/2023"
    assert (
        host.template(trust_as_template("{{ mongodb_binaries_key_path }}")) == "/etc/pki/rpm-gpg/mongodb-server-7.0.asc"
    )


@pytest.mark.parametrize(
    ("version", "pinned", "installed", "missing"),
    [
        ("8.0.4", "8.0.4", ["8.0.4", "8.0.4"], False),
        ("8.0.4", "8.0.4", ["8.0.4"], True),
        ("8.0.4", "8.0.4", ["8.0.4", "8.0.5"], True),
        ("8.0.4", "8.0.4", [], True),
        ("8.0", "8.0.*", ["8.0.4", "8.0.19"], False),
        ("8.0", "8.0.*", ["8.0.4", "8.1.0"], True),
    ],
)
def test_a_series_pins_the_series_and_a_release_the_release(
    version: str, pinned: str, installed: list[str], missing: bool
) -> None:
    names = ["mongodb-org-server", "mongodb-org-mongos"]
    packages = {name: [{"version": found}] for name, found in zip(names, installed, strict=False)}
    host = of_host(version, "Debian", "12", packages=packages)
    assert host.template(trust_as_template("{{ mongodb_binaries_pinned }}")) == pinned
    assert host.template(trust_as_template("{{ mongodb_binaries_missing }}")) is missing


@pytest.mark.parametrize(("name", "release"), [("Fedora", "41"), ("Debian", "11.4")])
def test_other_distributions_have_none(name: str, release: str) -> None:
    assert of_host("8.0", name, release).template(trust_as_template("{{ mongodb_binaries_repository }}")) == {}
