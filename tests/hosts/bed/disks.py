"""A machine's loop devices as the disks of an instance: a loop device cannot have a serial number of its own.

What stands in /sys for a disk is shown as the kernel's drivers show it: NVMe with serial and model, Xen's without both.
The model is shown at /sys because QEMU's own NVMe disks (tests/hosts/vm, with the kernel's driver) have a serial of
one's own but one model; there a file lies over the model alone.
"""

import json
from collections.abc import Mapping

from tests.hosts.bed.machine import Machine
from tests.hosts.bed.system import BedError, command

# Inside the machine: /sys/block and /sys/class/block as they are, and the disks beside the rest, with what the kernel's
# NVMe driver says of them. What they do not say themselves the loop device says.
_SHOW = """
import json, os, shutil, stat, subprocess, sys
real, view = "/sys/class/block", "/run/disks"
for place in ("/sys/block", "/sys/class/block"):
    while os.path.ismount(place):
        subprocess.run(["umount", place], check=True)
for name in os.listdir("/dev"):
    if name.startswith(("nvme", "xvd")):
        os.unlink(f"/dev/{name}")
shutil.rmtree(view, ignore_errors=True)
os.makedirs(view)
for name in os.listdir(real):
    os.symlink(os.path.realpath(f"{real}/{name}"), f"{view}/{name}")
for number, (serial, device) in enumerate(json.loads(sys.argv[1]).items(), 1):
    xen = serial.startswith("/dev/")
    node = os.path.basename(serial) if xen else f"nvme{number}n1"
    disk, loop = f"{view}/{node}", os.path.realpath(f"{real}/{os.path.basename(device)}")
    os.mkdir(disk)
    for name in os.listdir(loop):
        os.symlink(f"{loop}/{name}", f"{disk}/{name}")
    os.mkdir(f"{disk}/device")
    model = "Amazon EC2 NVMe Instance Storage" if serial.startswith("AWS") else "Amazon Elastic Block Store"
    for name, said in () if xen else (("serial", serial), ("model", model)):
        with open(f"{disk}/device/{name}", "w") as file:
            file.write(said + "\\n")
    os.mknod(f"/dev/{node}", stat.S_IFBLK | 0o660, os.stat(device).st_rdev)
for place in ("/sys/block", "/sys/class/block"):
    subprocess.run(["mount", "--bind", view, place], check=True)
"""


def attach(machine: Machine, volumes: Mapping[str, int]) -> None:
    """Empty disks with these serial numbers, or Xen's names (→ GiB), instead of what the machine had; at most three.

    AWS… is a disk of an instance store, vol… a volume of EBS.
    """
    shown = {}
    if len(volumes) > len(machine.devices):
        raise BedError(f"{machine.name} has {len(machine.devices)} devices for {', '.join(volumes)}")
    for (serial, gib), (name, device) in zip(volumes.items(), machine.devices.items(), strict=False):
        with (machine.folder / f"{name}.img").open("r+b") as image:
            image.truncate(0)
            image.truncate(gib << 30)
        command("losetup", "--set-capacity", device)
        shown[serial] = device
    machine.enter("python3", "-c", _SHOW, json.dumps(shown))
