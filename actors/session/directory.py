"""How handles find the actor behind an id, whichever incarnation of it is alive."""

from typing import Protocol

from .core import SessionCore


class Directory(Protocol):
    """Gives active sessions."""

    async def core(self, key: str) -> SessionCore:
        """Give the session's current incarnation, activating it, or waiting while its supervisor restarts it.

        Raises SessionClosed once the system closes, SessionFailed when it cannot be brought back.
        """
