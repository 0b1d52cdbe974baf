from pydantic import BaseModel

from microshard.experiment.shape import descriptions


class Parent(BaseModel):
    """Not of a field."""

    both: int = 0
    """What the parent
    says."""
    kept: int = 0
    """Kept."""


class Child(Parent):
    both: int = 1
    """What the child says."""
    silent: int = 0
    own: int = 0
    """Its own."""

    def method(self) -> None:
        """Not of a field either."""


def test_the_docstring_below_a_field_is_its_own_and_that_of_the_youngest_class() -> None:
    assert descriptions(Parent) == {"both": "What the parent says.", "kept": "Kept."}
    assert descriptions(Child) == {"both": "What the child says.", "kept": "Kept.", "own": "Its own."}
