"""mot: generated vehicle inspections (microshard.workloads.mot)."""

from __future__ import annotations

from microshard.model import datasets
from microshard.workloads import mot
from microshard.workloads.datasets.base import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints


class Mot(Dataset[datasets.Mot]):
    """The inspections of the published analytics experiment, fourteen one-letter fields."""

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """As microshard.workloads.mot writes them."""
        return mot.encode(mot.columns(first, len(ids), seed), ids)


DATASET = Mot
