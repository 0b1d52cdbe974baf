"""What a run resolved beside the definition itself: versions, hashes and the machine, to tell a second run from it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from microshard.model.base import Model


class LockedMongoDB(Model):
    """A MongoDB a run used."""

    version: str
    """Version of the mongod, for example 6.0.5."""
    mongod_sha256: str | None = None
    """Hash of the mongod's file."""
    embedded: bool = False
    """Whether the mongos was the embedded one."""


class Lock(Model):
    """Written by a run into its experiment.lock.yml. A run of that file says what is not as it was then."""

    microshard: str
    """Version of the tool."""
    definition_sha256: str | None = None
    """Hash of the experiment file the run was started with."""
    mongodb: Annotated[list[LockedMongoDB], Field(max_length=100)] = Field(default=[])
    """The MongoDBs of its points."""
    host: Annotated[dict[str, Any], Field(max_length=1000)] = Field(default={})
    """The machine: CPU, cores, RAM, kernel, system; of several hosts, by name."""
    packages: Annotated[dict[str, str], Field(max_length=1000)] = Field(default={})
    """Versions of the libraries results depend on."""
    images: Annotated[dict[str, str], Field(max_length=1000)] = Field(default={})
    """Machine images (AMI) by group of hosts."""
