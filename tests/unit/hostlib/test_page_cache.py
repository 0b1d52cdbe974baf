"""What is told of a page cache that was to be dropped."""

import errno
from pathlib import Path

import pytest

from microshard.hostlib import page_cache


def test_what_the_kernel_was_told_or_why_not(tmp_path: Path) -> None:
    switch = tmp_path / "drop_caches"
    assert page_cache.drop(str(switch)) == "dropped"
    assert switch.read_text() == "3\n"
    assert page_cache.drop(str(tmp_path)) == "not dropped (Is a directory)"


def test_who_may_not_does_it_by_sudo_or_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    switch, sudo = tmp_path / "drop_caches", tmp_path / "sudo"
    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert page_cache.drop(str(switch)) == "not dropped (not root)"
    sudo.write_text("#!/bin/sh\nexit 1\n")
    sudo.chmod(0o755)
    assert page_cache.drop(str(switch)) == "not dropped (not root)"
    sudo.write_text('#!/bin/sh\n[ "$1" = -n ] && shift && exec "$@"\n')
    assert page_cache.drop(str(switch)) == "dropped"
    assert switch.read_text() == "3\n"
