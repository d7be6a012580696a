"""The courier of one session: brings what is in its outbox to other sessions, and takes it out when it has arrived.

For each receiving session one asyncio task hands over the oldest messages, again and again until they are stored there,
and only then commits their removal here. It holds one line at a time, and waits for one receiver at a time, so nobody
waits in a circle and nobody waits for somebody else's receiver. A crash between any two steps repeats the hand-over, which
the receiver notices. Proved by tests/actors/session/test_courier.py.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from itertools import islice

import structlog
from msgspec.structs import replace

from ...storage.records import MessageRecord
from ..runtime import Backoff
from .commit import Commit
from .core import SessionCore
from .directory import at_work, core_of
from .errors import SessionClosed, SessionFailed
from .mail import OutboxDoc, place_backlog, receive_from
from .publication import Publication
from .read import snapshot
from .tx import BaseTx

log = structlog.get_logger("perdure.mail")

BUNDLE = 100
"""How many messages are handed over in one commit."""
BACKOFF = Backoff(first_s=0.05, max_s=30.0)
"""Between attempts to reach a receiver that cannot be opened, or has no room."""


class Courier:
    """Serves the outbox of one incarnation of a session. ``random`` gives numbers in [0, 1) that jitter the backoff."""

    def __init__(self, core: SessionCore, random: Callable[[], float]) -> None:
        self._core = core
        self._random = random
        self._bags: dict[str | None, dict[int, MessageRecord]] = {}
        """What is durably in the outbox and has not arrived, by receiving session and id."""
        self._rounds: dict[str | None, asyncio.Task[None]] = {}
        self._reported: dict[str | None, str] = {}
        """Why mail could not be delivered, as told, by receiving session, until some arrives there."""
        self._outbox: str | None = None
        self._dispose: Callable[[], None] = lambda: None

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        return bool(self._rounds)

    def start(self) -> None:
        """Go on with what the last incarnation left, and with everything that is sent from now on."""
        self._dispose = self._core.subscribe(self._published, self.stop)
        for peer, messages in self._core.mail.outgoing.items():
            self._bags[peer] = dict(messages)
            self._serve(peer)

    def stop(self) -> None:
        """End. What has not arrived is in the outbox."""
        self._dispose()
        for one in self._rounds.values():
            one.cancel()

    def _published(self, publication: Publication) -> None:
        for record in publication.messages:
            if record.status == "dead":
                log.warning(
                    "dead_letter", session=self._core.key, id=record.id, task=record.task_id, reason=record.reason
                )
            elif record.status == "outgoing":
                self._bags.setdefault(record.session, {})[record.id] = record
                self._serve(record.session)

    def _serve(self, peer: str | None) -> None:
        if peer not in self._rounds:
            self._rounds[peer] = asyncio.get_running_loop().create_task(self._round(peer), context=Context())

    async def _round(self, peer: str | None) -> None:
        """Hand over until the bag is empty."""
        at_work.set(True)  # what was sent is no visitor from outside, to be refused while the system drains
        attempt = 0
        try:
            while self._bags.get(peer) and self._core.usable:
                attempt = 0 if await self._attempt(peer, attempt) else attempt + 1
        finally:
            del self._rounds[peer]

    async def _attempt(self, peer: str | None, attempt: int) -> bool:
        """Hand over a bundle; False when that brought nothing, after waiting until it may bring more."""
        bundle = list(islice(self._bags[peer].values(), BUNDLE))
        try:
            outbox = await self._identity()
            receiver = self._core if peer is None else await core_of(self._core.services, peer)
            with _news_of_room(receiver) as room:
                handled = await self._hand_over(receiver, peer, outbox, bundle)
                if handled == 0:
                    await self._pause(room, attempt)
        except Exception as error:  # noqa: BLE001 - whatever a receiver is ill of
            self._report(peer, attempt, error)
            await self._pause(asyncio.Event(), attempt)
            return False
        self._reported.pop(peer, None)
        return handled > 0

    def _report(self, peer: str | None, attempt: int, error: Exception) -> None:
        """Tell why a receiver cannot be reached, once for each reason."""
        if self._core.usable and self._reported.get(peer) != repr(error):
            self._reported[peer] = repr(error)
            expected = isinstance(error, SessionFailed | SessionClosed)
            (log.warning if expected else log.error)(
                "mail_not_delivered", session=self._core.key, receiver=peer, attempt=attempt + 1, error=repr(error)
            )

    async def _pause(self, room: asyncio.Event, attempt: int) -> None:
        timer = self._core.clock.call_later(BACKOFF.delay_s(attempt + 1, self._random()), room.set)
        try:
            await room.wait()
        finally:
            timer.cancel()

    async def _identity(self) -> str:
        """Give the identity of the outbox; empty when nothing was ever sent to another session."""
        if self._outbox is None:
            stored = await snapshot(self._core, OutboxDoc)
            if stored is None:
                return ""
            self._outbox = stored["id"]
        return self._outbox

    async def _hand_over(
        self, receiver: SessionCore, peer: str | None, outbox: str, bundle: list[MessageRecord]
    ) -> int:
        """Store messages at their receiver, then take them out of the outbox. Gives how many."""
        if peer is None:
            handled = await self._place_backlog(bundle)
        elif (arrived := await self._bring(receiver, outbox, bundle)) is None:
            handled = await self._give_up(bundle)
        else:
            handled = arrived
            await self._remove(bundle[:handled])
        for record in bundle[:handled]:
            del self._bags[peer][record.id]
        if not self._bags[peer]:
            del self._bags[peer]
        return handled

    async def _bring(self, receiver: SessionCore, outbox: str, bundle: list[MessageRecord]) -> int | None:
        """Commit messages in the receiving session, durably; None when there is no such session."""
        async with Commit(receiver, lambda: BaseTx(receiver)) as tx:
            if receiver.seq == 0:
                return None
            return await receive_from(tx, self._core.key, outbox, bundle)

    async def _remove(self, arrived: list[MessageRecord]) -> None:
        """Nobody waits for this to be durable: what is forgotten is handed over again, and noticed."""
        if arrived:
            async with Commit(self._core, lambda: BaseTx(self._core), wait=False) as tx:
                for record in arrived:
                    tx.delete_message(record)

    async def _give_up(self, bundle: list[MessageRecord]) -> int:
        async with Commit(self._core, lambda: BaseTx(self._core)) as tx:
            for record in bundle:
                tx.put_message(replace(record, status="dead", reason="unknown_session"))
        return len(bundle)

    async def _place_backlog(self, bundle: list[MessageRecord]) -> int:
        async with Commit(self._core, lambda: BaseTx(self._core)) as tx:
            return await place_backlog(tx, bundle)


@contextmanager
def _news_of_room(receiver: SessionCore) -> Iterator[asyncio.Event]:
    """An event that is set when some message of a session has been received, or the session has ended."""
    room = asyncio.Event()

    def published(publication: Publication) -> None:
        if publication.deleted or not all(record.live for record in publication.messages):
            room.set()

    dispose = receiver.subscribe(published, room.set)
    try:
        yield room
    finally:
        dispose()
