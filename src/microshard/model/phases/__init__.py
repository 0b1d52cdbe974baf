"""What the experiment file may say about each engine: one module an engine, whose `KEYS` derives from PhaseKeys.

A module added here becomes known to the experiment file, the schema and the reference; workloads/NAME.py executes it.
"""

import importlib
import pkgutil

from microshard.model.phase import PhaseKeys


def engine_names() -> list[str]:
    """The names of all engines: those of the modules of this package."""
    return [module.name for module in pkgutil.iter_modules(__path__)]


def all_keys() -> list[type[PhaseKeys]]:
    """The keys of every engine."""
    return [importlib.import_module(f"{__name__}.{name}").KEYS for name in engine_names()]
