"""The `mot` data set: generated UK vehicle inspections, the same for every loader, shard count and machine.

`columns` says what is in document number n, `documents` writes it as BSON, `greenness` computes the answer of
the greenness query from the columns alone. The shape follows the public inspection records of the original
experiment (fourteen one-letter fields); vehicles, areas and shares are approximations written for this project.
"""

from microshard.workloads.mot.columns import Columns, columns
from microshard.workloads.mot.documents import AVERAGE_BYTES, encode
from microshard.workloads.mot.greenness import expected_greenness

__all__ = ["AVERAGE_BYTES", "Columns", "columns", "encode", "expected_greenness"]
