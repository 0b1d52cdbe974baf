"""Renders the configuration of every process on the controller, then executes the module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.yaml import yaml_load
from ansible.template import trust_as_template
from ansible_collections.microshard.lab.plugins.action.in_process import ActionModule as InProcess

_TEMPLATES = {"mongos": "mongos.conf.j2", "config": "configsvr.conf.j2"}
_ENGINES = {
    "mmapv1": "mongod-mmapv1.conf.j2",
    "rocksdb": "mongod-rocksdb.conf.j2",
    "tokumx": "tokumx.conf.j2",
}
_UNIT = "microshard@.service.j2"

# All files by one template: compiling it takes longer than rendering it (docs/benchmarks.md row 2).
_SEPARATOR = "\0"
_ALL_PROCESSES = "{% for process, template in planned %}{% include template %}\n" + _SEPARATOR + "{% endfor %}"


def _parse_flat(text: str) -> dict[str, Any]:
    """`name = value` lines as a tree; setParameter, which is repeated, as a list."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        name, equals, value = line.partition(" = ")
        if equals and not line.startswith("#"):
            found[name] = [*found.get(name, []), value] if name == "setParameter" else value
    return found


class ActionModule(InProcess):  # type: ignore[misc]  # ansible has no types
    """One task instead of a `template` task looped over processes (0.3 s each)."""

    def execute(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Add each process's `config` where the state needs one, execute the module, keep a file of each process."""
        folder, records = arguments.pop("templates", None), arguments.pop("records", None)
        if arguments.get("state", "started") in {"started", "restarted"}:
            if not folder:
                raise AnsibleActionFail(
                    "templates: the folder of the configuration templates is needed to start a process"
                )
            arguments["processes"] = self.rendered(arguments.get("processes") or [], str(folder), variables)
            if arguments.get("process_manager") == "systemd":
                arguments["unit"] = self._render(_UNIT, str(folder), variables)
        result = dict(super().execute(arguments, variables))
        for record in result.pop("records", None) or []:
            if records:
                self.write_json(
                    Path(records, f"{record['name']}.json"), {"host": variables["inventory_hostname"], **record}
                )
        return result

    def rendered(self, processes: list[Any], folder: str, variables: dict[str, Any]) -> list[dict[str, Any]]:
        """The processes with their configuration files as text, by the templates in `folder`, and as trees."""
        names = []
        for process in processes:
            engine = ((process.get("options") or {}).get("storage") or {}).get("engine")
            names.append(_TEMPLATES.get(process["role"]) or _ENGINES.get(engine, "mongod.conf.j2"))
        planned = list(zip(processes, names))
        texts = self._template(_ALL_PROCESSES, folder, {**variables, "planned": planned}).split(_SEPARATOR)
        result = []
        for (process, name), text in zip(planned, texts):
            tree = _parse_flat(text) if name == _ENGINES["tokumx"] else yaml_load(text)
            result.append({**process, "config": text, "config_tree": tree})
        return result

    def _render(self, name: str, folder: str, variables: dict[str, Any]) -> str:
        return self._template(self._loader.get_text_file_contents(os.path.join(folder, name)), folder, variables)

    def _template(self, source: str, folder: str, variables: dict[str, Any]) -> str:
        templar = self._templar.copy_with_new_env(searchpath=[folder], available_variables=variables)
        return str(
            templar.template(
                trust_as_template(source),
                escape_backslashes=False,
                overrides={"trim_blocks": True, "lstrip_blocks": True},
            )
        )
