"""The secrets of a run: key file, certificates, users. Created for every run, removed with its deployment.

They are in `secrets/` of the run's folder, 0700, every file 0600; other files name only their paths.
"""

import base64
import datetime
import ipaddress
import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=30)
_KEY_BYTES = 512  # mongod takes 6 to 1024 characters of base64; these are 684


def make(folder: Path, addresses: Iterable[str]) -> None:
    """Make the folder with `keyfile`, `ca.pem`, `server.pem` and `users.json`; nothing when it is there.

    `addresses`: names and IP addresses the servers are reached by; the certificate holds for these and loopback.
    """
    if (folder / "users.json").exists():
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    _write(folder / "keyfile", base64.b64encode(os.urandom(_KEY_BYTES)))
    authority, server = _certificates([*addresses, "localhost", "127.0.0.1"])
    _write(folder / "ca.pem", authority)
    _write(folder / "server.pem", server)
    users = {
        name: {"user": f"microshard-{name}", "password": secrets.token_urlsafe(32)} for name in ("admin", "workload")
    }
    _write(folder / "users.json", json.dumps(users).encode())  # the last: when it exists, all are complete


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _certificates(addresses: Iterable[str]) -> tuple[bytes, bytes]:
    """The authority's certificate, and key with certificate of the servers. The authority's key is not kept."""
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("microshard run")
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)  # clocks of hosts may be behind

    def builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + _LIFE)
        )

    authority = (
        builder(issuer, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    server = (
        builder(_name("microshard server"), server_key)
        .add_extension(x509.SubjectAlternativeName([_alternative(a) for a in dict.fromkeys(addresses)]), critical=False)
        .add_extension(_usage(digital_signature=True), critical=True)
        # Members are each other's clients.
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = serialization.Encoding.PEM
    return authority.public_bytes(pem), private + server.public_bytes(pem)


def _usage(**allowed: bool) -> x509.KeyUsage:
    """What a key is for. RFC 5280, 4.2.1.3 and 4.2.1.9, asks for it; Python 3.13 and newer refuse without."""
    every = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"]
    every += ["key_cert_sign", "crl_sign", "encipher_only", "decipher_only"]
    return x509.KeyUsage(**{use: allowed.get(use, False) for use in every})


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
