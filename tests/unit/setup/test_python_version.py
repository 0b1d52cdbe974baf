"""A Python that is too old is turned away in words, not by a syntax error."""

import ast
from pathlib import Path

import pytest
from setup import python_version
from setup.python_version import too_old

SETUP = Path(python_version.__file__).parent


def test_new_enough_is_no_complaint() -> None:
    assert too_old((3, 11), []) == ""
    assert too_old((3, 14), []) == ""


def test_too_old_is_reported_what_was_found_and_what_to_install() -> None:
    message = too_old((3, 9), [])
    assert "Python 3.11 or newer is needed, found 3.9." in message
    assert "apt install python3.12 python3.12-venv" in message
    assert "make PYTHON=python3.12" in message


def test_a_newer_python_on_the_machine_is_pointed_to() -> None:
    assert "make PYTHON=python3.13" in too_old((3, 9), ["python3.13", "python3.11"])


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py", "python_version.py"])
def test_what_an_old_python_meets_first_it_can_parse(name: str) -> None:
    ast.parse((SETUP / name).read_text(encoding="utf-8"), feature_version=(3, 6))
