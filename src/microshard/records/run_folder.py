"""The folder of a run: where everything lies, and how files get into it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from microshard import __version__
from microshard.errors import RunFolderError
from microshard.model.plan import Plan, PlanOutline
from microshard.model.run_records import BackendRecord, JournalEvent, LedgerRecord, RunLock, RunMarker
from microshard.records import codec

if TYPE_CHECKING:
    from microshard.model.result import StepResult

T = TypeVar("T")

MARKER = "run.json"
PLAN = "plan.json"
LOCK = "lock.json"
ADVICE = "advice.json"  # of a search
BACKEND = "backend.json"
MOST_UNREAD = 5  # lines of a journal or ledger that are named


class DiskError(RunFolderError):
    """A file of the run cannot be written: no room, no right, or a disk that fails."""

    def __init__(self, path: Path, error: OSError) -> None:
        self.error = error
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        super().__init__(
            f"{path}: cannot be written: {error.strerror or error}. "
            f"{'Make room' if full else 'Make it writable'} or take another place (--runs-dir); "
            "what was measured before is whole, and microshard resume goes on from there."
        )


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a whole file or none: a reader never sees half of it, and a crash leaves the old one.

    Raises DiskError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise DiskError(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write a record of `model/`, or any other value, as indented JSON, atomically. Raises DiskError."""
    write_atomic(path, json.dumps(codec.encode(value), indent=1, default=str) + "\n")


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; an empty one when the file is not there, not whole, or holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


