"""The roots machines share, one for each system, built once and kept; every machine has an overlay on one."""

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from tests.hosts.bed.system import command

SUITE = "bookworm"
PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}  # Debian 12 and 13, and their Python
PACKAGES = (
    # what a cloud image has
    "dbus,e2fsprogs,iproute2,libcurl4,logrotate,numactl,openssh-server,procps,python3,python3-apt,sudo,systemd-sysv"
    ",udev,util-linux,xfsprogs"
    # and what makes one Amazon Linux: its package manager, and how its packages are made
    ",createrepo-c,dnf,gpg,gpg-agent,rpm"
)
_RENAMED = {"bookworm": {}, "trixie": {"libcurl4": "libcurl4t64"}}  # since its times have 64 bits
LAB, PLAIN = "lab", "plain"  # users: with sudo and without

ADDRESS = "etc/bed-address"  # one line BED_ADDRESS=…, made for each machine
# Without systemd-networkd, which waits for udev. The interface is there before the first process: nothing to wait for.
_NETWORK = (
    "[Unit]",
    "DefaultDependencies=no",
    "Before=network.target",
    "[Service]",
    "Type=oneshot",
    "RemainAfterExit=yes",
    f"EnvironmentFile=/{ADDRESS}",
    "ExecStart=/sbin/ip address add ${BED_ADDRESS} dev host0",
    "ExecStart=/sbin/ip link set host0 up",
    "[Install]",
    "WantedBy=network.target multi-user.target",
)

# Inside the new root. Host keys are made for each machine; what waits for a network or fetches updates is not wanted.
_SETTLE = f"""set -e
rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/machine-id
: > "$1"/etc/machine-id
chroot "$1" useradd --create-home --shell /bin/bash {LAB}
chroot "$1" useradd --create-home --shell /bin/bash {PLAIN}
echo '{LAB} ALL=(ALL) NOPASSWD:ALL' > "$1"/etc/sudoers.d/{LAB}
chmod 0440 "$1"/etc/sudoers.d/{LAB}
printf '%s\n' '{"' '".join(_NETWORK)}' > "$1"/etc/systemd/system/bed-network.service
chroot "$1" systemctl --quiet enable bed-network ssh
chroot "$1" systemctl --quiet mask systemd-networkd.service apt-daily.timer apt-daily-upgrade.timer \\
  e2scrub_all.timer fstrim.timer dpkg-db-backup.timer getty.target console-getty.service
"""


def cache_folder() -> Path:
    """Where the root is kept: MICROSHARD_BED_CACHE, else below the user's cache folder."""
    given = os.environ.get("MICROSHARD_BED_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "microshard-bed"


def shared_root(suite: str = SUITE) -> Path:
    """The root of a system; built when it is not there yet (20 s, from Debian's archive). One builder at a time."""
    packages = ",".join(_RENAMED[suite].get(name, name) for name in PACKAGES.split(","))
    key = hashlib.sha256(f"{suite} {packages} {_SETTLE}".encode()).hexdigest()[:12]
    folder = cache_folder()
    root = folder / f"root-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.is_dir():
            _build(root, suite, packages)
    return root


def _build(root: Path, suite: str, packages: str) -> None:
    draft = root.with_suffix(".new")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        command(
            "mmdebstrap",
            "--quiet",
            "--variant=important",
            f"--include={packages}",
            f"--customize-hook={_SETTLE}",
            suite,
            str(draft),
            patience=600,
        )
        draft.chmod(0o755)
        draft.rename(root)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
