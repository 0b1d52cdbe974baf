"""Makes the plugins importable the way Ansible does, and renders templates with Ansible's own templar."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.yaml import yaml_load
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import action_loader, init_plugin_loader
from ansible.template import Templar

from tests.cluster.ansible import points

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def plugins() -> None:
    """Ansible's plugin loaders know this project's collection."""
    init_plugin_loader([str(ROOT / "src" / "microshard" / "collections")])


Render = Callable[..., dict[str, dict[str, Any]]]
Texts = Callable[..., dict[str, str]]


@pytest.fixture
def texts(plugins: None) -> Texts:
    """The configuration file of each process of a layout, by name; `change` may alter the variables before."""

    def render(layout: points.Layout, change: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, str]:
        folder = Path("/run-folder")
        made = points.point(layout, folder)
        variables = points.variables(made, folder, Path("/bin/mongod"), Path("/bin/mongos"), Path("/bin/python"))
        variables["microshard_point"]["processes"] = [dataclasses.asdict(process) for process in made.processes]
        change(variables)
        loader = DataLoader()
        action = action_loader.get(
            "microshard.lab.mongo_processes",
            task=None,
            connection=None,
            play_context=None,
            loader=loader,
            templar=Templar(loader=loader, variables=variables),
            shared_loader_obj=None,
        )
        rendered = action.rendered(variables["microshard_point"]["processes"], str(ROOT / "templates"), variables)
        return {process["name"]: process["config"] for process in rendered}

    return render


@pytest.fixture
def configs(texts: Texts) -> Render:
    """The same, read as mongod would read it."""

    def read(*arguments: Any) -> dict[str, dict[str, Any]]:
        return {name: yaml_load(text) for name, text in texts(*arguments).items()}

    return read
