"""What the roles that prepare a host make of their variables, by Ansible's own templar."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

ROOT = Path(__file__).resolve().parents[3]
Variables = Callable[..., Any]


@pytest.fixture
def kernel(plugins: None) -> Variables:
    """A variable of the role host_kernel, with these inputs."""
    loader = DataLoader()
    files = [str(ROOT / f"roles/host_kernel/{part}/main.yml") for part in ("defaults", "vars")]
    role = {
        key: value for path in files for key, value in loader.load_from_file(path, trusted_as_template=True).items()
    }

    def variable(name: str, **inputs: Any) -> Any:
        given = {f"host_kernel_{key}": value for key, value in inputs.items()}
        return Templar(loader=loader, variables={**role, **given}).template(role[name])

    return variable


def test_nothing_is_set_by_default(kernel: Variables) -> None:
    assert (kernel("host_kernel_values"), kernel("host_kernel_recommended")) == ({}, {})


@pytest.mark.parametrize(("version", "enabled", "defrag"), [
    ("4.4.29", "never", "never"),
    ("7.0.14", "never", "never"),
    ("8.0.1", "always", "defer+madvise"),
    ("10.0.0", "always", "defer+madvise"),
])  # fmt: skip
def test_huge_pages_are_recommended_from_8_0_on_and_warned_of_before(
    kernel: Variables, version: str, enabled: str, defrag: str
) -> None:
    found = kernel("host_kernel_recommended", production_notes=True, mongodb_version=version)
    assert found["transparent_huge_pages"]["value"] == enabled
    assert found["transparent_huge_pages_defrag"]["value"] == defrag
    assert ("overcommit_memory" in found) is (enabled == "always")
    assert found["max_map_count"]["source"].startswith("Operations Checklist")


@pytest.mark.parametrize(("inputs", "values"), [
    ({"swappiness": 0, "smt": False}, {"swappiness": 0, "smt": False}),
    ({"transparent_huge_pages": "madvise"},
     {"transparent_huge_pages": "madvise", "transparent_huge_pages_defrag": "madvise"}),
    ({"transparent_huge_pages": "always", "transparent_huge_pages_defrag": "defer"},
     {"transparent_huge_pages": "always", "transparent_huge_pages_defrag": "defer"}),
    ({"open_files": 64000, "time_sync": True}, {"open_files": 64000, "time_sync": True}),
])  # fmt: skip
def test_zero_and_false_are_values_and_defrag_follows_unless_it_has_its_own(
    kernel: Variables, inputs: dict[str, Any], values: dict[str, Any]
) -> None:
    assert kernel("host_kernel_values", **inputs) == values
