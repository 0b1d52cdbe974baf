"""Kernel settings: what the manual recommends by version, and the way back."""

import pytest

from microshard.hostlib import host_kernel
from microshard.hostlib.errors import HostError
from microshard.hostlib.kernel_settings import SETTINGS, Setting


def values(settings, version="6.0.5"):
    return {name: value for name, (value, _) in host_kernel.resolve(settings, version).items()}


def test_nothing_is_set_that_nobody_requested():
    assert values({"production_notes": False, "swappiness": None, "readahead_sectors": 32}) == {}


@pytest.mark.parametrize(("version", "enabled", "defrag"), [
    ("4.4.29", "never", "never"),
    ("7.0.14", "never", "never"),
    ("8.0.1", "always", "defer+madvise"),
])  # fmt: skip
def test_huge_pages_are_recommended_from_8_0_on_and_warned_of_before(version, enabled, defrag):
    found = values({"production_notes": True}, version)
    assert (found["transparent_huge_pages"], found["transparent_huge_pages_defrag"]) == (enabled, defrag)
    assert ("overcommit_memory" in found) is (version[0] == "8")


def test_the_experiment_comes_before_the_production_notes():
    found = host_kernel.resolve({"production_notes": True, "swappiness": 60}, "6.0.5")
    assert found["swappiness"] == ("60", "the experiment")
    assert found["max_map_count"][1].startswith("Operations Checklist")


def test_zero_is_a_value():
    assert values({"swappiness": 0, "smt": False}) == {"swappiness": "0", "smt": "off"}


def test_defrag_is_set_alike_unless_it_has_a_value_of_its_own():
    assert values({"transparent_huge_pages": "madvise"})["transparent_huge_pages_defrag"] == "madvise"
    own = {"transparent_huge_pages": "always", "transparent_huge_pages_defrag": "defer"}
    assert values(own)["transparent_huge_pages_defrag"] == "defer"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Settings that are files of the test; no systemd."""
    (tmp_path / "swappiness").write_text("60\n")
    (tmp_path / "enabled").write_text("[always] madvise never\n")
    fakes = {
        "swappiness": Setting("swappiness", str(tmp_path / "swappiness"), sysctl="vm.swappiness"),
        "cpu_governor": Setting("cpu_governor", str(tmp_path / "none"), absent="its CPUs have no governor"),
    }
    for name in list(SETTINGS):
        monkeypatch.delitem(SETTINGS, name)
    for name, setting in fakes.items():
        monkeypatch.setitem(SETTINGS, name, setting)
    for name in ("SYSCTL", "UNIT", "LIMITS"):
        monkeypatch.setattr(host_kernel, name, str(tmp_path / name))
    monkeypatch.setattr(host_kernel, "has_systemd", lambda: False)
    return tmp_path


def apply(folder, state="present", check=False, **settings):
    parameters = {"settings": settings, "version": "6.0.5", "user": "mongod", "state_folder": str(folder / "state")}
    return host_kernel.main({**parameters, "state": state}, check=check)


def test_a_setting_is_made_kept_recorded_and_put_back(kernel):
    planned = apply(kernel, check=True, swappiness=1)
    assert planned["changed"]
    assert (kernel / "swappiness").read_text() == "60\n"
    made = apply(kernel, swappiness=1)
    assert made["record"]["is"]["swappiness"] == "1"
    assert made["record"]["before"] == {"swappiness": "60"}
    assert "vm.swappiness = 1" in (kernel / "SYSCTL").read_text()
    assert not apply(kernel, swappiness=1)["changed"]
    apply(kernel, swappiness=10)
    back = apply(kernel, state="absent")
    assert back["changed"]
    assert (kernel / "swappiness").read_text() == "60\n"
    assert not (kernel / "SYSCTL").exists()
    assert not (kernel / "state/kernel.json").exists()
    assert not apply(kernel, state="absent")["changed"]


def test_what_the_next_experiment_does_not_ask_for_goes_back(kernel):
    apply(kernel, swappiness=1)
    apply(kernel, open_files=64000)
    assert (kernel / "swappiness").read_text() == "60\n"
    assert "mongod hard nofile 64000" in (kernel / "LIMITS").read_text()


def test_a_setting_the_host_does_not_have_is_refused_before_anything_is_changed(kernel):
    with pytest.raises(HostError, match=r"cpu_governor: cannot be set on this host: its CPUs have no governor"):
        apply(kernel, swappiness=1, cpu_governor="performance")
    assert (kernel / "swappiness").read_text() == "60\n"


def test_a_value_the_kernel_does_not_keep_is_reported(kernel):
    setting = Setting("huge", str(kernel / "enabled"))
    assert setting.value() == "always"
    with pytest.raises(HostError, match="/nowhere"):
        Setting("gone", "/nowhere*").set("1")
