"""The data images of a run: which of its points are restored, and what is kept of those that are not."""

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from microshard.errors import PlaceError
from microshard.model.data_images import FOLDER, DataImage, DataImageRecipe, DataImageVariables
from microshard.model.plan import Plan, Point
from microshard.model.result import StepResult
from microshard.plan.data_images import image_name, recipe
from microshard.records import codec
from microshard.records.data_images import MANIFEST, find_image, folder_of, keep_within, remove_image
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.backend import Backend, Binaries


def planned_image(point: Point, binaries: Binaries, *, empty: bool = False) -> str:
    """The name of the image of a point's data, or of its empty cluster; "" where they are neither kept nor restored."""
    policy = point.data_image
    if policy.mode == "never" or (policy.not_empty if empty else policy.refused):
        return ""
    return image_name(_recipe(point, binaries, empty=empty))


def _recipe(point: Point, binaries: Binaries, *, empty: bool = False) -> DataImageRecipe:
    return recipe(point, mongod=binaries.version, mongod_sha256=_digest(binaries), empty=empty)


def _digest(binaries: Binaries) -> str:
    """SHA-256 of the mongod or of its archive; where only the hosts have it, its path and version."""
    return binaries.sha256 or str(binaries.install.get("sha256") or f"{binaries.mongod} {binaries.version}")


def refuse_missing_images(plan: Plan, binaries: Mapping[str, Binaries], runs: Path) -> None:
    """Raise PlaceError for points that may be restored only (`load.image: only`), and have no image."""
    missing = [
        f"{point.id} ({point.label}): {point.data_image.refused or 'there is no data image of it'}"
        for point in plan.points
        if point.data_image.mode == "only" and not _found(runs, planned_image(point, binaries[point.id]))
    ]
    if missing:
        raise PlaceError("load.image: only, but " + "; ".join(missing) + ". A run with load.image: use makes them")


def data_sentences(plan: Plan, binaries: Mapping[str, Binaries], runs: Path) -> Iterator[str]:
    """What becomes of the data of the points: restored, loaded and kept, or only loaded, with the disk it takes."""
    points = [point for point in plan.points if point.data_image.mode != "never"]
    names = {point.id: planned_image(point, binaries[point.id]) for point in points}
    images = {point.id: image for point in points if (image := _found(runs, names[point.id]))}
    if images:
        size = sum(image.bytes for image in images.values()) / 1e9
        yield f"Data restored: {', '.join(images)}; {size:.2f} GB are copied, or shared where the filesystem can."
    if kept := [point for point in points if names[point.id] and point.id not in images]:
        size = sum(point.image_bytes for point in kept) / 1e9
        yield (
            f"Data loaded and kept as data images: {', '.join(point.id for point in kept)}; about {size:.2f} GB stay "
            f"on disk (all images: {plan.images_gb:g} GB at most, load.images_gb)."
        )
    for reason in dict.fromkeys(point.data_image.refused for point in points if point.data_image.refused):
        concerned = ", ".join(point.id for point in points if point.data_image.refused == reason)
        yield f"Data loaded, and not kept: {concerned}, because {reason}."


def _found(runs: Path, name: str) -> DataImage | None:
    return find_image(runs, name) if name else None


