"""The image of the virtual machine: Debian 12 on a disk without partitions and its kernel, built once and kept."""

import fcntl
import hashlib
import shutil
import tempfile
from pathlib import Path

from tests.hosts.bed.root import cache_folder
from tests.hosts.bed.system import command

SUITE = "bookworm"
PACKAGES = (
    "chrony,dbus,e2fsprogs,initramfs-tools,iproute2,kmod,libcurl4,libssl3,linux-image-cloud-amd64,mdadm,numactl"
    ",openssh-server,procps,python3,sudo,systemd-sysv,udev,util-linux,xfsprogs,zstd"
)
# The kernel is started by qemu itself, so the disk needs no boot loader, and the initrd no more than finds the disk.
# What waits for a network or fetches updates is not wanted; the address is the one qemu's own network expects.
_SETTLE = """set -e
echo vm > "$1"/etc/hostname
printf '127.0.0.1 localhost vm\\n' > "$1"/etc/hosts
: > "$1"/etc/resolv.conf
echo 'LABEL=root / ext4 noatime 0 1' > "$1"/etc/fstab
printf '[Match]\\nName=en*\\n[Network]\\nAddress=10.0.2.15/24\\nLinkLocalAddressing=no\\n' \\
  > "$1"/etc/systemd/network/10-en.network
chroot "$1" systemctl --quiet enable systemd-networkd ssh
chroot "$1" systemctl --quiet mask systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer \\
  e2scrub_all.timer e2scrub_reap.service fstrim.timer dpkg-db-backup.timer getty@tty1.service logrotate.timer \\
  mdmonitor.service mdcheck_start.timer
chroot "$1" useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin mongod
printf 'virtio_pci\\nvirtio_blk\\next4\\n' > "$1"/etc/initramfs-tools/modules
sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=zstd/' "$1"/etc/initramfs-tools/initramfs.conf
chroot "$1" update-initramfs -u -k all 2>/dev/null
"""


def image() -> Path:
    """The folder with root.img, vmlinuz and initrd; built when it is not there yet (about a minute)."""
    key = hashlib.sha256(f"{SUITE} {PACKAGES} {_SETTLE}".encode()).hexdigest()[:12]
    folder = cache_folder()
    made = folder / f"vm-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "vm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            _build(made)
    return made


def _build(made: Path) -> None:
    draft = made.with_suffix(".new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        with tempfile.TemporaryDirectory(dir=draft) as root:
            tree = Path(root) / "tree"
            command(
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/man/*",
                f"--include={PACKAGES}",
                f"--customize-hook={_SETTLE}",
                SUITE,
                str(tree),
                patience=600,
            )
            for kind, name in (("vmlinuz", "vmlinuz"), ("initrd.img", "initrd")):
                (source,) = (tree / "boot").glob(f"{kind}-*")
                shutil.copyfile(source, draft / name)
            disk = draft / "root.img"
            with disk.open("wb") as file:
                file.truncate(2 * 2**30)
            command("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", str(tree), str(disk), patience=120)
        draft.rename(made)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
