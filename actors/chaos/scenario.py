"""A scenario: what the explorer runs, crashes and runs again. Users write theirs as the shipped ones are written.

Proved by tests/actors/chaos/test_scenario.py.
"""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from ...storage.records import Json, SubmissionRecord
from ..agent.registry import Extension
from ..conversation.handles import Conversation
from ..conversation.inbox import WhenBusy
from ..conversation.settings import ProgressPolicy, Settings
from ..conversation.submissions import Settled
from ..models import Model
from ..runtime import Clock
from ..system import System
from ..task.run import Run
from .recording import EffectRecorder
from .stored import Stored
from .trace import Answered, Sink, Trace


class Scenario:
    """Work for a system, and how it must end. One object lives as long as its run, over all lives of the process.

    So what it keeps in attributes is the world outside: what a tool has done there, no crash undoes. ``extensions``,
    ``models`` and ``settings`` are asked anew for every life. All of it must be deterministic: no random numbers, no real
    time, no network.
    """

    name: ClassVar[str] = ""
    settle_s: ClassVar[float] = 30.0
    """How long the system is left alone at the end, on the virtual clock, before what is stored is looked at."""
    waits_s: ClassVar[float] = 3_600.0
    """How long the work may take, on the virtual clock."""

    def __init__(self) -> None:
        self.trace: Sink = Trace()
        self.effects = EffectRecorder(self.trace)

    @property
    def settings(self) -> Settings:
        """The settings of the system."""
        return Settings(progress=ProgressPolicy(partial_interval_ms=25, output_interval_ms=25))

    def models(self, clock: Clock) -> Iterable[Model]:
        """Make the models, on the run's clock."""
        return ()

    def extensions(self) -> Iterable[Extension]:
        """Make the extensions. Executions of their tools are effects, which are observed."""
        return ()

    async def run(self, system: System) -> None:
        """Have the work done, and return when it is. Called again in every life, and whenever SessionFailed comes out of it:
        who sends something must send it with a ``request_id``.
        """
        raise NotImplementedError

    def check(self, stored: Stored) -> None:
        """Assert how it must have ended, by what is stored and by what the world has seen."""

    # --- helpers

    async def ask(
        self, conversation: Conversation, content: str, request_id: str, when_busy: WhenBusy = "follow_up"
    ) -> Settled:
        """Submit something and wait for its end; what is heard meanwhile is held against what is stored."""
        submission = await conversation.submit(content, request_id=request_id, when_busy=when_busy)
        self.heard(conversation, request_id, await submission.status())
        settled = await submission.wait()
        self.heard(conversation, request_id, settled.record)
        return settled

    def outside(self, name: str, run: Run[Any]) -> AbstractAsyncContextManager[None]:
        """Mark an external effect in a task's own code: it lasts as long as the block."""
        return self.effects.outside(name, run.session, run.id)

    def heard(
        self, conversation: Conversation, about: str, record: SubmissionRecord | None = None, value: Json = None
    ) -> None:
        """Take note of what a caller was told."""
        self.trace.add(Answered(session=conversation._session, about=about, record=record, value=value))
