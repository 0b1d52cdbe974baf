#!/usr/bin/python
"""Brings the kernel settings of a host to a state."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_kernel
short_description: Set the kernel settings of a database host, keep them over a reboot, or put them back
description:
  - Sets sysctls, transparent huge pages, CPU governor, SMT, limits and time service; each value is read back.
  - Keeps them over a reboot by C(/etc/sysctl.d/90-microshard.conf), the unit C(microshard-kernel.service) and
    C(/etc/security/limits.d/90-microshard.conf).
  - With C(production_notes) every setting without a value gets what the MongoDB manual recommends for the version.
  - Remembers what each setting was before it was changed for the first time; O(state=absent) puts that back.
  - A setting the host does not have fails the module when the experiment sets it, before anything is changed; one
    that is only recommended is skipped.
options:
  settings:
    description: The settings, as in infrastructure.GROUP.kernel of an experiment; null leaves one as it is.
    type: dict
    required: true
  version:
    description: Version of MongoDB.
    type: str
    required: true
  user:
    description: The user whose limits are set.
    type: str
    default: root
  state_folder:
    description: Folder on the host for the settings as they were before.
    type: path
    default: /etc/microshard
  state:
    description: V(present) sets them; V(absent) puts them back as they were before.
    type: str
    choices: [present, absent]
    default: present
  record:
    description: File of the controller for RV(record); written by the action plugin.
    type: path
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: The kernel is as the production notes recommend, swappiness as the experiment says
  microshard.lab.host_kernel:
    version: 7.0.14
    settings: {production_notes: true, swappiness: 10}
"""

RETURN = r"""
did:
  description: What was changed, or would be.
  returned: success
  type: list
  elements: str
record:
  description: C(is) has the settings read back, C(planned) their planned values and sources, C(before) the old ones.
  returned: state is present
  type: dict
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import host_kernel
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(host_kernel)
