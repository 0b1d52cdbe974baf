import socket

from microshard.embedded.router_mongod import free_ports


def test_free_ports_are_different_free_and_never_a_clients() -> None:
    with socket.create_server(("127.0.0.1", 0)):
        ports = free_ports(500)
    assert len(set(ports)) == 500
    assert all(10_000 <= port < 20_000 for port in ports)
    with socket.create_server(("127.0.0.1", ports[0])):
        assert ports[0] not in free_ports(500)