class DataImages:
    """The data images that the points of a run are restored from and become."""

    def __init__(self, folder: RunFolder, plan: Plan, binaries: Mapping[str, Binaries], backend: Backend) -> None:
        self.folder = folder
        self.backend = backend
        self.base_port = min((process.port for point in plan.points for process in point.processes), default=0)
        self.on_hosts = str(backend.host_folder(folder).parent.absolute() / FOLDER)
        self.host_bytes: dict[str, int] = {}  # of the image that was kept last
        self.runs = folder.path.parent
        if backend.name == "ec2":  # the hosts are this runner's alone, and the images on them end with them
            self.runs = folder.path
            shutil.rmtree(folder_of(self.runs), ignore_errors=True)
        self.binaries = binaries
        self.restored: dict[str, DataImage] = {}  # point → what its deployment was restored from
        self.refused: set[str] = set()  # names of images that could not be restored
        self.loaded: dict[str, StepResult] = {}  # point → the result of the step that loaded its deployment

    def available(self, point: Point, *, loaded: bool) -> Iterator[DataImage]:
        """The images a point can be started from: that of its data if they are to be `loaded`, then the empty one."""
        for empty in [False, True] if loaded else [True]:
            name = planned_image(point, self.binaries[point.id], empty=empty)
            if name not in self.refused and (image := _found(self.runs, name)):
                yield image

    def to_restore(self, image: DataImage) -> DataImageVariables:
        """What the play is given that restores it. On hosts every part must be of the run that made the image."""
        if not self.backend.remote:
            return DataImageVariables(image.name, self.on_hosts, image.documents)
        (folder_of(self.runs) / image.name / MANIFEST).touch()  # the last use
        return DataImageVariables(image.name, self.on_hosts, image.documents, {"run": image.run})

    def to_load(self, point: Point) -> bool:
        """Whether a point is to be loaded for its image alone, because its measurements change the data."""
        name = planned_image(point, self.binaries[point.id])
        known = point.id in self.loaded or _found(self.runs, name)  # loaded: it did not become an image
        return bool(name) and point.data_image.first and not known

    def to_keep(self, point: Point, *, empty: bool = False) -> DataImageVariables | None:
        """What the play is given that keeps the data of a point, or its empty cluster; None where there is nothing."""
        name = planned_image(point, self.binaries[point.id], empty=empty)
        if not name or point.id in self.restored or (name not in self.refused and find_image(self.runs, name)):
            return None
        loads = [] if empty or point.id not in self.loaded else self.loaded[point.id].phases
        loads = [phase for phase in loads if phase.kind == "load"]
        if not empty and (not loads or any(phase.error or phase.counters.get("errors") for phase in loads)):
            return None
        documents, by_shard = {}, {}
        for phase in loads:
            planned = next(p for p in point.phases if p.name == phase.name)
            counts = phase.storage.documents() if phase.storage else {}
            if counts and "namespace" in planned.parameters:
                documents[str(planned.parameters["namespace"])] = int(sum(counts.values()))
                by_shard = counts
        image = DataImage(
            name=name,
            recipe=_recipe(point, self.binaries[point.id], empty=empty),
            run=self.folder.run_id,
            experiment=self.folder.marker().experiment,
            label=point.label,
            made=time.time(),
            load_seconds=round(sum(phase.seconds for phase in loads), 3),
            documents=documents,
            by_shard=by_shard,
            base_port=self.base_port,
            inventory=self.backend.recorded(self.folder).inventory or "",
        )
        return DataImageVariables(name, self.on_hosts, manifest=codec.encode(image))

    def make_room(self, name: str) -> None:
        """Remove an image that could not be restored, or what an interrupted run has left of it on hosts."""
        if name in self.refused or not find_image(self.runs, name):
            self._remove(folder_of(self.runs) / name)

    def _remove(self, path: Path) -> None:
        self.backend.remove_images([path.name])
        remove_image(path)

    def record(self, kept: DataImageVariables) -> None:
        """Where the image is on hosts: write what this machine has of it, the manifest without files."""
        if self.backend.remote:
            path = folder_of(self.runs) / kept.name
            path.mkdir(parents=True, exist_ok=True)
            write_json(path / MANIFEST, {**kept.manifest, "host_bytes": self.host_bytes})

    def bound(self, most_gb: float) -> list[str]:
        """Remove the images that were not used for longest until those here have at most so many GB; their names."""
        inventory = self.backend.recorded(self.folder).inventory or ""
        return [kept.path.name for kept in keep_within(self.runs, most_gb * 1e9, inventory, self._remove)]
