"""Random runs of a real system: whatever is asked, aborted, killed, restarted, forked, edited, cut or switched, every request
that a model got is in order on every wire, is what the stored transcript says, and is kept byte for byte by later ones."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import perdure
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.actors.conversation.context import derive
from perdure.actors.models import (
    AssistantMessage,
    Thinking,
    ToolResultMessage,
    UserMessage,
    call,
    plain_text,
    text,
    to_json,
)
from perdure.storage.records import ContextEdit
from perdure.testing import request_problems

from .support import MODEL, go, history, problems, quiet, scene
from .test_every_history import CASES, MODELS, answers, binds, requested

SECOND = "scripted/second"
KINDS = ["ask"] * 4 + ["steer", "reject", "abort", "kill", "restart", "fork", "head", "edit", "switch", "write", "late"]


class Step(NamedTuple):
    """What is done, to which conversation and entry (of those that there are by then), and how long nothing follows."""

    kind: str
    where: int
    what: int
    wait: int


STEPS = st.builds(Step, st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 40), st.sampled_from([0, 3, 30, 200]))


@perdure.tool(replay="safe")
async def look(at: int) -> str:
    """Look at something, for a while."""
    for _ in range(at):
        await asyncio.sleep(0)
    return "seen"


@perdure.tool
async def strike() -> str:
    """Do something that must not be done twice."""
    await asyncio.sleep(0)
    raise ValueError("missed")


def brain(request):
    """Decide by what is really there: think, say nothing, ask for one, two or unknown tools, fail, or answer."""
    last = request.messages[-1]
    choice = (len(request.messages) * 7 + len(plain_text(last.content))) % 9
    if isinstance(last, ToolResultMessage) and choice > 1:
        return "done"
    return {
        0: [text("let me see"), call("look", at=3), call("look", at=40)],
        1: [Thinking(thinking="hm", provider_data={"signature": "mine"}), call("strike")],
        2: [call("nothing"), call("look", "x", at=1), call("look", "x", at=2)],
        3: "",
        4: RuntimeError("out of order"),
        5: [call("look", "functions.look:0", at=9)],
    }.get(choice, "well")


class Walk:
    """One run: a system that may be opened again, and the conversations so far."""

    def __init__(self):
        self.storage = perdure.MemoryStorage()
        self.clock = perdure.VirtualClock(autojump=True)
        self.requests = []

    async def run(self, steps):
        """Take all steps, opening the system again where they say so; gives every transcript in the end."""
        left = list(steps)
        while left:
            async with self.opened() as s:
                await self.steps(s, left)
        async with self.opened() as s:
            return await self.settled(s)

    @asynccontextmanager
    async def opened(self):
        second = perdure.ScriptedModel(brain, name=SECOND, clock=self.clock)
        async with scene(brain, storage=self.storage, tools=[look, strike], models=[second], clock=self.clock) as s:
            self.requests += [s.model.calls, second.calls]
            yield s

    async def steps(self, s, left):
        """Take steps until one wants the system to be opened again."""
        while left and (step := left.pop()).kind != "restart":
            with suppress(perdure.PerdureError):
                await self.step(s, step)
            await quiet(step.wait)

    async def step(self, s, step):
        conversations = (await s.session.conversations()).items
        one = await s.session.conversation(conversations[step.where % len(conversations)].id)
        entries = [entry.id for entry in await history(one)]
        entry = entries[step.what % len(entries)] if entries else None
        match step.kind:
            case "ask" | "steer" | "reject":
                when = {"ask": "follow_up"}.get(step.kind, step.kind)
                await one.submit(["go", "on and on", " ", "…"][step.what % 4], when_busy=when)
            case "abort":
                await one.abort()
            case "kill":
                s.system.kill("session:s")
            case "fork" if entry is not None:
                await one.fork(entry)
            case "switch":
                await one.configure(perdure.Agent(model=[MODEL, SECOND][step.what % 2]))
            case "head" | "edit" | "write" | "late":
                await self.write(one, step.kind, entry)

    async def write(self, one, kind, entry):
        message = to_json(UserMessage(content=kind))
        async with one.commit() as tx:
            if kind == "head":
                await tx.append("head", model=[message], head=entry or "self")
            elif kind == "edit" and entry is not None:
                await tx.append("edit", edits=[ContextEdit(target=entry, action="omit")])
            elif kind == "write":
                await tx.append("write", model=[message])
            else:
                late = ToolResultMessage(tool_call_id="x", tool_name="look", content=[text("late")])
                await tx.append("late", model=[to_json(late)])

    async def settled(self, s):
        """Wait for the end of all work; gives every transcript, and holds that what is kept says what is stored."""
        await s.session.wait_for_idle()
        transcripts = []
        for record in (await s.session.conversations()).items:
            one = await s.session.conversation(record.id)
            entries = await history(one)
            assert await one.context() == derive(entries)
            assert await one.live() == {}
            transcripts.append(entries)
        return transcripts


@settings(derandomize=True, deadline=None, max_examples=20)
@given(steps=st.lists(STEPS, min_size=10, max_size=30))
def test_every_request_of_a_random_run_is_in_order_and_is_kept_by_later_ones(steps):
    """CX-08, CX-10, B055, B089, B094, B095, B119, B140."""

    async def main():
        walk = Walk()
        transcripts = await walk.run(steps)
        contexts = [derive(entries[: at + 1]).messages for entries in transcripts for at in range(len(entries))]
        for request in (one for calls in walk.requests for one in calls):
            assert problems(request.messages) == []
            assert any(request.messages == context for context in contexts)
            for case in CASES.values():
                body = requested(case, request.messages)
                assert request_problems(MODELS[case.model][1], body) == []
                assert "mine" not in json.dumps(body)
        for entries in transcripts:
            hold_prefixes(entries)

    go(main, within=60)


def hold_prefixes(entries):
    """Hold that what was asked before each answer begins what is asked later, until a head or an edit."""
    for at, one in enumerate(entries):
        quiet_until = next((n for n in range(at, len(entries)) if entries[n].head or entries[n].edits), len(entries))
        if quiet_until > at and answers(one):
            before, after, later = (derive(entries[:end]).messages for end in (at, at + 1, quiet_until))
            if len(after) > len(before) and isinstance(after[len(before)], AssistantMessage):
                assert later[: len(before)] == before
            for case in CASES.values():
                bodies = [requested(case, messages) for messages in (before, after, later)]
                if binds(*bodies):
                    sent, kept = (json.dumps(body[case.field]) for body in (bodies[0], bodies[2]))
                    assert kept.startswith(sent[:-1])
