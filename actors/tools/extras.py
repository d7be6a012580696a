"""Optional parts: what they need, and how to get it. Proved by tests/actors/tools/test_extras.py."""

from importlib.util import find_spec

from ...chord import PerdureError


class MissingExtra(PerdureError, ImportError):
    """A part of perdure was used whose packages are not installed. Nothing was started.

    ``extra`` names what to install: ``pip install 'perdure[<extra>]'``.
    """

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which the extra {extra!r} brings: pip install 'perdure[{extra}]'"
        )
        self.extra = extra


def require(extra: str, package: str) -> None:
    """See that an extra is there, without importing it. Raises MissingExtra."""
    if find_spec(package) is None:
        raise MissingExtra(extra, package)
