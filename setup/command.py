"""The command: look, say what will be installed, install what is missing, say how long it took."""

import argparse
import contextlib
import fcntl
import os
import platform
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from setup.checks import OWN_MONGODB, SIZES, Facts, gather, notes, stoppers, wheel_obstacle
from setup.stamp import PARTS, Stamp

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"


@dataclass(frozen=True)
class Decision:
    """What a set-up will do."""

    parts: list[str]  # of stamp.PARTS, to install
    problems: list[str]  # why it cannot; empty when it can
    without_mongodb: str  # why the packaged mongod is left out; empty when it is not


def decide(facts: Facts, missing: Sequence[str], *, anew: bool, need_mongod: bool) -> Decision:
    """Decide what to install of the `missing` parts; `anew`: .venv is to be made first."""
    problems = stoppers(facts, new_environment=anew)
    if "mongodb" not in missing:
        return Decision(list(missing), problems, "")
    rest = [part for part in missing if part != "mongodb"]
    if facts.own_mongod:
        return Decision(rest, problems, f"MICROSHARD_MONGOD points to yours, {facts.own_mongod}")
    obstacle = wheel_obstacle(facts)
    if not obstacle:
        return Decision(list(missing), problems, "")
    return Decision(rest, problems + [obstacle] * need_mongod, obstacle)


def main(arguments: Sequence[str] | None = None) -> int:
    """Set up the checkout; return 0, 1 when something is missing, 130 when interrupted."""
    options = _parse(arguments)
    try:
        with _alone():
            return _set_up(options)
    except KeyboardInterrupt:
        _complain("set-up interrupted. Run the same command again: it begins anew where it has to.")
        return 130
    except OSError as error:  # a full disk, a checkout that may not be written to …
        _complain(f"set-up stopped: {error}")
        return 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m setup", description="Prepare .venv from the lock files.")
    parser.add_argument("--dev", action="store_true", help="also what tests and linters need")
    parser.add_argument("--need-mongod", action="store_true", help="fail where no mongod can run on this machine")
    parser.add_argument("--quiet", action="store_true", help="say nothing when there is nothing to do")
    return parser.parse_args(arguments)


def _set_up(options: argparse.Namespace) -> int:
    stamp = Stamp(ENVIRONMENT)
    wanted = [part for part in PARTS if options.dev or part != "dev"]
    missing = stamp.missing(ROOT, wanted)
    interpreter = (ENVIRONMENT / "bin" / "python").exists()
    # The shortest way: nothing to look at, nothing to import.
    if interpreter and not stamp.unfinished and not missing and "MICROSHARD_MONGOD" not in os.environ:
        return _nothing_to_do(options)

    # Imported late for the shortest way's sake.
    from setup.environment import Environment, InstallError  # noqa: PLC0415 - see above

    began = time.monotonic()
    environment = Environment(ROOT, lambda line: _say(f"{time.monotonic() - began:6.1f} s  {line}"))
    anew = stamp.unfinished or not environment.works
    facts = gather(ROOT)
    decision = decide(facts, wanted if anew else missing, anew=anew, need_mongod=options.need_mongod)
    for problem in decision.problems:
        _complain(f"set-up stopped: {problem}")
    if decision.problems:
        return 1
    if decision.parts or anew:
        _announce(decision, facts, anew=anew, unfinished=stamp.unfinished)
        try:
            environment.install(stamp, decision.parts, anew=anew)
        except InstallError as error:
            _complain(f"set-up stopped: {error}")
            return 1
        _say(
            f"Done in {time.monotonic() - began:.0f} s: {environment.bytes_on_disk / 1e6:.0f} MB in .venv."
            f" The command is .venv/bin/microshard; what was done stands in {environment.log.relative_to(ROOT)}"
        )
    elif not decision.without_mongodb:
        return _nothing_to_do(options)
    trouble = environment.mongod_trouble() if "mongodb" in decision.parts else ""
    if trouble:
        stamp.forget("mongodb")
        _complain(f"{trouble}\n  {OWN_MONGODB}")
        return 1 if options.need_mongod else 0
    if decision.without_mongodb and (decision.parts or not options.quiet):
        _say(f"The packaged MongoDB is left out: {decision.without_mongodb}")
    return 0


def _announce(decision: Decision, facts: Facts, *, anew: bool, unfinished: bool) -> None:
    if unfinished:
        _say("An earlier set-up was interrupted: .venv is made again.")
    _say(f"Making .venv with Python {platform.python_version()}:" if anew else "Bringing .venv up to date:")
    lines = {
        "run": "to run: Ansible, pymongo, numpy, scipy, matplotlib …",
        "mongodb": "with MongoDB's own mongod",
        "dev": "for tests and linters",
    }
    download = disk = 0
    for part in decision.parts:
        if part in lines:
            count = _packages(part)
            _say(f"  {count:3} package{'s' * (count > 1)} {lines[part]}")
            download += SIZES[part].download_mb
            disk += SIZES[part].disk_mb
    if download:
        _say(f"  about {download} MB to download where pip has not cached them, {disk} MB on disk")
    for note in notes(facts):
        _say(f"  {note}")


def _packages(part: str) -> int:
    lock = (ROOT / "requirements" / f"{part}.lock").read_text(encoding="utf-8")
    return len(re.findall(r"^[a-z0-9].*==", lock, re.MULTILINE))


def _nothing_to_do(options: argparse.Namespace) -> int:
    if not options.quiet:
        _say("Nothing to do: .venv is as the lock files say. The command is .venv/bin/microshard")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _complain(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep two set-ups of one checkout apart; the second waits and then finds nothing to do."""
    handle = os.open(ROOT / "requirements", os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: two at once are then the user's affair
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
