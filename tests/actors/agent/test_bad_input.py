"""Must show 7 of issue 2: bad input is an error for whoever gave it, and the session goes on."""

import asyncio
from typing import Annotated

import perdure
import pydantic
import pytest
from perdure.actors.conversation.handles import Conversation
from perdure.actors.models import (
    Image,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    call,
    plain_text,
    text,
)

from ..conversation.support import go, history, kinds, problems, scene


def picky(value):
    raise RecursionError("too picky")


class Circle:
    def __str__(self):
        raise RuntimeError("round and round")


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def endless():
    while True:
        yield 1


def cycle():
    knot = {}
    knot["self"] = knot
    return knot


def deep(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def raising(problem):
    def raise_it():
        raise problem

    return raise_it


RETURNS = {
    "a lone surrogate": (lambda: "a\ud800b", "a\ufffdb"),
    "a lone surrogate in a list": (lambda: ["\udfff"], '["\ufffd"]'),
    "the text of an escape": (lambda: "\\ud800", "\\ud800"),
    "5 MB of text": (lambda: "x" * 5_000_000, "Output truncated to its beginning"),
    "5 MB of lines": (lambda: "line\n" * 1_000_000, "998,000 lines"),
    "5 MB of JSON": (lambda: ["x" * 100] * 50_000, "Output truncated to its beginning"),
    "a set": (lambda: {1}, "[1]"),
    "an object": (Circle, "Tool bad failed: TypeError"),
    "a class": (lambda: Circle, "Tool bad failed"),
    "NaN": (lambda: float("nan"), "Tool bad failed"),
    "infinity in a list": (lambda: [float("inf")], "Tool bad failed"),
    "a generator": (endless, "Tool bad failed: TypeError"),
    "a coroutine function": (lambda: asyncio.sleep, "Tool bad failed: TypeError"),
    "bytes": (lambda: b"raw \xff", "raw \ufffd"),
    "a cycle": (cycle, "Tool bad failed"),
    "deep nesting": (lambda: deep(100_000), "Tool bad failed"),
    "keys of other types": (lambda: {(1, 2): 3}, "Tool bad failed"),
    "a large number": (lambda: 2**62, str(2**62)),
    "a number too huge to store": (lambda: 10**5_000, "Tool bad failed"),
    "None": (lambda: None, "(no output)"),
    "nothing": (lambda: "", "(no output)"),
    "a blank": (lambda: " ", "(no output)"),
    "control characters only": (lambda: "\x00\x1b", "(no output)"),
    "an empty list": (list, "[]"),
    "an empty dict": (dict, "{}"),
    "content that is none": (lambda: perdure.ToolResult(content=5), "Tool bad failed"),
    "no blocks": (lambda: perdure.ToolResult(content=[]), "(no output)"),
    "a block that is none": (lambda: perdure.ToolResult(content=["x"]), "Tool bad failed"),
    "text that is none": (lambda: perdure.ToolResult(content=[text(None)]), "Tool bad failed"),
    "an image that is none": (lambda: perdure.ToolResult(content=[Image(data=1, mime_type="x")]), "Tool bad failed"),
    "a flag that is none": (lambda: perdure.ToolResult(content="x", is_error="maybe"), "Tool bad failed"),
    "details without JSON": (lambda: perdure.ToolResult(content="x", details=object()), "Tool bad failed"),
    "huge details": (lambda: perdure.ToolResult(content="x", details=10**5_000), "Tool bad failed"),
    "a diagnostic that is none": (lambda: perdure.ToolResult(content="x", diagnostics=["oops"]), "Tool bad failed"),
}

RAISES = {
    "an exception without words": (Exception(""), "Tool bad failed: Exception"),
    "an exception that cannot speak": (Mute(), "Tool bad failed: Mute"),
    "an exception with half a pair": (ValueError("\ud800"), "Tool bad failed: ValueError: \ufffd"),
    "an exception of 5 MB": (ValueError("y" * 5_000_000), "Tool bad failed: ValueError: yyy"),
    "SystemExit": (SystemExit(1), "Tool bad failed: SystemExit: 1"),
    "KeyboardInterrupt": (KeyboardInterrupt(), "Tool bad failed: KeyboardInterrupt"),
    "CancelledError": (asyncio.CancelledError(), "Tool bad failed: CancelledError"),
    "StopIteration": (StopIteration("x"), "Tool bad failed: RuntimeError"),
    "StopAsyncIteration": (StopAsyncIteration(), "Tool bad failed"),
    "an error of this library": (perdure.UnknownRecord("conversation", 9), "conversation 9 does not exist"),
    "a group": (BaseExceptionGroup("two", [SystemExit(1), KeyError("k")]), "Tool bad failed: BaseExceptionGroup"),
}


def once(*calls):
    """A model that makes these calls at first, and then says what it was told, or answers what it was asked."""

    def brain(request):
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            return list(calls) if len(brain.requests) == 0 and not brain.requests.append(1) else f"yes, {last.content}"
        return " | ".join(plain_text(m.content) for m in request.messages if isinstance(m, ToolResultMessage))

    brain.requests = []
    return brain


async def assert_goes_on(s):
    """Nothing is lost, every request was valid, and a follow-up question is answered."""
    assert (await s.ask("are you there?")).answer.text == "yes, are you there?"
    assert await s.root.live() == {}
    assert all(problems(request.messages) == [] for request in s.model.calls)
    results = [m for r in s.model.calls for m in r.messages if isinstance(m, ToolResultMessage)]
    assert all(plain_text(result.content).strip() for result in results)


def bad_tool(function, *, in_thread):
    def sync():
        return function()

    async def on_loop():
        return function()

    return perdure.Tool(sync if in_thread else on_loop, name="bad", description="Goes wrong.")


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize(("function", "told"), RETURNS.values(), ids=RETURNS)
def test_whatever_a_tool_returns_the_model_gets_a_well_formed_result(function, told, in_thread):
    """B104, B106."""

    async def main():
        async with scene(once(call("bad")), tools=[bad_tool(function, in_thread=in_thread)]) as s:
            answer = (await s.ask()).answer.text
            assert told in answer
            assert len(answer) < 60_000
            assert kinds(await history(s.root)).count("tool-result") == 1
            await assert_goes_on(s)

    go(main)


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize(("problem", "told"), RAISES.values(), ids=RAISES)
def test_whatever_a_tool_raises_the_model_is_told(problem, told, in_thread):
    """B032, B106."""

    async def main():
        async with scene(once(call("bad")), tools=[bad_tool(raising(problem), in_thread=in_thread)]) as s:
            answer = (await s.ask()).answer.text
            assert told in answer
            assert len(answer) < 10_000
            await assert_goes_on(s)

    go(main)


@perdure.tool
async def typed(count: int, odd: Annotated[int, pydantic.AfterValidator(picky)] = 0) -> str:
    """Count."""
    return f"counted {count}"


ARGUMENTS = {
    "of a wrong type": (call("typed", count="many"), "count: Input should be a valid integer"),
    "missing": (call("typed"), "count: Field required"),
    "unknown": (call("typed", count=1, colour="red"), "colour: Extra inputs are not permitted"),
    "that a validator cannot take": (call("typed", count=1, odd=3), "RecursionError: too picky"),
    "many and wrong": (call("typed", count=["x"] * 5_000), "count"),
    "cut off": (ToolCall(id="", name="typed", arguments={}, arguments_error="cut off after 7 characters"), "cut off"),
    "of a tool that is not there": (call("lost", count=1), "Tool lost is not available"),
    "of a tool without a name": (call("", count=1), "not available"),
    "of a tool with an odd name": (call("a b/c\u00e4", count=1), "not available"),
}


@pytest.mark.parametrize(("bad", "told"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_call_that_cannot_run_is_answered_with_the_reason_and_its_sibling_runs(bad, told):
    """TO-09, TO-10, B109, B110."""

    async def main():
        async with scene(once(bad, call("typed", count="42")), tools=[typed]) as s:
            refused, ran = (await s.ask()).answer.text.split(" | ")
            assert told in refused
            assert len(refused) < 10_000
            assert ran == "counted 42"
            await assert_goes_on(s)

    go(main)


def test_a_conversation_that_does_not_exist_is_refused():
    async def main():
        async with scene(once()) as s:
            s.model._script.requests.append(1)
            for use in ("submit", "abort", "context", "watch", "entries", "wait_for_idle"):
                lost = Conversation(s.system.services, "s", 404)
                with pytest.raises(perdure.UnknownRecord):
                    await (lost.submit("x") if use == "submit" else getattr(lost, use)())
            await assert_goes_on(s)

    go(main)


@pytest.mark.parametrize("busy", [False, True])
def test_a_submission_over_the_size_limit_is_refused_whatever_the_conversation_does(busy):
    async def main():
        started, free = asyncio.Event(), asyncio.Event()

        @perdure.tool(name="bad")
        async def slow() -> str:
            """Be slow."""
            started.set()
            await free.wait()
            return "slow"

        async with scene(once(call("bad")), tools=[slow]) as s:
            submission = await s.root.submit("x")
            if busy:
                await started.wait()
            with pytest.raises(perdure.SubmissionTooLarge):
                await s.root.submit("x" * 1_048_577, request_id="r")
            with pytest.raises(perdure.SubmissionTooLarge):
                await s.root.submit([text("x" * 600_000), text("y" * 600_000)], when_busy="steer")
            free.set()
            assert (await submission.wait()).status == "done"
            assert kinds(await history(s.root)).count("user") == 1
            await assert_goes_on(s)

    go(main)
