"""What an application holds of its submissions, and what it learns of them in the end.

Proved by tests/actors/conversation/test_handles.py and test_inbox.py.
"""

from collections.abc import Callable
from typing import cast

import msgspec

from ...storage.records import (
    EntryRecord,
    SubmissionRecord,
)
from ..models import AssistantMessage, answer_text, from_json
from ..session.arguments import whole
from ..session.commit import SessionCommit
from ..session.core import SessionCore
from ..session.directory import core_of, directory
from ..session.environment import Services
from ..session.errors import UnknownRecord
from ..session.read import snapshot
from ..session.waits import refuse_wait_for
from ..task.tx import Tx
from .builtin import LiveDoc
from .errors import Unanswered
from .inbox import (
    Withdrawal,
    withdraw,
)


class Handle:
    """Anything that lives in one session."""

    def __init__(self, services: Services, session: str) -> None:
        self._services = services
        self._session = session

    async def _core(self) -> SessionCore:
        return await core_of(self._services, self._session)

    def _commit(self, make: Callable[[SessionCore], Tx]) -> SessionCommit[Tx]:
        return SessionCommit(directory(self._services), self._session, make)


class Answer(msgspec.Struct, frozen=True):
    """The entry that answered an input, and what it says."""

    entry: EntryRecord
    message: AssistantMessage

    @property
    def text(self) -> str:
        """What the model said, without its thinking and calls."""
        return answer_text(self.message)


class Settled(msgspec.Struct, frozen=True):
    """How a submission ended: ``done`` with an ``answer`` (inputs), or ``unanswered`` with a ``reason``."""

    record: SubmissionRecord
    answer: Answer | None = None

    @property
    def status(self) -> str:
        """Either "done" or "unanswered"."""
        return self.record.status

    @property
    def text(self) -> str:
        """What the model answered. Raises Unanswered."""
        if self.answer is None:
            raise Unanswered(self.reason)
        return self.answer.text

    @property
    def reason(self) -> str | None:
        """Why there is none: no_model, model_error, aborted, budget, reset, stale, faulted, or why its task could not run."""
        return self.record.reason


class Submission(Handle):
    """Something that was submitted to a conversation."""

    def __init__(self, services: Services, session: str, id: int) -> None:
        super().__init__(services, session)
        self.id = whole("a submission's id", id)

    def __repr__(self) -> str:
        return f"Submission({self._session!r}, {self.id})"

    async def status(self) -> SubmissionRecord:
        """Read the committed record. Raises UnknownRecord."""
        core = await self._core()
        record = await core.row(SubmissionRecord, self.id)
        await core.drained()
        if record is None:
            raise UnknownRecord("submission", self.id)
        return record

    async def withdraw(self) -> Withdrawal:
        """Take it back while it is queued ("aborted"); else say why not: "already_placed", "settled", "not_found"."""
        async with self._commit(Tx) as tx:
            return await withdraw(tx, self.id)

    async def wait(self) -> Settled:
        """Wait until it is settled. Cancelling this only ends the waiting.

        Raises SessionFailed when the session dies meanwhile: it comes back by itself, and so may this call. Raises
        WaitCycle in the code of a task, such as a tool, that the answering run waits for.
        """
        core = await self._core()
        await self._refuse_cycle(core)
        record = cast("SubmissionRecord", await core.settled(SubmissionRecord, self.id))
        if record.answer is None:
            return Settled(record)
        entry = await core.row(EntryRecord, record.answer)
        if entry is None:  # deleted since, with its conversation
            raise UnknownRecord("entry", record.answer)
        assert entry.model is not None
        return Settled(record, Answer(entry, cast("AssistantMessage", from_json(entry.model[0]))))

    async def _refuse_cycle(self, core: SessionCore) -> None:
        """Refuse to wait where the run that is under way, which must end first, cannot end before the waiting code."""
        record = await core.row(SubmissionRecord, self.id)
        live = None if record is None or record.settled else await snapshot(core, LiveDoc, record.conversation_id)
        if live and "run" in live:
            refuse_wait_for(core.forest, [live["run"]["taskId"]])
