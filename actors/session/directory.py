"""How handles find the actor behind an id, whichever incarnation of it is alive."""

from contextvars import ContextVar
from typing import Protocol

from .core import SessionCore
from .environment import Services

at_work: ContextVar[bool] = ContextVar("perdure_at_work", default=False)
"""Set in the code of tasks: a system that drains refuses whoever comes from outside, not them."""


class Directory(Protocol):
    """Gives active sessions."""

    async def core(self, key: str) -> SessionCore:
        """Give the session's current incarnation, activating it, or waiting while its supervisor restarts it.

        Raises SessionClosed once the system closes, SessionFailed when it cannot be brought back.
        """


async def core_of(services: Services, key: str) -> SessionCore:
    """Give the current incarnation of the session of a key. Raises as ``Directory.core`` does."""
    return await directory(services).core(key)


def directory(services: Services) -> Directory:
    """Give the system's directory."""
    return services.get(Directory)  # type: ignore[type-abstract]
