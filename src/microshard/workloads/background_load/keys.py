"""What the experiment file may say about such a load."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from microshard.model.base import Model

WriteConcern = dict[Literal["w", "j", "wtimeout"], int | bool | str]


class Traffic(Model):
    """Inserts in batches and reads by `_id`, by several threads, until so many documents are in or it is ended."""

    threads: Annotated[int, Field(ge=1, le=1024)] = 4
    """Clients, each with one operation on its way."""
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes the threads are spread over; one uses about one core of the client host at most."""
    batch_size: Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"unit": "documents"})] = 100
    """Documents of an insert."""
    document_bytes: Annotated[int, Field(ge=160, le=1_000_000, json_schema_extra={"unit": "bytes"})] = 1000
    """BSON size of a document, within a few bytes."""
    compressible: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of a document's padding that repeats itself; the rest is random."""
    reads: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the operations that read one document by its `_id`."""
    keys: Literal["random", "ascending"] = "random"
    """Order of the `_id`s: scattered over the whole key range, or each above the last one."""
    documents_per_second: Annotated[float, Field(gt=0, json_schema_extra={"unit": "documents/s"})] | None = None
    """Upper limit of the inserts of all threads; null inserts as fast as the servers answer."""
    documents: Annotated[int, Field(ge=1, le=10_000_000_000)] | None = None
    """The load ends when so many are inserted; null goes on until what it runs beside has ended."""
    write_concern: WriteConcern = Field(default={"w": 1})
    """Write concern of the inserts."""

    def work(self) -> dict[str, Any]:
        """The keys as a worker takes them."""
        return self.model_dump(mode="json")
