"""ansible-doc prints every module of the collection, and its examples name options that are documented."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.yaml import yaml_load

ROOT = Path(__file__).resolve().parents[3]
COLLECTIONS = ROOT / "src" / "microshard" / "collections"
MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
# Keywords of a task beside the module.
KEYWORDS = {"name", "register", "become", "loop", "when", "vars", "delegate_to"}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ansible-doc says of each module, as JSON."""
    names = [f"microshard.lab.{name}" for name in MODULES]
    home = str(tmp_path_factory.mktemp("ansible"))
    command = [str(Path(sys.executable).with_name("ansible-doc")), "--json", *names]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_HOME": home}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_documented_and_its_examples_name_its_options(printed: dict[str, Any], name: str) -> None:
    module = printed[f"microshard.lab.{name}"]
    options = module["doc"]["options"]
    assert all(option["description"] for option in options.values())
    tasks = yaml_load(module["examples"])
    assert tasks
    for task in tasks:
        (action,) = task.keys() - KEYWORDS
        assert action == f"microshard.lab.{name}"
        arguments = task[action] or {}
        assert arguments.keys() <= options.keys()
        assert {key for key, option in options.items() if option.get("required")} <= arguments.keys()
        for key, value in arguments.items():
            choices = options[key].get("choices")
            assert not choices or value in choices or "{{" in str(value)
    assert module["return"] is not None
