"""A conversation whose model makes the calls that it is told to, with the coding tools in a directory."""

from contextlib import asynccontextmanager

import perdure
from perdure.actors.models import ToolResultMessage, UserMessage, from_json, plain_text

from ..conversation.support import history, scene


@asynccontextmanager
async def desk(where, *calls, **options):
    """Open a system with the coding tools; each user message has the model make ``calls``."""
    coding = {name: options.pop(name) for name in ("limits", "bash_timeout_s") if name in options}

    def brain(request):
        return list(calls) if isinstance(request.messages[-1], UserMessage) else "done"

    extension = perdure.coding_tools(where, **coding)
    async with scene(options.pop("brain", brain), extensions=[extension], **options) as s:
        yield s


async def results(conversation):
    """The results in a conversation, in order."""
    messages = [from_json(entry.model[0]) for entry in await history(conversation) if entry.model]
    return [one for one in messages if isinstance(one, ToolResultMessage)]


async def answers(where, *calls, **options):
    """Have calls made; give their results."""
    async with desk(where, *calls, **options) as s:
        await s.ask("go")
        return await results(s.root)


def said(result):
    """What the model reads of a result."""
    return plain_text(result.content)
