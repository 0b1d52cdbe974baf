"""Roles without a run: the examples of their READMEs, on machines of the bed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.bed import Bed
from tests.hosts.readme_examples import changes, converge, play, succeed

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def mongodb_user(lab: Bed) -> Iterator[Bed]:
    """The user MongoDB's packages make, on every machine."""
    for machine in lab.machines:
        machine.enter("useradd", "--system", "--no-create-home", "mongodb")
    yield lab
    for machine in lab.machines:
        machine.enter("sh", "-c", "userdel mongodb; rm -rf /etc/mongodb-secrets")


def test_run_secrets(mongodb_user: Bed, tmp_path: Path) -> None:
    lab = mongodb_user
    assert "keyfile of run_secrets_names: no file of that name" in play(lab, "run_secrets", tmp_path).stdout
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "keyfile").write_text("aGlkZGVu\n", encoding="ascii")
    checked = succeed(lab, "run_secrets", tmp_path, "--check", "--diff", "-vvv")
    assert set(changes(checked).values()) == {2}
    said = converge(lab, "run_secrets", tmp_path)
    assert "aGlkZGVu" not in checked + said
    for machine in lab.machines:
        listed = machine.enter("stat", "--format", "%U %a", "/etc/mongodb-secrets", "/etc/mongodb-secrets/keyfile")
        assert listed.splitlines() == ["mongodb 700", "mongodb 600"]
        assert machine.enter("cat", "/etc/mongodb-secrets/keyfile") == "aGlkZGVu"