class JsonLines(Generic[T]):
    """An append-only file of records of one type, one JSON object a line, each on disk before `append` returns."""

    kind: type[T]

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: T) -> None:
        """Add a record with the time (`t`, epoch seconds); what it has by default is left out.

        It is there as a whole or, with DiskError, not at all.
        """
        line = json.dumps({"t": round(time.time(), 3), **codec.given(record)}, default=str).encode() + b"\n"
        try:
            with self.path.open("ab+", buffering=0) as file:
                before = file.seek(0, os.SEEK_END)
                if before:
                    file.seek(-1, os.SEEK_END)
                    # A crash may have left half a line: it must not swallow this record.
                    line = line if file.read(1) == b"\n" else b"\n" + line
                try:
                    if file.write(line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(before)
                    raise
        except OSError as error:
            raise DiskError(self.path, error) from error

    def records(self) -> Iterator[T]:
        """All records that can be read; `unread` names the other lines."""
        return (record for record in self._lines() if not isinstance(record, str))

    def unread(self) -> list[str]:
        """A sentence for every line that is no record: half written in a crash, damaged, or of another version.

        Of more than MOST_UNREAD the last sentence says how many.
        """
        found = [line for line in self._lines() if isinstance(line, str)]
        rest = len(found) - MOST_UNREAD
        return found if rest <= 0 else [*found[:MOST_UNREAD], f"{self.path.name}: {rest} more lines are not records"]

    def _lines(self) -> Iterator[T | str]:
        """The record of each line, or why it is none. One without the end of its line is whole all the same."""
        try:
            with self.path.open(encoding="utf-8", errors="replace") as file:
                for number, line in enumerate(file, 1):
                    try:
                        if line.strip():
                            yield codec.decode(self.kind, json.loads(line))
                    except ValueError as error:
                        why = "incomplete or damaged" if isinstance(error, json.JSONDecodeError) else str(error)
                        yield f"{self.path.name}:{number}: not a record ({why})"
        except FileNotFoundError:
            return


class Journal(JsonLines[JournalEvent]):
    """What the runner did."""

    kind = JournalEvent


class Ledger(JsonLines[LedgerRecord]):
    """What was created outside of the run's folder."""

    kind = LedgerRecord


class RunFolder:
    """A run's folder. Everything a run makes on this machine lies below it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path / "journal.jsonl")
        self.ledger = Ledger(path / "ledger.jsonl")

    @classmethod
    def create(cls, runs: Path, experiment: str) -> RunFolder:
        """Make a new folder `EXPERIMENT-DATE-TIME-xxxx` below `runs`. Raises RunFolderError."""
        run_id = f"{experiment}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        path = runs.absolute() / run_id
        try:
            path.mkdir(parents=True, mode=0o755)
            folder = cls(path)
            for name in ("points", "deployments", "results", "telemetry", "logs", "report", "tmp"):
                (path / name).mkdir()
            write_json(path / MARKER, RunMarker(__version__, run_id, experiment, time.time(), os.getpid()))
        except OSError as error:
            raise RunFolderError(
                f"{path}: the run's folder cannot be made: {error.strerror}. Name another place with --runs-dir."
            ) from error
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run. Raises RunFolderError when the folder is not a run of microshard."""
        if not path.is_dir():
            raise RunFolderError(f"{path}: no such run folder")
        try:
            codec.read_file(RunMarker, path / MARKER)
        except FileNotFoundError:
            raise RunFolderError(
                f"{path}: not a run of microshard ({MARKER} is missing); nothing was touched"
            ) from None
        except codec.DamagedFileError as error:
            raise RunFolderError(f"{error}; nothing was touched") from None
        return cls(path.absolute())

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self.path.name

    @property
    def named(self) -> str:
        """What a command of microshard takes for this run, here: its name, or its path where it is not in ./runs.

        To be copied into a shell.
        """
        return self.run_id if self.path.parent == Path("runs").absolute() else shlex.quote(str(self.path))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Nobody else executes this run while the context is open. Raises RunFolderError naming who does.

        The kernel lets go of the lock when the process ends, however it ends.
        """
        with (self.path / "held").open("a+", encoding="ascii") as file:
            try:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(0.05)  # it may only be looked at: is_executed holds it for some microseconds
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                owner = file.read().strip()
                raise RunFolderError(f"{self.run_id} is being executed by process {owner}") from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    def is_executed(self) -> bool:
        """Whether a process holds the lock."""
        try:
            with (self.path / "held").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def fleets(self) -> list[RunFolder]:
        """The folders of fleets on EC2 that were measured side by side; each is a run of its own there."""
        return [RunFolder(path.parent) for path in sorted((self.path / "fleets").glob(f"*/{MARKER}"))]

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def marker(self) -> RunMarker:
        """The content of run.json. Raises FileNotFoundError, RunFolderError."""
        return codec.read_file(RunMarker, self.path / MARKER)

    def plan(self) -> Plan:
        """The content of plan.json. Raises FileNotFoundError, RunFolderError."""
        return codec.read_file(Plan, self.path / PLAN)

    def plan_outline(self) -> PlanOutline:
        """Hosts and steps of plan.json. Raises FileNotFoundError, RunFolderError."""
        return codec.read_file(PlanOutline, self.path / PLAN)

    def run_lock(self) -> RunLock:
        """The content of lock.json. Raises FileNotFoundError, RunFolderError."""
        return codec.read_file(RunLock, self.path / LOCK)

    def backend(self) -> BackendRecord:
        """The content of backend.json; the default where it is not there or not whole."""
        try:
            return codec.read_file(BackendRecord, self.path / BACKEND)
        except (FileNotFoundError, RunFolderError):
            return BackendRecord()

    def result(self, point: str, step: str) -> StepResult:
        """The result file of an attempt at a step. Raises FileNotFoundError, RunFolderError."""
        from microshard.model.result import StepResult  # noqa: PLC0415 - most commands read no result

        return codec.read_file(StepResult, self.result_path(point, step))

    def result_path(self, point: str, step: str) -> Path:
        """Where the result of an attempt at a step is written."""
        return self.path / "results" / point / f"{step}.json"


def find_runs(runs: Path) -> list[RunFolder]:
    """All runs below `runs`, the newest last."""
    found = [RunFolder(p.absolute()) for p in runs.iterdir() if (p / MARKER).is_file()] if runs.is_dir() else []
    return sorted(found, key=lambda f: (f.path / MARKER).stat().st_mtime)
