"""What the shipped scenarios share: an agent on a scripted model, and what must hold of work that has ended."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ....storage.records import EntryRecord
from ...agent.registry import Extension
from ...agent.tool import Tool
from ...conversation.choice import Agent
from ...conversation.handles import Conversation
from ...models import (
    AssistantMessage,
    Message,
    Model,
    ModelRequest,
    ScriptedModel,
    ToolResultMessage,
    UserMessage,
    from_json,
    plain_text,
)
from ...runtime import Clock
from ...system import System
from ..scenario import Scenario
from ..stored import Stored, StoredSession

KEY = "a"
INTERRUPTED = "was interrupted and may have partially run"


class AgentScenario(Scenario):
    """One session, whose root conversation is an agent that answers by ``brain``; ``tokens_per_second`` paces it."""

    context_window = 200_000
    tokens_per_second: float | None = None

    def brain(self, request: ModelRequest) -> Any:
        """Answer: a pure function of the request."""
        raise NotImplementedError

    def tools(self) -> Iterable[Tool]:
        """Make the agent's tools."""
        return ()

    def models(self, clock: Clock) -> Iterable[Model]:
        """One model, on the run's clock."""
        yield ScriptedModel(
            self.brain,
            clock=clock,
            tokens_per_second=self.tokens_per_second,
            token_chars=10,
            context_window=self.context_window,
        )

    def extensions(self) -> Iterable[Extension]:
        """One extension with the tools."""
        yield Extension(name="kit", tools=list(self.tools()))

    async def root(self, system: System) -> Conversation:
        """Give the root conversation."""
        return await (await system.session(KEY)).root(agent=Agent(model="scripted/model"))


def asked(request: ModelRequest) -> str:
    """What a user has said last."""
    return next(plain_text(one.content) for one in reversed(request.messages) if isinstance(one, UserMessage))


def told(request: ModelRequest) -> list[str]:
    """The results that have come since a user said something, as texts."""
    results: list[str] = []
    for message in request.messages:
        if isinstance(message, UserMessage):
            results.clear()
        elif isinstance(message, ToolResultMessage):
            results.append(plain_text(message.content))
    return results


def messages(entries: Iterable[EntryRecord]) -> list[Message]:
    """The messages of a transcript."""
    return [from_json(value) for entry in entries for value in entry.model or ()]


def users(session: StoredSession, conversation: int = 1) -> list[str]:
    """What users have said in a conversation, in order."""
    entries = [entry for entry in session.entries[conversation] if entry.kind == "pi.user"]
    return [plain_text(one.content) for one in messages(entries) if isinstance(one, UserMessage)]


def answers(session: StoredSession, conversation: int = 1) -> list[str]:
    """What the model has answered to users in a conversation, in order: its messages without calls."""
    said = (one for one in messages(session.entries[conversation]) if isinstance(one, AssistantMessage))
    return [plain_text(one.content) for one in said if one.stop_reason == "stop"]


def results(session: StoredSession, conversation: int = 1) -> dict[int, ToolResultMessage]:
    """The result messages of a conversation, by the id of their call's task."""
    entries = [entry for entry in session.entries[conversation] if entry.kind == "pi.tool-result"]
    return {
        entry.by_task_id or 0: one
        for entry in entries
        for one in messages([entry])
        if isinstance(one, ToolResultMessage)
    }


def check_done(stored: Stored) -> None:
    """Assert that every task has ended and every submission is done, but for summaries that another one has overtaken."""
    for key, session in stored.items():
        undone = [one for one in session.submissions.values() if one.status != "done" and one.reason != "stale"]
        assert not undone, f"{key}: not done: {undone}"
        for task in session.tasks.values():
            assert not task.live, f"{key}: still alive: {task}"


def check_once(ledger: Iterable[str], results: dict[str, ToolResultMessage]) -> None:
    """Assert that an unsafe effect was done at most once for each call, and once where its result says so.

    ``ledger`` has the key of each effect, ``results`` the result of each call by that key.
    """
    counts = Counter(ledger)
    assert set(counts) <= set(results), f"effects of no call: {set(counts) - set(results)}"
    for key, result in results.items():
        assert counts[key] <= 1, f"{key} was done {counts[key]} times"
        said = plain_text(result.content)
        assert counts[key] == 1 or INTERRUPTED in said, f"{key} was not done, and its result says: {said}"
