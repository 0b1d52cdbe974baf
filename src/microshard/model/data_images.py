"""Data images: the data folders of a loaded point, kept to be restored instead of loading again.

`manifest.json` of an image says of what its data were made and what every file must be.
"""

from dataclasses import dataclass, field
from typing import Any

from microshard.model import OPTIONAL
from microshard.model.plan import PlannedCollection, PlannedPhase, PlannedReplicaSet, PlannedZone

IMAGE_FORMAT = 2  # of images; one of another format has another name, so it is never restored
FOLDER = "images"  # of all data images, beside the folders of runs


@dataclass(frozen=True, slots=True)
class RecipeProcess:
    """A process that bears data."""

    name: str
    role: str
    host: str
    replica_set: str | None
    cache_mib: float | None  # decides how the files are laid out
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DataImageRecipe:
    """Everything that decides the content of an image but addresses and ports, which are rewritten."""

    format: int
    microshard: str  # version of the tool, whose engines make the data
    mongod: str  # version
    mongod_sha256: str  # of its archive, or its path and version, where only the hosts have it
    topology: str
    processes: tuple[RecipeProcess, ...]
    replica_sets: tuple[PlannedReplicaSet, ...]  # without endpoints
    collections: tuple[PlannedCollection, ...]
    zones: tuple[PlannedZone, ...]
    balancer: dict[str, Any]
    load: tuple[PlannedPhase, ...]  # with data set, seed and all parameters


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A file of an image, below `data/`."""

    path: str  # PROCESS/path in its dbPath
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DataImage:
    """manifest.json of an image, written last."""

    name: str  # digest of the recipe
    recipe: DataImageRecipe
    run: str  # that loaded the data
    experiment: str
    label: str  # of the point
    made: float  # epoch seconds
    load_seconds: float  # what loading took then
    documents: dict[str, int]  # namespace → documents, as the load counted them
    by_shard: dict[str, float]  # shard → documents
    files: tuple[ImageFile, ...] = ()
    endpoints: dict[str, str] = field(default_factory=dict)  # process → address:port in the data
    base_port: int = 0  # of the run that made it
    inventory: str = ""  # of the hosts the data lie on; "": they are in this folder
    host_bytes: dict[str, int] = field(default_factory=dict)  # host → what it has of the image
    image_format: int = IMAGE_FORMAT

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.bytes for file in self.files) + sum(self.host_bytes.values())


@dataclass(frozen=True, slots=True)
class DataImageVariables:
    """`microshard_data_image` of vars.json: the image that a play restores or keeps."""

    name: str
    folder: str  # of all images, on the hosts
    documents: dict[str, int] = field(default_factory=dict)  # namespace → count, checked after a restore
    manifest: dict[str, Any] = field(default_factory=dict, metadata=OPTIONAL)  # to keep: without files; restored: `run`
    state: str = field(default="restored", metadata=OPTIONAL)  # kept or copied, for an image to keep
