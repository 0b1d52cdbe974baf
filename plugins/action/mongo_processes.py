"""Renders the files of every process on the controller, then executes the module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.yaml import yaml_load
from ansible.template import trust_as_template
from ansible_collections.microshard.lab.plugins.action.in_process import ActionModule as InProcess

_TEMPLATES = {"mongos": "mongos.conf.j2", "config": "configsvr.conf.j2"}
_ENGINES = {"mmapv1": "mongod-mmapv1.conf.j2", "rocksdb": "mongod-rocksdb.conf.j2", "tokumx": "tokumx.conf.j2"}
_FILES = {"start": "start.j2"}
_FILES_OF_SYSTEMD = {"unit": "microshard@.service.j2", "rotation": "logrotate.j2"}

# Options that the plugin needs and the module does not know.
_ONLY_HERE = ("host", "deployment", "templates", "version", "config_db", "embedded", "records")

# All files by one template: compiling it takes longer than rendering it (docs/benchmarks.md row 2).
_SEPARATOR = "\0"
_ALL = "{% for process, template in planned %}{% include template %}\n" + _SEPARATOR + "{% endfor %}"


class ActionModule(InProcess):  # type: ignore[misc]  # ansible has no types
    """One task instead of a `template` task looped over processes (0.3 s each)."""

    def execute(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """Complete the processes of this host, add `config` to each where the state needs one, execute the module."""
        here = {name: arguments.pop(name, None) for name in _ONLY_HERE}
        config, processes = self.load("mongo_config"), arguments.get("processes") or []
        host = here["host"] or variables["inventory_hostname"]
        arguments["processes"] = config.on_host(
            processes, host, str(arguments["run_folder"]), here["deployment"] or "by-hand"
        )
        if arguments.get("state", "started") in {"started", "restarted"}:
            here["config_db"] = here["config_db"] or config.config_db(processes)
            # Templates read the role's variables: these are their values, found once and not for every process.
            values = {f"mongo_processes_{name}": value for name, value in {**arguments, **here}.items()}
            for name in ("authorization", "tls"):
                values[f"mongo_processes_{name}"] = bool((arguments.get("security") or {}).get(name))
            try:
                self._render(arguments, str(here["templates"]), {**variables, **values})
            except self.load("errors").HostError as error:
                raise AnsibleActionFail(str(error)) from None
        result = dict(super().execute(arguments, variables))
        for record in result.pop("records", None) or []:
            if here["records"]:
                self.write_json(Path(here["records"], f"{record['name']}.json"), {"host": host, **record})
        return result

    def _render(self, arguments: dict[str, Any], folder: str, variables: dict[str, Any]) -> None:
        arguments["processes"] = self.rendered(arguments["processes"], folder, variables)
        names = _FILES | (_FILES_OF_SYSTEMD if arguments.get("process_manager") == "systemd" else {})
        arguments["files"] = {
            what: self._template(self._loader.get_text_file_contents(os.path.join(folder, name)), folder, variables)
            for what, name in names.items()
        }

    def rendered(self, processes: list[Any], folder: str, variables: dict[str, Any]) -> list[dict[str, Any]]:
        """The processes with their configuration files as text, by the templates in `folder`, and as trees."""
        config = self.load("mongo_config")
        names = [_TEMPLATES.get(p["role"]) or _ENGINES.get(p["engine"], "mongod.conf.j2") for p in processes]
        planned = list(zip(processes, names))
        texts = self._template(_ALL, folder, {**variables, "planned": planned}).split(_SEPARATOR)
        result = []
        for (process, name), rendered in zip(planned, texts):
            options = process["options"]
            if str(variables["mongo_processes_version"]).startswith("2."):
                options = config.without_engine(options)
            if name == _ENGINES["tokumx"]:
                text = config.merged_tokumx(rendered, options)
                tree = config.tokumx_tree(text)
            else:
                text = config.merged(rendered, options)
                tree = yaml_load(text)
            result.append({**process, "config": text, "config_tree": tree})
        return result

    def _template(self, source: str, folder: str, variables: dict[str, Any]) -> str:
        templar = self._templar.copy_with_new_env(searchpath=[folder], available_variables=variables)
        return str(
            templar.template(
                trust_as_template(source),
                escape_backslashes=False,
                overrides={"trim_blocks": True, "lstrip_blocks": True},
            )
        )
