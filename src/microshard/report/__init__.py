"""The report of a run: a model, a table for the terminal, pictures, one self-contained page, and data files.

`build` reads a run's folder into a `ReportModel`; `write` puts report.html, the pictures, figures.csv and summary.json
into its `report/`. Definitions of all figures: docs/report.md.
"""

from __future__ import annotations

import errno
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from microshard.errors import RunFolderError

if TYPE_CHECKING:
    from microshard.analysis.report_model import ReportModel


class NotWrittenError(RunFolderError):
    """The report cannot be written; what was measured is there all the same."""


def build(run_folder: Path) -> ReportModel:
    """The report of a run as it is now: complete, partly failed, or still going.

    Raises RunFolderError when the folder is not a run of ours; nothing else that is missing or broken raises.
    """
    from microshard.report.assemble import build as assemble  # noqa: PLC0415 - the command line starts without numpy

    return assemble(run_folder)


def write(run_folder: Path) -> Path:
    """Write all files of the report, each atomically, and return the path of report.html.

    Raises RunFolderError when the folder is not a run of ours, NotWrittenError when there is no room or no right.
    """
    from microshard.records.run_folder import DiskError  # noqa: PLC0415
    from microshard.report.output import write_all  # noqa: PLC0415 - the command line starts without matplotlib

    model = build(run_folder)
    try:
        return write_all(Path(run_folder), model)
    except (OSError, DiskError) as error:
        cause = error if isinstance(error, OSError) else error.error
        advice = "Make room" if cause.errno in {errno.ENOSPC, errno.EDQUOT} else "Make the folder writable"
        raise NotWrittenError(
            f"{run_folder / 'report'}: the report cannot be written: {cause.strerror or cause}. "
            f"{advice}; microshard report {shlex.quote(str(run_folder))} writes it, of all that was measured."
        ) from error


__all__ = ["NotWrittenError", "build", "write"]
