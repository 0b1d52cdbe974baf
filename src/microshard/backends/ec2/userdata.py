"""What a new host is told at its first boot: its SSH host key, and when to end itself."""

from __future__ import annotations

import json
import textwrap

_LIMIT_BYTES = 16384  # EC2 user guide: raw user data

# A sleeping shell instead of a timer: it holds over reboots with the same absolute time, needs neither logind nor
# D-Bus, ends at once when the time has passed while the host was off, and wakes nobody during a measurement.
SCRIPT = """\
#!/bin/sh
left=$(( {expires_at} - $(date +%s) ))
if [ "$left" -gt 0 ]; then sleep "$left"; fi
exec systemctl poweroff
"""
_SCRIPT_PATH = "/usr/local/sbin/microshard-expiry"
_UNIT = """\
[Unit]
Description=End this host when the run it belongs to has expired

[Service]
ExecStart=/bin/sh /usr/local/sbin/microshard-expiry

[Install]
WantedBy=multi-user.target
"""
_UNIT_PATH = "/etc/systemd/system/microshard-expiry.service"


def user_data(host_private: str, host_public: str, expires_at: int) -> str:
    """Cloud-config for a host: an ed25519 host key known beforehand and the end at `expires_at` (epoch seconds).

    Powering off terminates the instance (InstanceInitiatedShutdownBehavior), so it ends even if nobody comes back.
    The image's own host keys are removed and, as keys are given, cloud-init makes no others: only the known key is
    ever offered. Raises ValueError when the text is longer than EC2 takes.
    """
    text = "\n".join(
        (
            "#cloud-config",
            "ssh_deletekeys: true",
            "ssh_keys:",
            "  ed25519_private: |",
            textwrap.indent(host_private.strip(), "    "),
            f"  ed25519_public: {json.dumps(host_public)}",
            "write_files:",
            *_file(_SCRIPT_PATH, "0755", SCRIPT.format(expires_at=expires_at)),
            *_file(_UNIT_PATH, "0644", _UNIT),
            "runcmd:",
            "  - [systemctl, daemon-reload]",
            "  - [systemctl, enable, --now, --no-block, microshard-expiry.service]",
            "",
        )
    )
    if len(text.encode()) > _LIMIT_BYTES:
        raise ValueError(f"user data has {len(text.encode())} bytes, EC2 takes {_LIMIT_BYTES}")
    return text


def _file(path: str, mode: str, content: str) -> tuple[str, ...]:
    return (
        f"  - path: {path}",
        f"    permissions: '{mode}'",
        "    content: |",
        textwrap.indent(content.rstrip(), "      "),
    )
