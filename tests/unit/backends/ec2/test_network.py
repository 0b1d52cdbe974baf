"""The SSH keys of a run."""

import stat
import subprocess
from pathlib import Path

from microshard.backends.ec2.network import ensure_keys, write_known_hosts


def test_keys_are_generated_once_and_nobody_else_reads_them(tmp_path: Path) -> None:
    first = ensure_keys(tmp_path / "ssh")
    assert ensure_keys(tmp_path / "ssh") == first
    assert stat.S_IMODE((tmp_path / "ssh").stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "ssh").iterdir()} == {0o600}
    derived = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(first.private_file)], capture_output=True, text=True, check=True
    ).stdout
    assert derived.split()[:2] == first.public.split()[:2]
    assert first.public.split()[0] == "ssh-ed25519"


def test_ssh_finds_the_host_key_of_an_address(tmp_path: Path) -> None:
    keys = ensure_keys(tmp_path)
    write_known_hosts(keys, ["203.0.113.5", "203.0.113.6"])
    found = subprocess.run(
        ["ssh-keygen", "-F", "203.0.113.6", "-f", str(keys.known_hosts)], capture_output=True, text=True, check=True
    )
    assert keys.host_public.split()[1] in found.stdout
