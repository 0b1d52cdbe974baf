"""The virtual environment: made, filled by pip from the lock files, byte-compiled where start-up time counts."""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from setup.stamp import Stamp

# Variables that would send pip or Python elsewhere than into .venv, or keep byte code from being written.
DIVERTING = (
    "PIP_PREFIX",
    "PIP_REQUIRE_HASHES",
    "PIP_ROOT",
    "PIP_TARGET",
    "PIP_USER",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHOME",
    "PYTHONPATH",
)
# Not on the way of any start-up: most of Ansible's 15,000 files are collections of which a run loads a few.
NOT_COMPILED = r"/(ansible_collections|ansible_test|fontTools|lexers|mtools|mypy|mypyc|pip|setuptools|tests?)/"
UNPACKING = "Installing collected packages:"  # pip's words
NETWORK_ERRORS = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeout",
    "ReadTimeout",
    "Max retries exceeded",
    "ProxyError",
    "SSLError",
    "CERTIFICATE_VERIFY_FAILED",
    "IncompleteRead",
    "ProtocolError",
    "No matching distribution found",
)


class InstallError(Exception):
    """A program of the installation failed; the text says what to do."""


class Environment:
    """.venv of a checkout. `tell` is given lines of progress for a person; pip's own words go to the log."""

    def __init__(self, root: Path, tell: Callable[[str], None]):
        self.root = root
        self.folder = root / ".venv"
        self.python = self.folder / "bin" / "python"
        self.log = self.folder / "microshard-setup.log"
        self._scratch = self.folder / "tmp"
        self._tell = tell
        self._half_unpacked = False

    @property
    def works(self) -> bool:
        """Whether .venv has an interpreter that runs; not so after the system's Python was replaced."""
        try:
            command = [str(self.python), "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            return subprocess.run(command, check=False, capture_output=True, env=clean_environment()).returncode == 0
        except OSError:
            return False

    @property
    def site_packages(self) -> Path:
        """The folder pip installs to."""
        return next(self.folder.glob("lib/python3.*/site-packages"))

    def install(self, stamp: Stamp, parts: Sequence[str], *, anew: bool) -> None:
        """Install `parts` and note them in `stamp`; `anew` begins with an empty .venv. Raises InstallError."""
        if anew and self.folder.exists():
            shutil.rmtree(self.folder)
        stamp.begin()
        locks = [f"requirements/{part}.lock" for part in ("run", "mongodb", "dev") if part in parts]
        try:
            if anew:
                self._make()
            if locks:
                self._install_pip()
                self._install_locked(locks)
            if "project" in parts:
                self._install_project()
        except InstallError:
            # pip unpacks only after everything was downloaded and checked: until then .venv is as it was.
            if not self._half_unpacked:
                stamp.end()
            raise
        stamp.record(self.root, parts)
        stamp.end()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _make(self) -> None:
        # Without pip: ensurepip needs 3 s for an old one that is replaced at once.
        self.run("make .venv", [sys.executable, "-m", "venv", "--without-pip", str(self.folder)])

    def _install_pip(self) -> None:
        """Install the locked pip: half the processor time of the one bundled with Python 3.11."""
        version = locked_version(self.root / "requirements/pip.lock", "pip")
        if (self.site_packages / f"pip-{version}.dist-info" / "RECORD").exists():
            return
        extra = {}
        wheel = bundled_pip()
        if wheel is not None:
            extra = {"PYTHONPATH": str(wheel)}
        else:
            self.run("install pip", [str(self.python), "-m", "ensurepip"])
        self._pip("install pip", ["-r", "requirements/pip.lock", "--require-hashes"], extra)

    def _install_locked(self, locks: Sequence[str]) -> None:
        """Install the locked packages: Ansible's 480 MB of collections in parallel with the rest: half the time.

        Two pips do not meet: they install different packages, which --no-deps leaves at that. The locks are complete,
        resolving them again would only cost time.
        """
        text = "".join((self.root / lock).read_text(encoding="utf-8") for lock in locks)
        large, others = self.folder / "ansible.lock", self.folder / "others.lock"
        ansible, rest = split_lock(text, "ansible")
        large.write_text(ansible, encoding="utf-8")
        others.write_text(rest, encoding="utf-8")
        in_parallel = self._in_parallel(["--require-hashes", "-r", str(large)]) if ansible else contextlib.nullcontext()
        with in_parallel:
            self._pip("install the locked packages", ["--require-hashes", "-r", str(others)])
            self._compile()

    def _install_project(self) -> None:
        """Make `microshard` start from src/, offline: the build tool is among the locked packages."""
        self._pip("install microshard", ["--no-build-isolation", "--editable", "."])

    def _compile(self) -> None:
        """Write byte code: 4 s now instead of 0.3 s at every start of Ansible where none can be written later."""
        command = [str(self.python), "-m", "compileall", "-q", "-j", "0", "-x", NOT_COMPILED, str(self.site_packages)]
        # Some packages ship files for other Pythons, or templates that end in .py: not compiling them is no failure.
        subprocess.run(command, check=False, capture_output=True, env=clean_environment())

    def mongod_trouble(self) -> str:
        """Start the packaged mongod with --version; return what is wrong with it, empty when it runs."""
        mongod = self.site_packages / "fiftyone" / "db" / "bin" / "mongod"
        try:
            mongod.chmod(0o755)  # the wheel carries it without the execute bit
            done = subprocess.run([str(mongod), "--version"], check=False, capture_output=True, text=True)
        except OSError as error:
            return f"the packaged mongod does not start: {error}."
        if done.returncode == 0:
            return ""
        reason = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        return f"the packaged mongod does not run on this machine: {reason}."

    @property
    def bytes_on_disk(self) -> int:
        """Size of everything in .venv."""
        return sum(_sizes(self.folder))

    @contextlib.contextmanager
    def _in_parallel(self, arguments: Sequence[str]) -> Iterator[None]:
        """Run a second pip while the body runs and await its end, so that .venv is never left half unpacked."""
        command = self._pip_command(arguments)
        failure: InstallError | None = None
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            with self._running(command, output) as pip:
                try:
                    yield
                except InstallError as error:
                    failure = error
            output.seek(0)
            words = output.read()
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{words}")
        if failure and not pip.returncode:
            raise failure
        self._check("install Ansible", pip.returncode, words)

    def _pip_command(self, arguments: Sequence[str]) -> list[str]:
        command = [str(self.python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
        return [*command, "--no-compile", "--no-deps", "--progress-bar", "off", *arguments]

    def _pip(self, purpose: str, arguments: Sequence[str], extra: dict[str, str] | None = None) -> None:
        self.run(purpose, self._pip_command(arguments), extra)

    def run(self, purpose: str, command: Sequence[str], extra: dict[str, str] | None = None) -> None:
        """Run `command`, its output into the log; tell the large downloads as they begin."""
        output: list[str] = []
        with self._running(command, subprocess.PIPE, extra) as process, self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n")
            for line in process.stdout or ():
                log.write(line)
                log.flush()
                output.append(line)
                step = progress(line)
                if step:
                    self._tell(step)
        self._check(purpose, process.returncode, "".join(output))

    @contextlib.contextmanager
    def _running(
        self, command: Sequence[str], output: int | IO[str], extra: dict[str, str] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Run `command` while the body runs and await its end; an interrupted body ends it first."""
        # What a killed pip leaves in its folder for temporary files goes with .venv.
        self._scratch.mkdir(parents=True, exist_ok=True)
        environment = clean_environment() | {"TMPDIR": str(self._scratch)} | (extra or {})
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            try:
                yield process
            except BaseException:
                # Popen alone would leave it running, and the next set-up would meet it.
                process.terminate()
                process.wait()
                raise

    def _check(self, purpose: str, returncode: int, output: str) -> None:
        if returncode:
            self._half_unpacked |= UNPACKING in output
            raise InstallError(explain(purpose, output, self.log))


def clean_environment() -> dict[str, str]:
    """Return the caller's variables without those that divert an installation."""
    return {name: value for name, value in os.environ.items() if name not in DIVERTING}


def bundled_pip() -> Path | None:
    """Return the wheel of pip that comes with Python; it can be run as it is."""
    module = importlib.util.find_spec("ensurepip")  # Debian packs it apart
    folders = [Path(module.origin).parent / "_bundled"] if module and module.origin else []
    distribution = sysconfig.get_config_var("WHEEL_PKG_DIR")  # Fedora
    folders += [Path(distribution)] if distribution else []
    folders += [Path("/usr/share/python-wheels")]  # Debian
    return next((wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), None)


def locked_version(lock: Path, name: str) -> str:
    """Return the version that a lock file pins `name` to."""
    found = re.search(rf"^{re.escape(name)}==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise InstallError(f"{lock} does not pin {name}: run `make lock`.")
    return found.group(1)


def split_lock(text: str, name: str) -> tuple[str, str]:
    """Return the part of a lock file that pins `name`, and the rest."""
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)  # a package and its hashes, or a comment
    chosen = [block for block in blocks if block.startswith(f"{name}==")]
    return "".join(chosen), "".join(block for block in blocks if block not in chosen)


def progress(line: str) -> str:
    """Return what to tell a person about a line of pip's output; empty for most."""
    # pip prints: "Downloading ansible-12.3.0-py3-none-any.whl (54.4 MB)"
    download = re.match(r"\s*Downloading (\S+?)-(\d[^-\s]*)-\S+\.whl\S* \((\d+)(?:\.\d+)? MB\)", line)
    if download and int(download.group(3)) >= 10:
        name, version, size = download.groups()
        return f"downloading {name.replace('_', '-')} {version} ({size} MB)"
    if line.startswith(UNPACKING):
        count = line.count(",") + 1
        return f"unpacking {count} packages" if count > 1 else ""
    return ""


def explain(purpose: str, output: str, log: Path) -> str:
    """Return what happened and what to do, from the output of a command that failed."""
    if "No space left on device" in output:
        advice = "The disk is full: free some space."
    elif "DO NOT MATCH THE HASHES" in output:
        advice = (
            "A download is not what the lock file says: a proxy or a mirror changed it, or it broke on the way.\n"
            "  Try again; if it stays so, do not install it from there."
        )
    elif any(sign in output for sign in NETWORK_ERRORS):
        advice = (
            "pip cannot get a package. Check the network; behind a proxy set https_proxy, with an index of your own\n"
            "  set it by `python3 -m pip config set global.index-url URL`. Then run the same command again."
        )
    else:
        advice = "Its last words are above."
    last = [line.rstrip() for line in output.splitlines() if line.strip()][-4:]
    words = "\n".join(f"  | {line[:160]}" for line in last)
    return f"could not {purpose}.\n{words}\n  {advice}\n  Log: {log}"


def _sizes(folder: Path) -> Iterator[int]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _sizes(Path(entry.path))
            else:
                yield entry.stat(follow_symlinks=False).st_size
