"""Generators of the data sets: each module has a class `DATASET`; its facts are in model/datasets.py."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from microshard.model.datasets import dataset_info
from microshard.workloads.datasets.base import Dataset


def make(name: str, keys: Mapping[str, Any]) -> Dataset[Any]:
    """The data set with its options taken from the keys of a phase. Raises DataError."""
    made: Dataset[Any] = importlib.import_module(f"{__name__}.{name}").DATASET(dataset_info(name, keys))
    return made
