"""Key file and certificates as the strictest of their readers takes them."""

import contextlib
import ssl
from pathlib import Path

import pytest

from microshard.run import secrets


@pytest.mark.parametrize("address", ["host1.example", "10.0.0.7", "127.0.0.1"])
def test_a_client_that_checks_all_of_rfc_5280_takes_the_servers_certificate(tmp_path: Path, address: str) -> None:
    secrets.make(tmp_path / "secrets", ["host1.example", "10.0.0.7"])
    at_client, at_server = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    strict = ssl.create_default_context(cafile=tmp_path / "secrets" / "ca.pem")
    strict.verify_flags |= ssl.VERIFY_X509_STRICT  # what Python 3.13 begins with
    servers = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    servers.load_cert_chain(tmp_path / "secrets" / "server.pem")
    client = strict.wrap_bio(*at_client, server_hostname=address)
    server = servers.wrap_bio(*at_server, server_side=True)
    for _ in range(4):
        for side, (_, sent), (received, _) in ((client, at_client, at_server), (server, at_server, at_client)):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            received.write(sent.read())
    assert client.version() == "TLSv1.3"
    assert client.getpeercert()
