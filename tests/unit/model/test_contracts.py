"""docs/contracts.md is made from the types."""

from pathlib import Path

from microshard.model.contracts import MARKER, tables

PAGE = Path(__file__).parents[3] / "docs" / "contracts.md"


def test_the_page_has_the_fields_of_the_types() -> None:
    assert PAGE.read_text(encoding="utf-8").partition(MARKER)[2].strip() == tables().strip()


def test_units_and_meanings_come_from_the_comments_of_the_fields() -> None:
    page = tables()
    assert "| `created` | `float \\| None` | none | epoch seconds |" in page
    assert page.count("### Metric\n") == 1
