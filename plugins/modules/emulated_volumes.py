#!/usr/bin/python
"""The emulated volumes of a point on this machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: emulated_volumes
short_description: Loop devices with the IOPS and throughput of a volume, mounted in a run's folder
description:
  - Makes sparse files below the folder of a run, loop devices on them, filesystems, mounts, and limits of reads and
    writes by the kernel's block I/O controller (cgroup version 1 or 2), read back afterwards.
  - Links journals and logs of the processes to their own volumes, before the processes start for the first time.
  - For O(state=absent) it goes by what the kernel shows below the folder; nothing outside of it is touched.
  - Runs on the machine of the run, with its Python, as root.
options:
  run_folder:
    description: Folder of the run.
    type: path
    required: true
  point:
    description: Id of the point.
    type: str
    required: true
  volumes:
    description: The volumes as in the plan, with absolute paths.
    type: list
    elements: dict
    default: []
  processes:
    description: The processes of the point as in the plan, with absolute paths.
    type: list
    elements: dict
    default: []
  state:
    description: Whether the volumes are there or gone.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: The point has its emulated volumes
  emulated_volumes:
    run_folder: "{{ microshard_run.folder }}"
    point: "{{ microshard_point.id }}"
    volumes: "{{ microshard_point.volumes }}"
    processes: "{{ microshard_point.processes }}"
"""

RETURN = r"""
volumes:
  description: What each volume is, read back from the kernel; device, filesystem, limits, readahead, sizes in bytes.
  returned: state is present, not in check mode
  type: list
  elements: dict
"""

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from microshard.errors import MicroshardError
    from microshard.hostlib import emulated_volumes as emulated
    from microshard.hostlib.emulated_volumes import Wish
    from microshard.records.run_folder import RunFolder, write_atomic

    _MISSING = ""
except ImportError as _error:
    _MISSING = str(_error)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "run_folder": {"type": "path", "required": True},
            "point": {"type": "str", "required": True},
            "volumes": {"type": "list", "elements": "dict", "default": []},
            "processes": {"type": "list", "elements": "dict", "default": []},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    if _MISSING:
        module.fail_json(msg=f"{missing_required_lib('microshard')} ({_MISSING})")
    try:
        folder = RunFolder.open(Path(module.params["run_folder"])).path
        (_present if module.params["state"] == "present" else _absent)(module, folder)
    except (MicroshardError, OSError) as error:
        module.fail_json(msg=str(error))


def _present(module: AnsibleModule, folder: Path) -> None:
    point = module.params["point"]
    wishes = [
        Wish(**{**volume, "image": Path(volume["image"]), "mount": Path(volume["mount"])})
        for volume in module.params["volumes"]
    ]
    changed, facts = emulated.present(wishes, emulated.group(folder, point), check=module.check_mode)
    if not module.check_mode:
        changed |= emulated.lay_out(wishes, module.params["processes"])
        write_atomic(folder / "points" / point / "volumes.json", json.dumps(facts, indent=1) + "\n")
    module.exit_json(changed=changed, volumes=facts)


def _absent(module: AnsibleModule, folder: Path) -> None:
    changed, left = emulated.absent(folder, module.params["point"], check=module.check_mode)
    if left:
        module.fail_json(msg="; ".join(left), changed=changed)
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
