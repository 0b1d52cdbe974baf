"""`make audit`: are vulnerabilities known of what requirements/*.lock pins? pip-audit asks, this decides.

A vulnerability is a failure unless requirements/audit.toml accepts it, with a reason and a day. An index that does not
answer is none: a build must not depend on it. It is said then that nothing was audited.
"""

import argparse
import datetime
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from setup.environment import NETWORK_ERRORS

ROOT = Path(__file__).parents[1]
ACCEPTED = ROOT / "requirements" / "audit.toml"
SERVICES = ("pypi", "osv")  # in this order, until one answers
TIMEOUT = 15  # seconds an index has for one answer
# Besides those of pip: what pip-audit says when a service is there and does not do its work.
UNANSWERED = (*NETWORK_ERRORS, "Could not connect", "ServiceError", "ConnectionError", "JSONDecodeError")


class AuditError(Exception):
    """pip-audit could not do its work for a reason other than the network; the text is its own."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A known vulnerability that is lived with until a day."""

    id: str
    package: str
    reason: str
    until: datetime.date


@dataclass(slots=True)
class Answer:
    """What a service knows of the locked packages."""

    audited: int = 0
    vulnerable: list[dict[str, Any]] = field(default_factory=list)  # name, version, id, aliases, fix_versions
    skipped: list[str] = field(default_factory=list)  # packages it knows nothing of


def read_accepted(path: Path) -> list[Accepted]:
    """The vulnerabilities a file accepts. Raises AuditError where a key is missing, unknown or empty."""
    found = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("accepted", []):
        try:
            accepted = Accepted(**entry)
        except TypeError as error:
            raise AuditError(f"{path.name}: {entry}: needs id, package, reason and until, and nothing else") from error
        if not (accepted.id and accepted.package and accepted.reason.strip() and type(accepted.until) is datetime.date):
            raise AuditError(
                f"{path.name}: {accepted.id or entry}: id, package, reason and a day (until) must be there"
            )
        found.append(accepted)
    return found


def ask(locks: Sequence[Path], service: str, *, osv_url: str | None = None) -> Answer | str:
    """The answer of a service, or why there is none. Raises AuditError."""
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--format", "json"]
    command += ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--timeout", str(TIMEOUT)]
    command += [word for lock in locks for word in ("--requirement", str(lock))]
    command += ["--osv-url", osv_url] if osv_url else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        if any(word in done.stderr for word in UNANSWERED):
            return last
        raise AuditError(f"pip-audit: {last}") from None
    answer = read_answer(packages)
    return answer if answer.audited else f"it knows none of the {len(answer.skipped)} releases"


def read_answer(packages: Sequence[dict[str, Any]]) -> Answer:
    """What pip-audit wrote, each package once."""
    answer = Answer()
    for package in {p["name"]: p for p in packages}.values():
        if "skip_reason" in package:
            answer.skipped.append(str(package["name"]))
            continue
        answer.audited += 1
        known = {"name": package["name"], "version": package["version"]}
        answer.vulnerable += [known | vulnerability for vulnerability in package["vulns"]]
    return answer


def judged(answer: Answer, accepted: Sequence[Accepted], today: datetime.date) -> Iterator[tuple[bool, str]]:
    """Sentences about an answer, and whether each is a failure."""
    met = set()
    for found in answer.vulnerable:
        names = {found["id"], *found.get("aliases", [])}
        what = f"{found['name']} {found['version']}: {', '.join(sorted(names))}"
        fixed = ", ".join(found.get("fix_versions", [])) or "no version yet"
        reason = next((a for a in accepted if a.id in names and a.package == found["name"]), None)
        if reason is None:
            yield True, f"{what}; mended in {fixed}. Lock a newer one (make lock) or accept it in {ACCEPTED.name}"
            continue
        met.add(reason)
        late = reason.until < today
        yield late, f"{what}: accepted until {reason.until}{', which is over' if late else ''}: {reason.reason}"
    for reason in accepted:
        if reason not in met:
            yield False, f"{reason.package} {reason.id}: accepted, and not found any more; take it out"
    if answer.skipped:
        yield False, f"nothing is known of {', '.join(sorted(answer.skipped))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit lock files. 1 when something is known of them that is not accepted."""
    parser = argparse.ArgumentParser(prog="python -m setup.audit", description=main.__doc__)
    parser.add_argument("locks", nargs="*", type=Path, help="those of requirements/ when left out")
    parser.add_argument("--service", choices=SERVICES, help="only this one")
    parser.add_argument("--osv-url", help="a mirror of OSV's query address")
    parser.add_argument("--accepted", type=Path, default=ACCEPTED)
    arguments_ = parser.parse_args(arguments)
    locks = arguments_.locks or sorted((ROOT / "requirements").glob("*.lock"))
    try:
        accepted = read_accepted(arguments_.accepted)
        for service in [arguments_.service] if arguments_.service else SERVICES:
            # The shortest first: a mirror that knows no vulnerabilities need not be queried for every package.
            answer = ask([min(locks, key=lambda path: path.stat().st_size)], service, osv_url=arguments_.osv_url)
            if isinstance(answer, Answer):
                answer = ask(locks, service, osv_url=arguments_.osv_url)
            if isinstance(answer, Answer):
                break
            print(f"{service} does not answer: {answer}")
        else:
            print("NOT AUDITED: no index of vulnerabilities can be reached from here")
            return 0
    except (AuditError, OSError, tomllib.TOMLDecodeError) as error:
        print(f"audit stopped: {error}", file=sys.stderr)
        return 1
    verdicts = list(judged(answer, accepted, datetime.date.today()))
    for fails, sentence in verdicts:
        print(("VULNERABLE " if fails else "note: ") + sentence)
    print(f"{answer.audited} packages of {len(locks)} lock files checked by {service}")
    return 1 if any(fails for fails, _ in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
