"""The names of scenarios on a command line: that of a shipped one, or "file.py:Class".

Proved by tests/actors/chaos/test_commands.py.
"""

import importlib.util
import inspect
import os
import sys
from pathlib import Path

from .scenario import Scenario
from .scenarios import SHIPPED


def reference(scenario: type[Scenario]) -> str:
    """Name a scenario so that ``find`` finds it."""
    if SHIPPED.get(scenario.name) is scenario:
        return scenario.name
    return f"{os.path.relpath(inspect.getfile(scenario))}:{scenario.__qualname__}"


def find(name: str) -> type[Scenario]:
    """Give the scenario of a name. Raises LookupError."""
    if name in SHIPPED:
        return SHIPPED[name]
    file, _, qualname = name.rpartition(":")
    if not Path(file).is_file():
        raise LookupError(f"no scenario is called {name!r}; shipped ones: {', '.join(SHIPPED)}; others: file.py:Class")
    found = _load(Path(file))
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, Scenario):
        return found
    raise LookupError(f"{file} has no scenario called {qualname!r}")


def _load(file: Path) -> object:
    spec = importlib.util.spec_from_file_location(f"perdure_scenarios_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
