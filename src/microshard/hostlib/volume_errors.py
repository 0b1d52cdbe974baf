"""What goes wrong with emulated volumes."""

from __future__ import annotations

from microshard.errors import PlaceError


class VolumeError(PlaceError):
    """An emulated volume cannot be made as planned; it says which, why, and what to do."""
