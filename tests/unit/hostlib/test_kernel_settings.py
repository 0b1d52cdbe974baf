"""Dropping the page cache."""

import errno
from pathlib import Path

import pytest

from microshard.hostlib.kernel_settings import drop_page_cache


def test_the_page_cache_is_dropped_or_the_reason_returned(tmp_path: Path) -> None:
    switch = tmp_path / "drop_caches"
    assert drop_page_cache(str(switch)) == "dropped"
    assert switch.read_text() == "3\n"
    assert drop_page_cache(str(tmp_path)) == "not dropped (Is a directory)"


def test_a_user_without_the_right_drops_it_by_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    switch, sudo = tmp_path / "drop_caches", tmp_path / "sudo"
    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert drop_page_cache(str(switch)) == "not dropped (not root)"
    sudo.write_text("#!/bin/sh\nexit 1\n")
    sudo.chmod(0o755)
    assert drop_page_cache(str(switch)) == "not dropped (not root)"
    sudo.write_text('#!/bin/sh\n[ "$1" = -n ] && shift && exec "$@"\n')
    assert drop_page_cache(str(switch)) == "dropped"
    assert switch.read_text() == "3\n"
