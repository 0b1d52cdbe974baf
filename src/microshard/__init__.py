"""microshard: a laboratory for MongoDB micro-sharding experiments."""

from __future__ import annotations

TYPE_CHECKING = False  # for type checkers; the import of typing is most of what a start would otherwise take

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """The version, looked up only when needed: a start that has imported this far answers no Ctrl-C."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version  # noqa: PLC0415 - see above

        return version("microshard")
