"""What ssh and Ansible say about a host that cannot be worked on, in a sentence with the next step."""

from __future__ import annotations

import re

# Words of OpenSSH's messages (ssh.c, sshconnect.c, sshconnect2.c) → what they mean and what to do.
_SSH = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key verification failed|No \S+ host key is known",
        "its host key is not the one in known_hosts",
        "compare the key at its console, then put it there (ssh-keyscan {host}); host key checking stays on",
    ),
    (
        r"Permission denied|Too many authentication failures|no such identity|invalid format",
        "it does not take this user's key",
        "check ansible_user and ansible_ssh_private_key_file of the inventory, and the host's authorized_keys",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "its name cannot be resolved",
        "set ansible_host to an address",
    ),
    (
        r"Connection refused",
        "nothing listens at its SSH port",
        "start sshd there, or set ansible_port",
    ),
    (
        r"timed out|No route to host|Network is unreachable|Host is down",
        "it cannot be reached over the network",
        "check that it runs, its address, and the firewall between",
    ),
    (
        r"Broken pipe|closed by remote host|Connection reset|kex_exchange|Connection (to \S+ )?closed",
        "the connection to it broke",
        "look whether it is up; a host that vanished is not waited for",
    ),
)
_TASK = (
    (
        r"(?:/\S*python\S*|python3?): (?:No such file|not found|command not found)|No python interpreters found"
        r"|module interpreter '\S+' was not found",
        "Python is missing on it: install python3 (3.9 or newer), or set ansible_python_interpreter",
    ),
    (
        r"Missing sudo password|sudo: a password is required|is not in the sudoers file|sudo: not found",
        "the user may not become root: allow sudo without a password (NOPASSWD), or log in as another ansible_user",
    ),
    (
        r"Module result deserialization failed: No start of json",
        "it broke off in the middle of a task; look whether it is up, and what its kernel's log says",
    ),
)


def unreachable(host: str, said: str) -> str:
    """A sentence on a host Ansible calls unreachable."""
    for pattern, meaning, step in _SSH:
        if re.search(pattern, said, re.IGNORECASE):
            return f"{host}: {meaning}; {step.format(host=host)}"
    words = " ".join(said.split())[-300:]
    return f"{host} cannot be reached: {words}"


def lacking(said: str) -> str:
    """A task's message, or what it means where a host lacks what every task needs."""
    for pattern, meaning in _TASK:
        if re.search(pattern, said, re.IGNORECASE):
            return meaning
    return said
