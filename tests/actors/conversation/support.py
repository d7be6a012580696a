"""What the tests of these rooms share: a system in a box, entries and messages in short, and a strict judge of contexts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import perdure
from perdure.actors.models import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
    call,
    plain_text,
    text,
    to_json,
    tool_calls,
)
from perdure.storage.faulty import FaultyStorage
from perdure.storage.records import ContextEdit, EntryRecord

MODEL = "scripted/model"
UNFINISHED = ("aborted", "error", "deferred", "pending")


def go(main: Callable[[], Awaitable[Any]], *, within: float = 20.0) -> Any:
    """Run one scenario on a loop of its own; hanging is failing."""

    async def bounded() -> Any:
        async with asyncio.timeout(within):
            return await main()

    return asyncio.run(bounded())


# --- a system in a box


class Faults(FaultyStorage):
    async def next_wake(self, after: int = -1) -> int | None:
        return await self._read(self.inner.next_wake, after)


class Scene:
    """An open system with one scripted model, one session and its root conversation."""

    def __init__(self, system: perdure.System, model: perdure.ScriptedModel, session: Any, root: Any) -> None:
        self.system = system
        self.model = model
        self.session = session
        self.root = root

    async def ask(self, content: Any = "go on", **options: Any) -> perdure.Settled:
        """Submit to the root conversation and wait."""
        return await (await self.root.submit(content, **options)).wait()


def echo(request: Any) -> str:
    """Answer with the text of the newest message."""
    last = request.messages[-1]
    return f"re: {plain_text(last.content)}"


@asynccontextmanager
async def scene(
    brain: Any = echo,
    *,
    storage: Any = None,
    tools: Iterable[perdure.Tool] = (),
    sections: Iterable[perdure.Section] = (),
    extensions: Iterable[perdure.Extension] = (),
    agent: perdure.Agent | None = None,
    key: str = "s",
    tokens_per_second: float | None = None,
    clock: Any = None,
    settings: perdure.Settings | None = None,
    models: Sequence[Any] = (),
) -> AsyncIterator[Scene]:
    """Open a system; an agent on the scripted model is the default."""
    model = perdure.ScriptedModel(brain, clock=clock, tokens_per_second=tokens_per_second)
    kit = perdure.Extension(name="kit", tools=list(tools), sections=list(sections))
    opened = perdure.System.open(
        storage if storage is not None else perdure.MemoryStorage(),
        models=[model, *models],
        extensions=[kit, *extensions],
        clock=clock,
        settings=settings,
    )
    async with opened as system:
        session = await system.session(key)
        root = await session.root(agent=agent or perdure.Agent(model=MODEL))
        yield Scene(system, model, session, root)


async def seen(conversation: Any, condition: Callable[[Any], bool]) -> Any:
    """Wait until a conversation's view meets a condition, and give that view."""
    async with await conversation.watch() as watch:
        if condition(watch.value):
            return watch.value
        async for value, _ in watch:
            if condition(value):
                return value
    raise AssertionError(f"the view ended ({watch.ended}) and had never met the condition: {watch.value}")


async def quiet(turns: int = 30) -> None:
    """Let everything run that can run now."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def history(conversation: Any) -> list[EntryRecord]:
    """All entries of a conversation, oldest first."""
    page = await conversation.entries(limit=1_000, order="ascending")
    return list(page.items)


def kinds(entries: Iterable[EntryRecord]) -> list[str]:
    """The kinds of entries, without their prefix."""
    return [entry.kind.removeprefix("pi.") for entry in entries]


def answering(*answers: Any) -> Callable[[Any], Any]:
    """Make a model that gives these answers, one for each request, the last one again and again."""
    left = list(answers)

    def brain(request: Any) -> Any:
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer(request) if callable(answer) else answer

    return brain


def calling(*calls: Any) -> Callable[[Any], Any]:
    """Make a model that makes these calls whenever a user has spoken, and answers with the results that it got."""

    def brain(request: Any) -> Any:
        return list(calls) if isinstance(request.messages[-1], UserMessage) else " | ".join(results_of(request))

    return brain


def results_of(request: Any) -> list[str]:
    """The texts of the newest round of results."""
    texts: list[str] = []
    for message in reversed(request.messages):
        if isinstance(message, ToolResultMessage):
            texts.insert(0, plain_text(message.content))
        elif not isinstance(message, SystemMessage):
            break
    return texts


# --- histories in short


def entry(id: int, *messages: Message, head: int | None = None, edits: Any = None, kind: str = "x") -> EntryRecord:
    """An entry that contributes these messages."""
    model = [to_json(message) for message in messages] or None
    return EntryRecord(id=id, conversation_id=1, kind=kind, model=model, head=head, edits=edits)


def omit(id: int, target: int) -> EntryRecord:
    """An entry that takes another one out of context."""
    return entry(id, edits=[ContextEdit(target=target, action="omit")])


def replace(id: int, target: int, *messages: Message) -> EntryRecord:
    """An entry that has another one contribute something else."""
    stored = [to_json(message) for message in messages]
    return entry(id, edits=[ContextEdit(target=target, action="replace", messages=stored)])


def user(content: str = "hi") -> UserMessage:
    return UserMessage(content=content)


def said(*content: Any, stop: Any = None) -> AssistantMessage:
    """An answer of these texts and calls; a call is written as a tuple (name, id)."""
    blocks = [call(*one) if isinstance(one, tuple) else text(one) for one in content]
    asks = any(isinstance(one, tuple) for one in content)
    return AssistantMessage(content=blocks, stop_reason=stop or ("toolUse" if asks else "stop"))


def result(id: str, value: str = "ok", name: str = "t") -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=id, tool_name=name, content=[text(value)])


def system(**sections: str | None) -> SystemMessage:
    return SystemMessage(sections=dict(sections))


# --- the judge


def problems(messages: Sequence[Message]) -> list[str]:
    """What a strict provider would find wrong with a context; empty when nothing."""
    found: list[str] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if isinstance(message, ToolResultMessage):
            found.append(f"message {position}: a result that follows no call")
        if not isinstance(message, AssistantMessage):
            continue
        if message.stop_reason in UNFINISHED:
            found.append(f"message {position}: an answer that is {message.stop_reason}")
        asked = [one.id for one in tool_calls(message)]
        given = messages[position : position + len(asked)]
        if [getattr(one, "tool_call_id", None) for one in given] != asked:
            found.append(f"message {position}: calls {asked} are not followed by their results")
        position += len(asked)
    first = next((i for i, one in enumerate(messages) if isinstance(one, SystemMessage)), 0)
    if first and all(isinstance(one, UserMessage) for one in messages[:first]):
        found.append("a system message that only users precede is not first")
    return found
