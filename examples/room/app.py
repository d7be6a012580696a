"""A room for several people and one agent: ``perdure serve room.db --app examples.room.app:setup``.

The model is scripted unless there is a name of a real one in ROOM_MODEL ("anthropic/...", "openai/..."; keys as their SDKs
read them). Say "inspect the harbour", "deploy", "ask a colleague", "look at the harbour in two minutes", in another
conversation "what did we decide about the harbour?", or anything else.
"""

import os
import re
from typing import Any

import perdure
from perdure.models import (
    Message,
    ModelRequest,
    SystemMessage,
    Thinking,
    ToolResultMessage,
    UserMessage,
    call,
    current_tools,
    plain_text,
    text,
)

LATER = re.compile(r"(.+) in (\w+) (second|minute|hour)s?\b", re.IGNORECASE)
NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "five": 5, "ten": 10}
SECONDS = {"second": 1, "minute": 60, "hour": 3_600}
PASSAGE = re.compile(r"^(\[conversation \d+, entry \d+\]) user: (.+)$", re.MULTILINE)


@perdure.tool(replay="safe")
async def inspect(ctx: perdure.ToolContext, place: str) -> str:
    """Look at a place, part by part."""
    for part in ("gate", "stairs", "cellar", "roof"):
        ctx.output(f"{part} of {place}: in order\n")
        await ctx.sleep(0.7)
    return f"{place}: four parts, all in order"


@perdure.tool(replay="unsafe", approval="always")
async def deploy(version: str) -> str:
    """Bring a version to everybody. Somebody has to approve it."""
    return f"{version} is out"


def brain(request: ModelRequest) -> Any:
    """Stand in for a model: it calls what an input names, and talks a while."""
    last = _last(request)
    said = plain_text(last.content)
    tools = current_tools(request.messages)
    if any(one.name == "find_passages" for one in tools):
        return search(last, said)
    if isinstance(last, UserMessage):
        called = asked_for(said)
        if called is not None:
            return called
    about = f"The result: {said}" if isinstance(last, ToolResultMessage) else f"You said: {said}"
    return text(
        f"{about}\n\n" + " ".join(f"This is sentence {n} of what I have to say about it." for n in range(1, 13))
    )


def _last(request: ModelRequest) -> Message:
    return next(one for one in reversed(request.messages) if not isinstance(one, SystemMessage))


def asked_for(said: str) -> list[Any] | None:
    """Find the tool that an input asks for."""
    if later := LATER.search(said):
        after_s = NUMBERS.get(later[2].lower(), 1) * SECONDS[later[3].lower()]
        return [text("I shall see to it then."), call("schedule", text=later[1], after_s=after_s, look_up=True)]
    if "what did we" in said.lower():
        return [text("I look for where that was said."), call("search_history", question=said)]
    if "inspect" in said or "look at" in said.lower():
        return [
            Thinking(thinking="Somebody wants to know how a place is."),
            text("I shall have a look."),
            call("inspect", place=re.sub(r"\W+$", "", said).split()[-1]),
        ]
    if "deploy" in said:
        return [text("That needs somebody's word."), call("deploy", version="1.2.3")]
    if "colleague" in said:
        return [text("I hand that over."), call("subagent", task="inspect the lighthouse")]
    return None


def search(last: Message, said: str) -> Any:
    """Play the agent that searches other conversations: look once, and cite what somebody said there."""
    if isinstance(last, UserMessage):
        return call("find_passages", question=said)
    found = next((one for one in PASSAGE.finditer(said) if not one[2].endswith("?")), None)
    return f"It was said: {found[2]} {found[1]}" if found else "Nobody has said anything about that."


def setup() -> dict[str, Any]:
    """Give what ``perdure serve`` and ``perdure chat`` need to open the store."""
    tools = perdure.Extension(name="room", tools=[inspect, deploy, perdure.subagent()])
    named = os.environ.get("ROOM_MODEL")
    models = perdure.models.from_env() if named else [perdure.ScriptedModel(brain, tokens_per_second=40)]
    extensions = [tools, perdure.schedules(), perdure.search_history()]
    return {"models": models, "extensions": extensions, "agent": perdure.Agent(model=named or "scripted/model")}
