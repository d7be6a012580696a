"""Taking in a module file that has changed, while everything runs. For development.

Proved by tests/actors/agent/test_reload.py.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

from ...chord import PerdureError
from .registry import Extension, Registry
from .responses import said


class ReloadFailed(PerdureError):
    """The changed file cannot be loaded, or what it defines cannot be installed. The old code stays, module included."""


def reload(registry: Registry, module: ModuleType) -> list[str]:
    """Load a module's file again, and put the extensions that it defines in place of those it defined before.

    Extensions are the module's variables of that type. Those installed before that the file no longer defines are
    uninstalled; running work keeps the code that it took. Gives the names of what is installed now. Raises ReloadFailed.
    """
    fresh = _load(module)
    now = _extensions(fresh)
    gone = {one.name for one in _extensions(module)} - {one.name for one in now}
    try:
        registry.exchange([one.name for one in registry.installed() if one.name in gone], now)
    except PerdureError as error:
        raise ReloadFailed(f"{module.__name__} cannot be installed: {error}") from error
    for name in [name for name in vars(module) if name not in vars(fresh)]:
        delattr(module, name)
    vars(module).update(vars(fresh))
    return [one.name for one in now]


def _load(module: ModuleType) -> ModuleType:
    """Run the file in a new module, so that a failure leaves the old one as it is."""
    spec = module.__spec__
    if spec is None or spec.loader is None or spec.origin is None:
        raise ReloadFailed(f"{module.__name__} has no file")
    fresh = importlib.util.module_from_spec(spec)
    try:
        source = Path(spec.origin).read_text(encoding="utf-8")  # cached bytecode tells files apart by the second only
        exec(compile(source, spec.origin, "exec"), vars(fresh))  # noqa: S102
    except Exception as error:
        raise ReloadFailed(f"{spec.origin} cannot be loaded: {said(error)}") from error
    return fresh


def _extensions(module: ModuleType) -> list[Extension]:
    return [value for value in vars(module).values() if isinstance(value, Extension)]
