"""Kernel settings saved, verified and put back; dropping the page cache."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from microshard.hostlib import kernel_settings
from microshard.hostlib.errors import HostError
from microshard.hostlib.kernel_settings import drop_page_cache


class Kernel:
    """Settings that are files of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state/kernel.json"
        (folder / "swappiness").write_text("60\n")
        (folder / "enabled").write_text("[always] madvise never\n")
        (folder / "governor").write_text("ondemand\n")
        (folder / "governors").write_text("ondemand powersave\n")
        (folder / "smt").write_text("forceoff\n")
        self.settings = [
            {"name": "swappiness", "path": str(folder / "swappiness"), "sysctl": "vm.swappiness"},
            {"name": "enabled", "path": str(folder / "enab*")},
            {"name": "governor", "path": str(folder / "governor"), "offered": str(folder / "governors")},
            {"name": "smt", "path": str(folder / "smt"), "fixed": ["forceoff"]},
            {"name": "none", "path": str(folder / "none"), "missing": "there is none"},
        ]

    def module(self, state: str, check: bool = False, **arguments: Any) -> dict[str, Any]:
        given = {"settings": self.settings, "state": state, "state_file": str(self.state), **arguments}
        validated = ArgumentSpecValidator(kernel_settings.ARGUMENTS).validate(given)
        assert not validated.error_messages
        return kernel_settings.main(validated.validated_parameters, check=check)

    def write(self, name: str, value: str) -> None:
        (self.folder / name).write_text(f"{value}\n")

    def read(self, name: str) -> str:
        return (self.folder / name).read_text().strip()


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_a_setting_is_saved_once_verified_recorded_and_put_back(kernel: Kernel) -> None:
    notes = {"swappiness": {"value": 1, "source": "the manual"}}
    assert kernel.module("saved", check=True, recommended=notes)["differ"] == ["swappiness"]
    assert not kernel.state.exists()
    kernel.module("saved", recommended=notes)
    with pytest.raises(HostError, match="swappiness was set to 1 and is 60"):
        kernel.module("verified", recommended=notes)
    kernel.write("swappiness", "1")
    record = kernel.module("verified", recommended=notes)["record"]
    assert (record["is"]["swappiness"], record["is"]["enabled"], record["is"]["none"]) == ("1", "always", None)
    assert record["before"] == {"swappiness": "60"}
    assert record["planned"] == {"swappiness": {"value": "1", "source": "the manual"}}
    assert kernel.module("saved", values={"swappiness": 10}, recommended=notes)["planned"]["swappiness"] == {
        "value": "10",
        "source": "the experiment",
    }
    kernel.write("swappiness", "10")
    assert kernel.module("restored", check=True)["changed"]
    assert kernel.module("restored")["changed"]
    assert kernel.read("swappiness") == "60"
    assert not kernel.state.exists()
    assert not kernel.module("restored")["changed"]


def test_what_the_next_experiment_does_not_ask_for_goes_back(kernel: Kernel) -> None:
    kernel.module("saved", values={"swappiness": 1, "governor": "powersave"})
    kernel.write("swappiness", "1")
    result = kernel.module("saved", values={"governor": "powersave", "open_files": 64000})
    assert (result["did"], kernel.read("swappiness")) == (["swappiness back to 60"], "60")
    assert json.loads(kernel.state.read_text()) == {"governor": "ondemand"}
    assert result["planned"]["open_files"]["value"] == "64000"


@pytest.mark.parametrize(("values", "why"), [
    ({"none": 1}, "none: cannot be set on this host: there is none"),
    ({"governor": "performance"}, "governor: this host has no performance; there is ondemand, powersave"),
    ({"smt": False}, "smt: is forceoff here and cannot be changed"),
])  # fmt: skip
def test_what_the_host_does_not_have_is_refused_before_anything_is_changed(
    kernel: Kernel, values: dict[str, Any], why: str
) -> None:
    with pytest.raises(HostError, match=why):
        kernel.module("saved", values={**values, "swappiness": 1})
    with pytest.raises(HostError, match=why):
        kernel.module(
            "saved", values={"swappiness": 1}, later=[{"swappiness": 10}, {**values, "production_notes": True}]
        )
    assert not kernel.state.exists()
    recommended = {name: {"value": value, "source": "the manual"} for name, value in values.items()}
    assert kernel.module("saved", recommended=recommended, later=[{"swappiness": 1}])["planned"] == {}


def test_a_value_the_kernel_does_not_take_is_reported(kernel: Kernel) -> None:
    kernel.module("saved", values={"swappiness": 1})
    (kernel.folder / "swappiness").unlink()
    (kernel.folder / "swappiness").mkdir()
    with pytest.raises(HostError, match="swappiness does not take 60: Is a directory"):
        kernel.module("restored")
    assert kernel.state.exists()


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
