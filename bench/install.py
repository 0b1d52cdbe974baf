"""Installing on a fresh machine with a warm registry (row 11): `make sweep`'s set-up against `pip install ansible`.

In turn, each in a new folder with an empty pip cache: `python3 -m setup --quiet --need-mongod` in a copy of the
checkout's tracked files, and a virtual environment into which the bundled pip installs the same version of ansible
alone. What the registry serves it serves to both.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from bench.alone import ROOT, alone, rounds, say, scratch, timed
from bench.findings import Findings, Target, compared

LIMIT = 200  # s, for one installation


def _run(folder: Path, words: list[str]) -> None:
    inherited = {key: value for key, value in os.environ.items() if key not in {"VIRTUAL_ENV", "MICROSHARD_MONGOD"}}
    environment = {**inherited, "PIP_CACHE_DIR": str(folder / "cache"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def python() -> str:
    """The Python that a user has, not that of this environment."""
    return str(Path(sys.base_prefix) / "bin" / "python3")


def ours(folder: Path) -> float:
    """Seconds of the set-up in a new checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return timed(lambda: _run(folder, [python(), "-m", "setup", "--quiet", "--need-mongod"]))


def ansible(folder: Path) -> float:
    """Seconds of a virtual environment with ansible alone, of the version we use."""
    wanted = (ROOT / "requirements" / "run.in").read_text(encoding="utf-8")
    (version,) = re.findall(r"^ansible==(\S+)", wanted, flags=re.MULTILINE)

    def install() -> None:
        _run(folder, [python(), "-m", "venv", "venv"])
        _run(folder, [str(folder / "venv" / "bin" / "pip"), "install", "--quiet", f"ansible=={version}"])

    return timed(install)


def measure(quick: bool) -> Findings:
    """Row 11."""
    taken: dict[str, list[float]] = {"ours": [], "ansible": []}
    for _ in rounds(1 if quick else 2, 1 if quick else 3, 150):
        for name, way in (("ours", ours), ("ansible", ansible)):
            with scratch() as folder:
                taken[name].append(way(folder))
            say(f"{name}: {taken[name][-1]:.1f} s")
    row = compared(
        11,
        "set-up of make sweep",
        taken["ours"],
        "pip install ansible",
        taken["ansible"],
        "s",
        Target(1.3),
        note="both with an empty pip cache; ours installs ansible, numpy, scipy, matplotlib and MongoDB",
    )
    return Findings([row])


if __name__ == "__main__":
    sys.exit(alone(measure))
