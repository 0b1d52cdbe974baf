"""A mirror of MongoDB's repository for Debian or Ubuntu on a bed's network, its packages made as MongoDB makes them."""

import contextlib
import functools
import gzip
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from email.utils import formatdate
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.hosts.bed import Bed
from tests.hosts.bed.system import command
from tests.hosts.land import listening

KEY = "key.asc"  # of a mirror, what signs it

# As MongoDB's: the service, its configuration, and a script that makes the user; this one starts it too, at once.
UNIT = """[Unit]
Description=MongoDB Database Server
After=network-online.target
[Service]
User=mongodb
Group=mongodb
ExecStart=/usr/bin/mongod --config /etc/mongod.conf
[Install]
WantedBy=multi-user.target
"""
CONFIGURATION = """storage: {dbPath: /var/lib/mongodb}
systemLog: {destination: file, path: /var/log/mongodb/mongod.log}
net: {port: 27017, bindIp: 127.0.0.1}
"""
AFTERWARDS = """#!/bin/sh
set -e
id mongodb >/dev/null 2>&1 || useradd --system --no-create-home --home-dir /var/lib/mongodb mongodb
install -d -o mongodb -g mongodb /var/lib/mongodb /var/log/mongodb
systemctl daemon-reload
systemctl start mongod.service || echo "mongod.service was not started"
"""


class Mirror:
    """A folder with the same folders as the original, served over HTTP; `root` is that of the distribution."""

    def __init__(self, folder: Path, root: str = "apt/debian") -> None:
        self.folder = folder
        self._root = folder / root
        (self._root / "pool").mkdir(parents=True)

    def add(self, name: str, version: str, files: Mapping[str, str | Path], afterwards: str = "") -> None:
        """A package; files by path, each its text or what is copied; all below bin/ execute."""
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            root = Path(made)
            root.chmod(0o755)
            for path, content in files.items():
                file = root / path
                file.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, Path):
                    shutil.copyfile(content, file)
                else:
                    file.write_text(content, encoding="utf-8")
                file.chmod(0o755 if "/bin/" in path else 0o644)
            control = {
                "Package": name, "Version": version, "Architecture": "amd64", "Section": "database",
                "Maintainer": "nobody <nobody@example.invalid>", "Depends": "libc6, libcurl4",
                "Description": "a part of MongoDB",
            }  # fmt: skip
            (root / "DEBIAN").mkdir()
            (root / "DEBIAN/control").write_text(_stanza(control))
            if afterwards:
                (root / "DEBIAN/postinst").write_text(afterwards)
                (root / "DEBIAN/postinst").chmod(0o755)
            file = self._root / "pool" / f"{name}_{version}_amd64.deb"
            command("dpkg-deb", "--build", "--root-owner-group", "-Znone", str(root), str(file))

    def servers(self, version: str, mongod: str | Path, libraries: Sequence[Path] = ()) -> None:
        """The two packages of the servers. `mongos` only says its version: nothing else of it is needed here."""
        server = {"usr/bin/mongod": mongod, "etc/mongod.conf": CONFIGURATION, "lib/systemd/system/mongod.service": UNIT}
        server |= {f"usr/lib/x86_64-linux-gnu/{library.name}": library for library in libraries}
        self.add("mongodb-org-server", version, server, AFTERWARDS)
        self.add("mongodb-org-mongos", version, {"usr/bin/mongos": f"#!/bin/sh\necho mongos version v{version}\n"})

    def index(self, suite: str, component: str) -> None:
        """Packages, Release, its signature, and the key it is made with."""
        root = self._root
        here = root / "dists" / suite
        listed = here / component / "binary-amd64/Packages"
        listed.parent.mkdir(parents=True)
        listed.write_text("\n".join(self._entry(root, deb) for deb in sorted((root / "pool").iterdir())))
        packed = listed.with_suffix(".gz")
        packed.write_bytes(gzip.compress(listed.read_bytes()))
        sums = "".join(
            f"\n {hashlib.sha256(f.read_bytes()).hexdigest()} {f.stat().st_size} {f.relative_to(here)}"
            for f in (listed, packed)
        )
        release = {
            "Origin": "mongodb", "Label": "mongodb", "Suite": suite, "Codename": suite, "Architectures": "amd64",
            "Components": component, "Date": formatdate(usegmt=True), "SHA256": sums,
        }  # fmt: skip
        (here / "Release").write_text(_stanza(release))
        _sign(here / "Release", here / "InRelease", self.folder / KEY)

    def _entry(self, root: Path, deb: Path) -> str:
        content = deb.read_bytes()
        said = command("dpkg-deb", "--field", str(deb))
        where = {"Filename": str(deb.relative_to(root)), "Size": str(len(content))}
        return f"{said}\n{_stanza({**where, 'SHA256': hashlib.sha256(content).hexdigest()})}"


def _stanza(fields: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\n" if value[:1] != "\n" else f"{name}:{value}\n" for name, value in fields.items())


def _sign(plain: Path, signed: Path, public: Path) -> None:
    """By a key of its own that nobody has afterwards."""
    with tempfile.TemporaryDirectory() as home:  # short: the agent's socket lies in it
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
        try:
            command(*gpg, "--quick-generate-key", "mirror", "ed25519", "sign", "never")
            command(*gpg, "--output", str(signed), "--clearsign", str(plain))
            command(*gpg, "--output", str(public), "--armor", "--export", "mirror")
        finally:
            command("gpgconf", "--homedir", home, "--kill", "all")


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Nothing."""


@contextlib.contextmanager
def served(lab: Bed, folder: Path) -> Iterator[str]:
    """A folder that all machines of the bed reach at an address, for the time of the context."""
    server = ThreadingHTTPServer(
        ("", 0), functools.partial(_Silent, directory=os.fspath(folder)), bind_and_activate=False
    )
    server.socket.close()
    server.socket = listening(lab.namespace, lab.address)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{lab.address}:{server.socket.getsockname()[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
