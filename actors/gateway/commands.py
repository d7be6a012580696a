"""What a client can have done. Every command has a ``requestId``: sent again, it runs once and gives the same receipt.

The receipt is stored by the commit that does it. Proved by tests/actors/gateway/test_commands.py.
"""

from typing import Annotated, Any, Literal

import msgspec

from ... import Agent, Clock, Conversation, InvalidValue, System
from ...models import UserMessage, to_json
from .refusals import Refused

Key = Annotated[str, msgspec.Meta(min_length=1, max_length=512, description="The key of a session.")]
Id = Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]
RequestId = Annotated[
    str, msgspec.Meta(min_length=1, max_length=512, description="Chosen by the client: the same for the same command.")
]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64, description="Who does it, as others read it.")]
Text = Annotated[str, msgspec.Meta(min_length=1)]

Receipt = dict[str, Any]


class Said(msgspec.Struct, frozen=True, kw_only=True, tag="text", tag_field="type", forbid_unknown_fields=True):
    """A block of text."""

    text: str


class Shown(
    msgspec.Struct, frozen=True, kw_only=True, tag="image", tag_field="type", rename="camel", forbid_unknown_fields=True
):
    """A picture, in base64."""

    data: str
    mime_type: str


class Choice(Agent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a conversation runs on: a field left out changes nothing, null clears it."""


class Command(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="type",
    tag=str.lower,
    forbid_unknown_fields=True,
):
    """Base of all commands."""

    session: Key
    request_id: RequestId


class InConversation(Command, frozen=True, kw_only=True):
    """Base of the commands to a conversation."""

    conversation: Id


class Open(Command, frozen=True, kw_only=True):
    """See that a session and its first conversation exist; ``agent`` counts when it did not."""

    agent: Choice | None = None


class Create(Command, frozen=True, kw_only=True):
    """Create a conversation of its own."""

    agent: Choice | None = None


class Fork(InConversation, frozen=True, kw_only=True):
    """Create a conversation that shares the history of this one up to the entry ``at`` (default: its newest)."""

    at: Id | None = None
    agent: Choice | None = None


class Submit(InConversation, frozen=True, kw_only=True):
    """Say something to the model. ``whenBusy``: join the run, start the next one, or be refused."""

    content: Text | list[Said | Shown]
    when_busy: Literal["steer", "follow_up", "reject"] = "follow_up"
    author: Name | None = None


class Write(InConversation, frozen=True, kw_only=True):
    """Append an entry without asking the model, which reads ``text``, if there is any, with its next request."""

    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^(?!pi\.)")]
    data: dict[str, Any] = {}
    text: Text | None = None
    author: Name | None = None


class Withdraw(InConversation, frozen=True, kw_only=True):
    """Take a queued submission back."""

    submission: Id


class Abort(InConversation, frozen=True, kw_only=True):
    """Abort what runs, and withdraw what is queued; ``background`` crosses all boundaries."""

    background: bool = False


class Approve(InConversation, frozen=True, kw_only=True):
    """Let a tool call run with exactly the arguments of this hash."""

    call: Text
    hash: Text


class Deny(InConversation, frozen=True, kw_only=True):
    """Have a tool call answered with an error."""

    call: Text
    hash: Text
    reason: str | None = None


class Configure(InConversation, frozen=True, kw_only=True):
    """Change what a conversation runs on, from its next request on."""

    agent: Choice


class Compact(InConversation, frozen=True, kw_only=True):
    """Have the older part of the context replaced by a summary, which pays attention to what ``instructions`` say."""

    instructions: Text | None = None


class Delete(InConversation, frozen=True, kw_only=True):
    """Delete a conversation and what is owned below it, when everything in them has been aborted and has ended."""


AnyCommand = Open | Create | Fork | Submit | Write | Withdraw | Abort | Approve | Deny | Configure | Compact | Delete
COMMANDS: dict[str, type[Command]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (Open, Create, Fork, Submit, Write, Withdraw, Abort, Approve, Deny, Configure, Compact, Delete)
}
LENGTHY = (Abort, Compact, Delete)
"""Commands whose receipts may take long to come: what they end has to end."""


class Desk:
    """Carries commands out. ``agent`` is what new conversations run on when nobody says otherwise."""

    def __init__(self, system: System, clock: Clock, agent: Agent | None) -> None:
        self._system = system
        self._clock = clock
        self._agent = agent

    async def do(self, command: Command, author: str | None = None) -> Receipt:
        """Carry out a command for whoever is called ``author``. Raises Refused, and whatever perdure does."""
        if isinstance(command, Open):
            session = await self._system.session(command.session)
            return {"conversation": (await session.root(agent=command.agent or self._agent)).id}
        session = await known_session(self._system, command.session)
        if isinstance(command, Create):
            made = await session.create_conversation(agent=command.agent or self._agent, request_id=command.request_id)
            return {"conversation": made.id}
        assert isinstance(command, InConversation)
        if isinstance(command, Delete):  # sent again, it names a conversation that is no more
            await session.delete_conversation(command.conversation, request_id=command.request_id)
            return {}
        return await self._in(await session.conversation(command.conversation), command, author)

    async def _in(self, conversation: Conversation, command: InConversation, author: str | None) -> Receipt:
        once = {"request_id": command.request_id}
        match command:
            case Submit(content=content, when_busy=when_busy):
                said: Any = content if isinstance(content, str) else msgspec.to_builtins(content)
                who = command.author or author
                return {"submission": (await conversation.submit(said, when_busy=when_busy, author=who, **once)).id}
            case Write():
                return {"submission": await self._write(conversation, command, author)}
            case Fork(at=at, agent=agent):
                return {"conversation": (await conversation.fork(at, agent=agent, **once)).id}
            case Withdraw(submission=submission):
                return {"outcome": await conversation.withdraw(submission, **once)}
            case Abort(background=background):
                await conversation.abort(background=background, **once)
            case Approve(call=call, hash=hash):
                await conversation.approve(call, hash, **once)
            case Deny(call=call, hash=hash, reason=reason):
                await conversation.deny(call, hash, reason=reason, **once)
            case Compact(instructions=instructions):
                became = await conversation.compact(instructions, **once)
                return {"status": became.status, "entry": became.entry and became.entry.id, "reason": became.reason}
            case Configure(agent=agent):
                await conversation.configure(agent, **once)
            case _:
                raise InvalidValue(f"there is no command {command!r}")
        return {}

    async def _write(self, conversation: Conversation, command: Write, author: str | None) -> int:
        who = command.author or author
        data = command.data if who is None else command.data | {"author": who}
        said = None if command.text is None else UserMessage(content=command.text, timestamp=self._clock.now())
        model = None if said is None else [to_json(said)]
        written = await conversation.write(command.kind, data or None, model=model, request_id=command.request_id)
        return written.id


async def known_session(system: System, key: str) -> Any:
    """Give a session that is stored: naming one that is not must not bring it into memory. Raises Refused."""
    if not await system.has_session(key):
        raise Refused("unknown_session", "there is no such session; the command `open` makes one", 404)
    return await system.session(key)
