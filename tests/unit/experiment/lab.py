"""A place for experiment files that are right or wrong, and what is said about them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from microshard.experiment.errors import DefinitionError, Problem
from microshard.experiment.load import LoadedExperiment, load
from microshard.experiment.matrix import PointDefinition, expand

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.yml"))

BASE = """\
microshard: 1
name: base
topology:
  shards: {count: 2}
  collections: [{namespace: vosa.mot_results, shard_key: {_id: 1}}]
workload:
  - load: {engine: insert, documents: 100}
  - measure: {engine: aggregate, pipeline: p}
"""


class Lab:
    """Loads text as the file x.yml."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "x.yml"

    def load(self, text: str, scale: str | None = None, overrides: Mapping[str, Any] | None = None) -> LoadedExperiment:
        self.file.write_text(text, encoding="utf-8")
        return load(self.file, scale, overrides or {})

    def points(self, text: str) -> list[PointDefinition]:
        return expand(self.load(text))

    def problems(
        self, text: str | bytes, scale: str | None = None, overrides: Mapping[str, Any] | None = None
    ) -> list[Problem]:
        self.file.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(DefinitionError) as raised:
            expand(load(self.file, scale, overrides or {}))
        str(raised.value)
        return raised.value.problems

    def wrong(
        self, text: str | bytes, scale: str | None = None, overrides: Mapping[str, Any] | None = None
    ) -> list[str]:
        """The headlines, with the file's folder left out."""
        folder = f"{self.file.parent}/"
        return [p.headline.removeprefix(folder) for p in self.problems(text, scale, overrides)]

    def warned(self, text: str) -> list[str]:
        folder = f"{self.file.parent}/"
        return [p.headline.removeprefix(folder) for p in self.load(text).warnings]
