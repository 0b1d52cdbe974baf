"""The fixtures of the experiment file's own tests: models are tested through files."""

from tests.unit.experiment.conftest import lab

__all__ = ["lab"]
