"""Data sets by name: a module of this package that defines `DATASET` is one."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from microshard.workloads.datasets.error import DataError

if TYPE_CHECKING:
    from microshard.workloads.datasets.base import Dataset

__all__ = ["DataError", "find", "make", "names"]

_NOT_DATA = {"base", "encoding", "error", "words"}


def names() -> list[str]:
    """The data sets there are."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _NOT_DATA)


@functools.cache
def find(name: str) -> type[Dataset]:
    """The class of a data set. Imported late: a definition that names none need not pay for numpy."""
    found: type[Dataset] = importlib.import_module(f"{__name__}.{name}").DATASET
    return found


def make(name: str, keys: Mapping[str, Any]) -> Dataset:
    """The data set with its options taken from the keys of a phase."""
    kind = find(name)
    return kind(**{option: keys[option] for option in kind.options})
