"""Units of the processes."""

import subprocess

import pytest

from microshard.hostlib import systemd


@pytest.mark.parametrize("folder", ["/srv/runs/my-run_1.2/p01/shard01", "/a/ü b/c", "/.hidden/x"])
def test_a_unit_is_named_as_systemd_escapes_a_path(folder: str) -> None:
    escaped = subprocess.run(
        ["systemd-escape", "--path", "--template=microshard@.service", folder],
        capture_output=True,
        text=True,
        check=True,
    )
    assert systemd.unit_name(folder) == escaped.stdout.strip()
