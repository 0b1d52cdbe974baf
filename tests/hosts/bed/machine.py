"""One machine of a bed: a container that boots, with keys, an address and volumes of its own."""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.hosts.bed.root import ADDRESS, LAB, PLAIN
from tests.hosts.bed.system import BedError, command

_CGROUPS = Path("/sys/fs/cgroup")
VOLUMES = ("data", "journal", "log")
_VOLUME_BYTES = 2 << 30  # sparse; XFS wants 300 MB at least, and a mongod's journal takes 300 MB at once
_BOOT = 120.0  # s until SSH answers; 1.5 to 2.5 s on a quiet machine, half a minute on a busy one
# A login must not wait for anything, and a key that is not the lab's is not taken.
_SSHD = "UseDNS no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nHostKey /etc/ssh/ssh_host_ed25519_key\n"


@dataclass
class Machine:
    """A container. Its folder holds the overlay, the volumes' files and the log of its boot."""

    name: str
    address: str
    folder: Path
    namespace: str
    bridge: str
    machine: str  # its name among all containers of this kernel
    devices: dict[str, str] = field(default_factory=dict)  # data, journal, log → loop device, the same name inside
    pid: int = 0  # of systemd-nspawn

    @property
    def root(self) -> Path:
        """Its root file system, as long as it is mounted."""
        return self.folder / "root"

    @property
    def public_key(self) -> str:
        """The host key it shows, as in known_hosts."""
        words = (self.folder / "ssh_host_ed25519_key.pub").read_text(encoding="ascii").split()
        return f"{self.address} {words[0]} {words[1]}"

    def make(self, base: Path, user_key: str, names: str) -> None:
        """Overlay, keys, address and volumes; nothing runs yet."""
        for name in ("root", "upper", "work"):
            (self.folder / name).mkdir(parents=True)
        options = f"lowerdir={base},upperdir={self.folder / 'upper'},workdir={self.folder / 'work'}"
        command("mount", "-t", "overlay", "overlay", "-o", options, str(self.root))
        key = self.folder / "ssh_host_ed25519_key"
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(key))
        self.write("etc/ssh/ssh_host_ed25519_key", key.read_text(encoding="ascii"), 0o600)
        self.write("etc/ssh/sshd_config.d/bed.conf", _SSHD)
        self.write(ADDRESS, f"BED_ADDRESS={self.address}/24\n")
        self.write("etc/hosts", names)
        self.write("etc/hostname", f"{self.name}\n")
        for user in (LAB, PLAIN):
            self.write(f"home/{user}/.ssh/authorized_keys", user_key)
        for volume in VOLUMES:
            image = self.folder / f"{volume}.img"
            with image.open("wb") as file:
                file.truncate(_VOLUME_BYTES)
            self.devices[volume] = command("losetup", "--find", "--show", str(image))

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Put a file into its root from outside."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)

    def boot(self) -> None:
        """Start it; does not wait. Reboots stay inside: systemd-nspawn leaves with 133 and is started again."""
        binds = [f"--bind={device}" for device in self.devices.values()]
        words = [
            *("nsenter", f"--net=/run/netns/{self.namespace}"),
            *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--console=read-only"),
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no", f"--directory={self.root}"),
            # A server with logins or TLS locks the memory of its keys; without the capability mlock is forbidden.
            *("--capability=CAP_IPC_LOCK", "--rlimit=RLIMIT_MEMLOCK=8388608"),
            *(f"--machine={self.machine}", f"--hostname={self.name}", f"--network-bridge={self.bridge}", *binds),
        ]
        for group in self._cgroups():
            group.mkdir(exist_ok=True)
        join = "".join(f"echo $$ > {group}/cgroup.procs; " for group in self._cgroups())
        loop = 'while :; do "$@"; [ $? -eq 133 ] || break; done'
        environment = {
            **os.environ,
            # Volumes and kernel settings are to be tried: /sys and /proc/sys are not read-only inside.
            "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1",
            "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1",
        }
        with (self.folder / "boot.log").open("ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", join + loop, f"bed:{self.machine}", *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = process.pid

    def _cgroups(self) -> list[Path]:
        """Its own control groups, in the hierarchies systemd uses (one, or two where cgroup v1 is still mounted).

        Without them all containers have the group of whoever started them, and the systemd of one removes the groups
        the systemd of another has just made for its services: those fail with 219/CGROUP, now and then.
        """
        pure = (_CGROUPS / "cgroup.controllers").exists()
        roots = [_CGROUPS] if pure else [_CGROUPS / "unified", _CGROUPS / "systemd"]
        return [root / f"microshard-bed-{self.machine}" for root in roots if root.is_dir()]

    def await_ssh(self, probe: list[str], patience: float = _BOOT) -> None:
        """Wait until a login works; `probe` is the command that tries one."""
        deadline = time.monotonic() + patience
        said = ""
        while time.monotonic() < deadline:
            done = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            said = done.stderr.strip()
            time.sleep(0.2)
        tail = (self.folder / "boot.log").read_text(encoding="utf-8", errors="replace")[-1500:]
        raise BedError(f"{self.name} does not answer by SSH after {patience:.0f} s: {said}\n{tail}")

    def kill(self) -> None:
        """Power off without a word: every process of it is gone at once."""
        for pid in [*reversed(_family(self.pid)), self.pid] if self.pid else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while self.pid and _family(self.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        if self.pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        self.pid = 0

    def processes(self) -> list[int]:
        """Pids of all that runs in it, as this machine counts them; none when it is off."""
        return _family(self.pid) if self.pid else []

    def enter(self, *words: str) -> str:
        """What a command printed that root runs inside, with a network or without. BedError when it fails."""
        first = next((pid for pid in self.processes() if _is_first(pid)), None)
        if first is None:
            raise BedError(f"{self.name} is off")
        return command(
            "nsenter", f"--target={first}", "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", *words
        )

    def cut(self) -> None:
        """Pull its network cable."""
        self._link("down")

    def join(self) -> None:
        """Put the cable back."""
        self._link("up")

    def _link(self, state: str) -> None:
        link = f"vb-{self.machine}"[:15]  # as systemd-nspawn names its end; the kernel takes no longer one
        command("nsenter", f"--net=/run/netns/{self.namespace}", "ip", "link", "set", link, state)

    def remove(self) -> list[str]:
        """Nothing of it is left; what could not be removed is reported."""
        left = []
        self.kill()
        if os.path.ismount(self.root):
            left += _tried("umount", "--recursive", str(self.root))
        for device in self.devices.values():
            if Path(f"/sys/block/{Path(device).name}/loop").is_dir():
                left += _tried("losetup", "--detach", device)
        for group in self._cgroups():
            left += _gone(group)
        return left


def _tried(*words: str) -> list[str]:
    """The message of a command that failed several times; a mount may be busy until the last process is reaped."""
    message = ""
    for _ in range(50):
        try:
            command(*words)
        except BedError as error:
            message = str(error)
            time.sleep(0.1)
        else:
            return []
    return [message]


def _gone(group: Path) -> list[str]:
    """Remove a control group with all below it; the kernel may hold it until the last process is reaped."""
    problem = ""
    for _ in range(50):
        try:
            for folder, _, _ in os.walk(group, topdown=False):
                Path(folder).rmdir()
        except OSError as error:
            problem = f"control group {group}: {error.strerror}"
            time.sleep(0.1)
        else:
            return []
    return [problem]


def _is_first(pid: int) -> bool:
    """Whether it is process 1 of a container."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return len(line.split()) > 2 and line.split()[-1] == "1"
    return False


def _family(pid: int) -> list[int]:
    """Pids of the live process and all below it, parents first; empty when it is gone."""
    children: dict[int, list[int]] = {}
    alive = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if fields[0] != "Z":
                alive.add(int(entry.name))
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop(0)
        if one in alive:
            found.append(one)
        waiting += children.get(one, [])
    return found
