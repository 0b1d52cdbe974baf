import os
import socket

import pytest

from microshard.hostlib import ports


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0", "::"])  # noqa: S104 - that is the case
def test_the_holder_of_a_port_is_named_with_its_command(bound: str) -> None:
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with socket.create_server((bound, 0), family=family, dualstack_ipv6=bound == "::") as server:
        port = server.getsockname()[1]
        assert not ports.is_free("127.0.0.1", port)
        assert ports.holder("127.0.0.1", port).startswith(f"pid {os.getpid()} (")


def test_a_listener_on_another_address_does_not_hold_the_port() -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        assert ports.is_free("127.0.0.1", port)
        assert ports.holder("127.0.0.1", port) == "a process that is not listed in /proc/net/tcp"
