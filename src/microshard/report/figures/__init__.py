"""The pictures of a report: what each shows, drawn as SVG for the page and as PNG for everything else."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from microshard.analysis.report_model import ReportModel
from microshard.report.figures import content, kinds, over_time, parts, search
from microshard.report.figures.content import Content
from microshard.report.format import PageTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 240  # 340 points become 1,133 pixels: sharp on a page, small in a repository

# One picture of a run each, in the order of the page; None where there is no data.
FIRST: dict[str, Callable[[ReportModel], Content | None]] = {
    "search": search.of_search, "speed-up": content.speed_up, "time": content.query_time,
}  # fmt: skip
LAST: dict[str, Callable[[ReportModel], Content | None]] = {
    "cpu": parts.cpu, "roles": parts.roles, "load": content.load_rate, "disk": parts.disk, "order": parts.order,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with everything that belongs to it."""

    name: str  # of the PNG, and prefix of the ids in the SVG
    title: str
    caption: str
    alt: str
    table: PageTable
    svg: str
    png: bytes


def pictures(model: ReportModel, scratch: Path) -> list[Picture]:
    """Every picture this run has data for. matplotlib's own cache is made below `scratch` and removed again."""
    with _config_below(scratch):
        import matplotlib as mpl  # noqa: PLC0415 - slow to import, and it looks for its folder while it is imported

        from microshard.report.figures.style import RC  # noqa: PLC0415

        with mpl.rc_context(RC):
            return [_picture(name, shown) for name, shown in contents(model)]


def contents(model: ReportModel) -> Iterator[tuple[str, Content]]:
    """All pictures there are data for, in the order of the page: results, what belongs to their kind, the machine."""

    def of_the_run(makers: Mapping[str, Callable[[ReportModel], Content | None]]) -> Iterator[tuple[str, Content]]:
        yield from ((name, shown) for name, make in makers.items() if (shown := make(model)) is not None)

    yield from of_the_run(FIRST)
    for of_phases in (over_time.series, kinds.of_phases, content.other_phases, over_time.windows):
        yield from of_phases(model)
    yield from of_the_run(LAST)


def _picture(name: str, shown: Content) -> Picture:
    from microshard.report.figures.svg import for_page  # noqa: PLC0415

    figure, heading = shown.draw(shown.title)
    page = for_page(_save(figure, "svg").decode("utf-8"), name, shown.alt, heading)
    return Picture(name, shown.title, shown.caption, shown.alt, shown.table, page, _save(figure, "png"))


def _save(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    # no date and no version in the file: the same run gives the same bytes
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    figure.savefig(buffer, format=kind, dpi=PNG_DPI if kind == "png" else 72, metadata=metadata)
    return buffer.getvalue()


@contextmanager
def _config_below(scratch: Path) -> Iterator[None]:
    """matplotlib's configuration and font cache below the run instead of the user's home, removed afterwards."""
    if "MPLCONFIGDIR" in os.environ:
        yield
        return
    scratch.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=".matplotlib-", dir=scratch)
    os.environ["MPLCONFIGDIR"] = folder
    try:
        yield
    finally:
        del os.environ["MPLCONFIGDIR"]
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["Picture", "contents", "pictures"]
