"""From where this machine reaches its hosts: what SSH is opened to."""

from __future__ import annotations

import ipaddress
import socket

from microshard.backends.ec2.errors import CloudError
from microshard.model.infrastructure import Ec2

CHECK_URL = "https://checkip.amazonaws.com/"  # answers with the caller's address (AWS VPC documentation names it)
_PATIENCE = 5.0  # seconds
_REMEDY = "give infrastructure.ec2.controller_cidrs, for example [192.0.2.7/32]."


def controller_cidrs(wish: Ec2) -> tuple[str, ...]:
    """The networks SSH is opened to: those given, or this machine's own address. Raises CloudError."""
    if wish.controller_cidrs != "auto":
        return tuple(wish.controller_cidrs)
    return (f"{public_address() if wish.public_addresses else private_address()}/32",)


def public_address() -> str:
    """This machine's address as AWS sees it. Raises CloudError."""
    import urllib3  # noqa: PLC0415 (with boto3, where EC2 is meant)

    try:
        answer = urllib3.PoolManager().request("GET", CHECK_URL, timeout=_PATIENCE, retries=1)
        return str(ipaddress.IPv4Address(answer.data.decode("ascii").strip()))
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise CloudError(
            "checkip", "NoAddress", f"this machine's public address is not known ({error}); {_REMEDY}"
        ) from error


def private_address() -> str:
    """The address this machine has in its own network. Raises CloudError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.87.0.1", 9))  # sends nothing: the kernel only says which address it would use
        except OSError as error:
            raise CloudError("address", "NoAddress", f"this machine has no network ({error}); {_REMEDY}") from error
        return str(probe.getsockname()[0])
