"""Every module of the collection is executed by an action plugin of the project."""

from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[3]
COLLECTION = ROOT / "src" / "microshard" / "collections" / "ansible_collections" / "microshard" / "lab"
ANY_MODULE = {"ec2_fleet"}  # of the controller, in an interpreter that has microshard


def test_meta_runtime_names_an_action_plugin_for_each_module_without_one() -> None:
    routing = YAML(typ="safe").load(COLLECTION / "meta" / "runtime.yml")["plugin_routing"]["modules"]
    modules = {path.stem for path in (COLLECTION / "plugins" / "modules").glob("*.py")}
    own = {path.stem for path in (COLLECTION / "plugins" / "action").glob("*.py")}
    assert set(routing) == modules - own - ANY_MODULE
    assert {entry["action_plugin"] for entry in routing.values()} == {"microshard.lab.in_process"}
