"""MongoDB versions: those Python packages carry, and what differs between releases."""

from collections.abc import Iterable

# requirements/mongodb.in and requirements/versions: Linux on x86-64.
PACKAGED = ("4.2.6", "4.4.2", "5.0.4", "6.0.5", "6.0.27")
DEFAULT_PACKAGED = "6.0.5"
# client.driver → the oldest release it is run with. PyMongo 4.20: MIN_SUPPORTED_SERVER_VERSION; 3.13 speaks to 2.6 too,
# but hostlib/wire.py, which waits for the servers, speaks OP_MSG only.
OLDEST_MEASURED = {None: (4, 4), "pymongo==3.13": (3, 6)}


def packaged_version(wanted: str, versions: Iterable[str] = PACKAGED) -> str | None:
    """The newest packaged version that a version such as 6.0 or 6.0.5 means; None where no package has it."""
    found = [version for version in versions if f"{version}.".startswith(f"{wanted}.")]
    return found[-1] if found else None
