"""What an experiment may ask of readers."""

from microshard.model.phases.readers import ReadersPhase


def test_without_writers_the_data_stay_as_they_are() -> None:
    assert not ReadersPhase(engine="readers").writes()
    assert ReadersPhase(engine="readers", writers=2).writes()
