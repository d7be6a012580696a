"""What the tests of compaction share: histories of a known length, and a model that is both agent and summarizer."""

import asyncio

import perdure
from perdure.actors.agent.summaries import ROLE
from perdure.actors.conversation.builtin import AssistantEntry, UserEntry
from perdure.actors.models import AssistantMessage, SystemMessage, UserMessage, error_info, plain_text, text, to_json

SMALL = perdure.CompactionPolicy(reserve_tokens=2_000, background_tokens=1_000, keep_recent_tokens=500)
WINDOW = 10_000
"""With SMALL: blocking above 8,000 tokens, in the background above 7,000."""
TOO_LONG = error_info("overflow", "the prompt is too long")
BUSY = error_info("overloaded", "busy")
SUMMARY = "what was said before"


def words(tokens, begin=""):
    """Text of so many estimated tokens."""
    return begin + "x" * (int(tokens * 3.5) - len(begin))


def summarizes(request):
    """Whether a request is a summarizer's."""
    first = request.messages[0]
    return isinstance(first, SystemMessage) and first.content == ROLE


def both(brain, summary=SUMMARY):
    """A model that answers by ``brain`` and summarizes by ``summary``, an answer or a function of the request."""

    def think(request):
        if summarizes(request):
            return summary(request) if callable(summary) else summary
        return brain(request) if callable(brain) else brain

    return think


async def fill(conversation, *turns):
    """Append turns of so many tokens each, half asked and half answered, numbered from 1."""
    async with conversation.commit() as tx:
        for number, tokens in enumerate(turns, 1):
            asked = UserMessage(content=words(tokens / 2, f"question {number} "))
            await tx.append(UserEntry, model=[to_json(asked)])
            answer = AssistantMessage(content=[text(words(tokens / 2, f"answer {number} "))])
            await tx.append(AssistantEntry, model=[to_json(answer)])


def small(brain, **options):
    """Options of a scene whose model has a window of WINDOW tokens."""
    model = perdure.ScriptedModel(brain, name="scripted/small", context_window=WINDOW, clock=options.get("clock"))
    policy = options.pop("compaction", SMALL)
    settings = perdure.Settings(compaction=policy, **options.pop("settings", {}))
    agent = perdure.Agent(model="scripted/small")
    return {"models": [model], "agent": agent, "settings": settings, **options}


def model_of(scene):
    """The small model of a scene."""
    return scene.system.services.get(perdure.Models).get("scripted/small")


def told(request):
    """The texts of a request's messages."""
    return [plain_text(getattr(message, "content", "")) for message in request.messages]


def heads(entries):
    """The compaction entries of a history."""
    return [entry for entry in entries if entry.kind == "pi.compaction"]


async def compactions(session):
    """All compaction tasks, oldest first."""
    async with session.commit() as tx:
        return (await tx.scan_tasks(perdure.TaskQuery(kind="pi.compaction"), 100)).items


def shown(view):
    """The compactions that a view shows."""
    return view["docs"]["pi.live"].get("compactions", [])


def jumping():
    """A clock that jumps over every wait."""
    return perdure.VirtualClock(autojump=True)


def ext(name, hook):
    """An extension with nothing but a hook."""
    return perdure.Extension(name=name, hooks=perdure.Hooks(before_compact=hook))


class Gate:
    """A summarizer that answers when it is let."""

    def __init__(self):
        self.asked, self.free = asyncio.Event(), asyncio.Event()

    async def __call__(self, request):
        self.asked.set()
        await self.free.wait()
        return SUMMARY
