"""Storage as one session sees it: a read that fails through no fault of its question ends the session's life.

Code that goes on without what it asked for would decide by less than what is stored, and its decision would last. So the
session dies, and comes back by reading everything anew; a question that storage refuses fails only its asker.
Proved by tests/chaos/test_failing_storage.py.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from ...storage.contract import Page, Storage
from ...storage.errors import StorageError, StorageRejected
from ...storage.records import ConversationRecord


class Reads:
    """Asks storage, inside of ``use``.

    ``fail(error)`` ends the session's life and gives what is to be raised instead. ``check()`` raises what has ended it:
    what storage says after that is about another incarnation, or about a session that is deleted.
    """

    def __init__(
        self,
        storage: Storage,
        use: AbstractContextManager[None],
        fail: Callable[[StorageError], Exception],
        check: Callable[[], None],
    ) -> None:
        self._storage = storage
        self._use = use
        self._fail = fail
        self._check = check

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """Make the method of this name, at its first use."""
        query = getattr(self._storage, name)

        async def ask(*args: Any, **kwargs: Any) -> Any:
            try:
                with self._use:
                    answer = await query(*args, **kwargs)
            except StorageRejected:
                self._check()
                raise
            except StorageError as error:
                raise self._fail(error) from error
            self._check()
            return answer

        setattr(self, name, ask)
        return ask


def existing(page: Page[ConversationRecord]) -> Page[ConversationRecord]:
    """Leave out the conversations of a page that are deleted, and stored for their forks only."""
    return Page([record for record in page.items if not record.deleted], page.next)
