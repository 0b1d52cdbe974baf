"""mot: generated vehicle inspections (microshard.workloads.mot)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from microshard.workloads.datasets.base import Dataset

if TYPE_CHECKING:
    from microshard.workloads.datasets.encoding import Encoded, Ints


class Mot(Dataset):
    """The inspections of the published analytics experiment, fourteen one-letter fields."""

    indexes = ({"v": 1, "d": 1}, {"s": 1, "d": 1}, {"k": 1, "o": 1})
    average_bytes = 239  # the source's figure

    def get_ready(self) -> None:
        """numpy and the tables of vehicles."""
        importlib.import_module("microshard.workloads.mot")

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """As microshard.workloads.mot writes them."""
        from microshard.workloads import mot  # noqa: PLC0415 - numpy, which a definition does not need

        return mot.encode(mot.columns(first, len(ids), seed), ids)


DATASET = Mot
