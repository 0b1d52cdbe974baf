"""What ansible-playbook is given must not be evaluated: by the real ansible-playbook."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from microshard.run.ansible import ReservedKeyError, mark_unsafe

PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: "{{ {'whole': given, 'part': 'a ' ~ given.text, 'in a list': given.list} | to_json }}"
        dest: "{{ out }}"
        mode: "0600"
"""


def test_no_template_in_a_value_or_key_is_evaluated(tmp_path: Path) -> None:
    trap = f"{{{{ lookup('ansible.builtin.pipe', 'touch {tmp_path}/trapped') }}}}"
    given = {"text": trap, "list": [trap, {"deep": "{% set a = 1 %}", trap: 1}], "comment": "{# gone? #}", "n": 1e-7}
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    variables = {"given": given, "out": str(tmp_path / "out.json")}
    (tmp_path / "vars.json").write_text(json.dumps(mark_unsafe(variables)), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", "-c", "local"]
    done = subprocess.run(
        [*command, "-e", f"@{tmp_path}/vars.json", "-e", f"ansible_python_interpreter={sys.executable}",
         str(tmp_path / "play.yml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "trapped").exists()
    out = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert out == {"whole": given, "part": f"a {trap}", "in a list": given["list"]}


@pytest.mark.parametrize("key", ["__ansible_vault", "__ansible_unsafe"])
def test_a_key_that_ansible_would_read_as_its_own_is_refused(key: str) -> None:
    with pytest.raises(ReservedKeyError, match=key):
        mark_unsafe({"pipeline": [{"$match": {key: "x"}}]})
