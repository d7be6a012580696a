"""A room for several people and one agent: ``perdure serve room.db --app examples.room.app:setup``.

The model is scripted unless there is a name of a real one in ROOM_MODEL ("anthropic/...", "openai/..."; keys as their SDKs
read them). Say "inspect the harbour", "deploy", "ask a colleague", or anything else.
"""

import os
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
    plain_text,
    text,
)


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


def _last(request: ModelRequest) -> Message:
    return next(one for one in reversed(request.messages) if not isinstance(one, SystemMessage))


def brain(request: ModelRequest) -> Any:
    """Stand in for a model: it calls what an input names, and talks a while."""
    last = _last(request)
    said = plain_text(last.content)
    if isinstance(last, UserMessage):
        if "inspect" in said:
            return [
                Thinking(thinking="Somebody wants to know how a place is."),
                text("I shall have a look."),
                call("inspect", place=said.split()[-1]),
            ]
        if "deploy" in said:
            return [text("That needs somebody's word."), call("deploy", version="1.2.3")]
        if "colleague" in said:
            return [text("I hand that over."), call("subagent", task="inspect the lighthouse")]
    about = f"The result: {said}" if isinstance(last, ToolResultMessage) else f"You said: {said}"
    return text(
        f"{about}\n\n" + " ".join(f"This is sentence {n} of what I have to say about it." for n in range(1, 13))
    )


def setup() -> dict[str, Any]:
    """Give what ``perdure serve`` and ``perdure chat`` need to open the store."""
    tools = perdure.Extension(name="room", tools=[inspect, deploy, perdure.subagent()])
    named = os.environ.get("ROOM_MODEL")
    models = perdure.models.from_env() if named else [perdure.ScriptedModel(brain, tokens_per_second=40)]
    return {"models": models, "extensions": [tools], "agent": perdure.Agent(model=named or "scripted/model")}
