"""Makes the plugins importable the way Ansible does, and renders templates with Ansible's own templar."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.yaml import yaml_load
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import action_loader, init_plugin_loader
from ansible.template import Templar

from microshard.hostlib import mongo_config
from microshard.model.plan import Process
from tests.cluster.ansible import points

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session", autouse=True)
def plugins() -> None:
    """Ansible's plugin loaders know this project's collection: before the first template, which would load without."""
    init_plugin_loader([str(ROOT / "src" / "microshard" / "collections")])


Render = Callable[..., dict[str, dict[str, Any]]]
Texts = Callable[..., dict[str, str]]
# The role's variables that templates read, as its defaults have them.
DEFAULTS = {
    "version": "6.0.5",
    "run_folder": "/run-folder",
    "mongod": "/bin/mongod",
    "embedded": True,
    "authorization": False,
    "tls": False,
}


@pytest.fixture
def texts(plugins: None) -> Texts:
    """The configuration file of each process by name: of a layout, or of these processes, with role variables."""

    def render(layout: points.Layout, processes: Sequence[Process] | None = None, **variables: Any) -> dict[str, str]:
        planned = points.point(layout, Path("/run-folder")).processes if processes is None else processes
        loader = DataLoader()
        action = action_loader.get(
            "microshard.lab.mongo_processes",
            task=None,
            connection=None,
            play_context=None,
            loader=loader,
            templar=Templar(loader=loader, variables={}),
            shared_loader_obj=None,
        )
        complete = [mongo_config.complete(dataclasses.asdict(p), "/run-folder", "p01") for p in planned]
        values = {**DEFAULTS, "config_db": mongo_config.config_db(complete), **variables}
        context = {f"mongo_processes_{name}": value for name, value in values.items()}
        rendered = action.rendered(complete, str(ROOT / "templates"), context)
        return {process["name"]: process["config"] for process in rendered}

    return render


@pytest.fixture
def configs(texts: Texts) -> Render:
    """The same, read as mongod would read it."""

    def read(*arguments: Any, **variables: Any) -> dict[str, dict[str, Any]]:
        return {name: yaml_load(text) for name, text in texts(*arguments, **variables).items()}

    return read
