"""Which scale a command applies."""

from pathlib import Path

import pytest

from microshard.experiment.load import scale_for

FILES = Path(__file__).parents[3] / "experiments"


@pytest.mark.parametrize(
    ("name", "scale", "place", "chosen", "words"),
    [
        ("query-forms", None, "local", "laptop", "the default of --on local; others by --scale: published, today"),
        ("query-forms", None, "ec2", "today", "the default of --on ec2"),
        ("query-forms", None, "inventories/mine", None, "the file as it is written; others by --scale"),
        ("query-forms", "published", "local", "published", "published (--scale)"),
        ("query-forms", "as-written", "local", None, "as it is written"),
        ("quickstart", None, "local", "laptop", "the default of --on local"),
    ],
)
def test_without_a_scale_the_place_chooses(name: str, scale: str | None, place: str, chosen: str, words: str) -> None:
    found, why = scale_for(FILES / f"{name}.yml", scale, place)
    assert found == chosen
    assert words in why
