"""`make wheel` and `make collection`: dist/microshard-….whl and dist/microshard-lab-….tar.gz; `make release`: both.

The same commit gives the same bytes: times in the archives are those of the commit.
Both are built in a copy of the tree, so that the tools leave nothing in it. In src/microshard/collections and
src/microshard/shipped are links to the folders of the top level; the archives have the files.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = Path("src/microshard/collections/ansible_collections/microshard/lab")
_REQUIREMENTS = ("run", "mongodb", "compression")
_WHEEL = ("pyproject.toml", "README.md", "LICENSE", *(f"requirements/{name}.in" for name in _REQUIREMENTS), "src")
# What tools leave in a tree, and settings of the linter.
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache", "ruff.toml")


def _left_out(folder: str, names: list[str]) -> set[str]:
    return _LEFT_OUT(folder, names) | {name for name in names if not Path(folder, name).exists()}


def copy_files(source: Path, target: Path) -> None:
    """Copy a file, or a folder with files in place of links; a link to what was not built is left out."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=_left_out)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def commit_time() -> int:
    """Epoch seconds of the commit that is checked out; 0 outside of a checkout."""
    answer = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(answer.stdout.strip() or 0)


def wheel(folder: Path) -> Path:
    """Build the wheel into a folder; its path."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(max(commit_time(), 315532800))}  # zip begins in 1980
    with tempfile.TemporaryDirectory() as copy:
        for name in _WHEEL:
            copy_files(ROOT / name, Path(copy, name))
        for path in Path(copy).rglob("*"):  # the archive has them, and a checkout's depend on its owner's umask
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel"]
        options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder)]
        subprocess.run([*pip, *options, copy], check=True, env=environment, umask=0o022)
    return max(folder.glob("microshard-*.whl"), key=lambda path: path.stat().st_mtime)


def collection(folder: Path) -> Path:
    """Build the archive of the collection microshard.lab into a folder; its path."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary, "lab")
        copy_files(ROOT / COLLECTION, copy)
        galaxy = Path(sys.executable).with_name("ansible-galaxy")
        command = [str(galaxy), "collection", "build", "--force", "--output-path", str(folder), str(copy)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    built = max(folder.glob("microshard-lab-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    _set_times(built)
    return built


def _set_times(archive: Path) -> None:
    """Write an archive again, sorted, with the time of the commit: ansible-galaxy puts the present one in."""
    stamp = commit_time()
    with tarfile.open(archive) as tar:
        members = sorted(tar.getmembers(), key=lambda member: member.name)
        contents = [tar.extractfile(member) if member.isreg() else None for member in members]
        packed = io.BytesIO()
        with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as new:
            for member, content in zip(members, contents, strict=True):
                member.mtime, member.pax_headers = stamp, {}
                new.addfile(member, content)
    archive.write_bytes(packed.getvalue())


def release(folder: Path) -> Path:
    """Build both archives twice; their SHA-256 sums. Raises SystemExit when the second differs from the first."""
    with tempfile.TemporaryDirectory() as again:
        pairs = [(build(folder), build(Path(again))) for build in (wheel, collection)]
        for first, second in pairs:
            if first.read_bytes() != second.read_bytes():
                raise SystemExit(f"{first.name}: built twice, and the bytes differ")
    lines = [f"{hashlib.sha256(first.read_bytes()).hexdigest()}  {first.name}\n" for first, _ in pairs]
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(lines), encoding="ascii")
    return sums


def main() -> None:
    """Build what is named, and say what was built."""
    parser = argparse.ArgumentParser(prog="python -m setup.archives", description="Build the archives of microshard.")
    parser.add_argument("what", choices=["wheel", "collection", "release"])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    built = {"wheel": wheel, "collection": collection, "release": release}[options.what](options.folder.absolute())
    sys.stdout.write(f"{built} ({built.stat().st_size / 1e6:.1f} MB)\n")


if __name__ == "__main__":
    main()
