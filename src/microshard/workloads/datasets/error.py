"""The error of all data sets, apart from them: whoever plans need not pay for numpy."""

from __future__ import annotations


class DataError(Exception):
    """The data cannot be had: a package is not installed, a file is not there or is malformed. Names both."""
