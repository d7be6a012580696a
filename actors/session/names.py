"""Names that are new everywhere: UUIDs of version 7. A simulation puts its own ``make`` here, and gets the same ones again."""

from collections.abc import Callable

from uuid_utils import uuid7


def _uuid7() -> str:
    return str(uuid7())


make: Callable[[], str] = _uuid7


def new_name() -> str:
    """Give a name that nobody else was given."""
    return make()
