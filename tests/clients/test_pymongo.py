"""PyMongo's own tests against the embedded mongos with two shards.

They come from the source distribution of the locked PyMongo, fetched by its hash; nothing of them is kept in this tree.
`pymongo_failures.txt` lists every test that may fail, and must, by the reason for it.
"""

import fcntl
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pymongo
import pytest

from tests.cluster.embedded.lab import small_cluster

HERE = Path(__file__).parent
LOCK = HERE.parents[1] / "requirements" / "run.lock"
# The files that use a server, without those whose every test needs what the tests themselves skip here: replica sets,
# sessions, encryption, authentication.
FILES = (
    "bulk", "collation", "collection", "collection_management", "command_logging", "command_monitoring", "comment",
    "crud_unified", "cursor", "custom_types", "database", "examples", "grid_file", "gridfs", "gridfs_bucket",
    "gridfs_spec", "index_management", "json_util_integration", "monitoring", "raw_bson", "read_concern",
    "read_preferences", "read_write_concern_spec", "run_command", "threads", "versioned_api_integration",
    "write_concern",
)  # fmt: skip

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def suite() -> Path:
    """The folder that has PyMongo's folder `test`, in a cache under the temporary directory; or skips the test."""
    cache = Path(tempfile.gettempdir(), f"microshard-test-pymongo-{pymongo.version}-{os.getuid()}")
    cache.mkdir(mode=0o700, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "test").exists():
            match = re.search(
                rf"^pymongo=={pymongo.version} .*?(?=^\S)", LOCK.read_text("utf-8"), re.MULTILINE | re.DOTALL
            )
            assert match, f"pymongo {pymongo.version} is not the locked one"
            (cache / "wanted").write_text(re.sub(r"^ +#.*\n?", "", match[0], flags=re.MULTILINE), "utf-8")
            command: list[str | Path] = [
                       sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                       "--no-binary", "pymongo", "--require-hashes", "--dest", cache,
                       "-r", cache / "wanted"]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
            if done.returncode:
                pytest.skip(f"PyMongo's source cannot be fetched: {done.stderr.strip()[-200:]}")
            (archive,) = cache.glob("pymongo-*.tar.gz")
            with tarfile.open(archive) as source:
                root = f"pymongo-{pymongo.version}/"
                for member in source.getmembers():
                    if member.name.startswith(f"{root}test/"):
                        member.name = member.name.removeprefix(root)
                        source.extract(member, cache, filter="data")
    return cache


def expected_failures() -> dict[str, str]:
    """The reason by test, `file::class::test`, from lines `# reason` each followed by its tests."""
    found: dict[str, str] = {}
    reason = ""
    for line in (HERE / "pymongo_failures.txt").read_text("utf-8").splitlines():
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        elif line:
            found[line] = reason
    return found


def failures(report: Path) -> Iterator[tuple[str, str | None]]:
    """Every test that ran, with what it failed of or None."""
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - our own pytest wrote it
        if case.find("skipped") is None:
            failed = case.find("failure") if case.find("failure") is not None else case.find("error")
            name = f"{case.get('classname', '').replace('test.', '', 1).replace('.', '::')}::{case.get('name')}"
            yield name, None if failed is None else str(failed.get("message"))[:300]


@pytest.mark.timeout(1200)
def test_pymongos_own_tests(tmp_path: Path) -> None:
    folder, report = suite(), tmp_path / "report.xml"
    options: list[str | Path] = [
        "-c",
        os.devnull,
        "--rootdir",
        folder,
        "-p",
        "no:cacheprovider",
        "-q",
        "-W",
        "ignore",
        "-m",
        "default",
    ]
    files = [f"test/test_{name}.py" for name in FILES]
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        *options,
        "--timeout",
        "120",
        f"--junitxml={report}",
        *files,
    ]
    with small_cluster(tmp_path) as cluster:
        router = cluster.mongos.router_pid()
        environment = {**os.environ, "DB_IP": "127.0.0.1", "DB_PORT": str(cluster.mongos.port), "PYTHONPATH": ""}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert cluster.mongos.router_pid() == router
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    expected, ran = expected_failures(), dict(failures(report))
    assert len(ran) > 500
    unexpected = {name: why for name, why in ran.items() if why is not None and name not in expected}
    assert unexpected == {}, "these tests of PyMongo should pass"
    passed = {name: reason for name, reason in expected.items() if ran.get(name, "") is None or name not in ran}
    assert passed == {}, "these are listed as failures, and pass or are not run"
