"""Models are anybody's code: whatever one does, its request ends, and nothing is stored that cannot be read again."""

import asyncio
import gc

import msgspec
import perdure
import pytest
from perdure.actors.agent.responses import storable
from perdure.actors.models import (
    AssistantMessage,
    BlockEnd,
    BlockStart,
    Delta,
    Done,
    Image,
    Start,
    Text,
    Thinking,
    ToolCall,
    Usage,
    UserMessage,
    from_json,
    plain_text,
    text,
    to_json,
)

from ..conversation.support import MODEL, go, history, scene, seen


def cycle():
    knot = {}
    knot["self"] = knot
    return knot


def deep(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Odd:
    """A model whose stream is whatever it is given."""

    name, provider, id, api = "odd/model", "odd", "model", "odd"
    context_window = max_tokens = 1_000

    def __init__(self, stream):
        self._stream = stream

    def stream(self, request):
        return self._stream()

    async def aclose(self):
        pass


def answer(*content, **fields):
    return AssistantMessage(content=list(content) or [text("kept")], api="odd", provider="odd", model="model", **fields)


UNREADABLE = {
    "a null for a count": answer(usage=Usage(input=None)),
    "a count that is no number": answer(usage=Usage(output="many")),
    "no usage": answer(usage=None),
    "an unknown stop reason": answer(stop_reason="tired"),
    "a time that is no number": answer(timestamp=1.5),
    "an error that is none": answer(error="bad"),
    "arguments that are no object": answer(text("kept"), ToolCall(id="a", name="t", arguments=[1])),
    "arguments that are not JSON": answer(text("kept"), ToolCall(id="a", name="t", arguments={"f": print})),
    "arguments without an end": answer(text("kept"), ToolCall(id="a", name="t", arguments=cycle())),
    "arguments too deep to store": answer(text("kept"), ToolCall(id="a", name="t", arguments={"x": deep(500)})),
    "arguments too deep to look at": answer(text("kept"), ToolCall(id="a", name="t", arguments={"x": deep(100_000)})),
    "a number too huge to store": answer(text("kept"), ToolCall(id="a", name="t", arguments={"x": 10**5_000})),
    "a call without a name": answer(text("kept"), ToolCall(id="a", name=None, arguments={})),
    "text that is none": answer(text("kept"), Text(text=None)),
    "thinking that is none": answer(text("kept"), Thinking(thinking=7)),
    "a picture of bytes": answer(text("kept"), Image(data=1, mime_type="x")),
    "a block that is none": answer(text("kept"), "text"),
    "raw usage that is not JSON": answer(usage=Usage(raw={"x": object()})),
}


@pytest.mark.parametrize("message", UNREADABLE.values(), ids=UNREADABLE)
def test_a_final_message_that_could_not_be_read_again_is_an_error_with_what_can_be_kept(message):
    """GE-22: what is stored is readable, and the conversation goes on."""

    async def stream():
        yield Done(message)

    async def main():
        async with scene(models=[Odd(stream)], agent=perdure.Agent(model="odd/model")) as s:
            settled = await s.ask()
            assert (settled.reason, "cannot be stored" in settled.record.detail) == ("model_error", True)
            stored = from_json((await history(s.root))[-1].model[0])
            assert (stored.stop_reason, stored.error.kind, stored.error.retryable) == ("error", "malformed", False)
            assert (plain_text(stored.content), stored.provider, stored.model) == ("kept", "odd", "model")
            assert await s.root.live() == {}
            assert all(isinstance(m, UserMessage) for m in (await s.root.context()).messages)
            await s.root.configure(perdure.Agent(model=MODEL))
            assert (await s.ask("y")).answer.text == "re: y"

    go(main)


@pytest.mark.parametrize("final", [None, "text", {"role": "assistant"}, UserMessage(content="x"), answer().content])
def test_a_final_message_that_is_none_is_an_error(final):
    async def stream():
        yield Done(final)

    async def main():
        async with scene(models=[Odd(stream)], agent=perdure.Agent(model="odd/model")) as s:
            assert (await s.ask()).reason == "model_error"
            assert await s.root.live() == {}

    go(main)


def test_a_message_that_can_be_stored_stays_what_it_is_and_its_text_is_made_valid():
    good = answer(text("x"), ToolCall(id="a", name="t", arguments={"n": [1, 2.5, None]}), usage=Usage(input=3))
    assert storable(good, answer(), Odd(None)) == good
    assert storable(answer(text("a\ud800b")), answer(), Odd(None)).content == [text("a\ufffdb")]


@pytest.mark.parametrize("message", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_made_of_a_message_can_be_stored_and_says_the_same_again(message):
    made = storable(message, answer(), Odd(None))
    assert from_json(msgspec.json.decode(msgspec.json.encode(to_json(made)))) == made


@pytest.mark.parametrize("usage", [Usage(input=None), None, Usage(raw={"x": object()})])
def test_a_partial_that_could_not_be_read_again_is_not_shown(usage):
    """GE-22: nor does it keep the answer from coming."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        free = asyncio.Event()

        async def stream():
            yield Start(answer(usage=usage, stop_reason="pending"))
            yield BlockStart(0, text(""))
            yield Delta(0, "hello")
            await clock.sleep_until(clock.now() + 1_000)
            await free.wait()
            yield BlockEnd(0, text("hello"))
            yield Done(answer(text("hello")))

        async with scene(models=[Odd(stream)], agent=perdure.Agent(model="odd/model"), clock=clock) as s:
            submission = await s.root.submit("x")
            await seen(s.root, lambda v: "generation" in v["docs"]["pi.live"])
            await clock.sleep_until(clock.now() + 2_000)
            assert "message" not in (await s.root.live())["generation"]
            free.set()
            assert (await submission.wait()).answer.text == "hello"

    go(main)


# --- streams that break their contract


def raises_at_once():
    raise RuntimeError("no stream")


def is_none():
    return None


class Bare:
    """An iterator with nothing but what iterating needs."""

    def __init__(self, *events, problem=None):
        self._events = list(events)
        self._problem = problem

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self._events:
            return self._events.pop(0)
        raise self._problem or StopAsyncIteration


class Unclosable(Bare):
    async def aclose(self):
        raise RuntimeError("stuck")


BEGUN = [Start(answer(text(""), stop_reason="pending")), BlockStart(0, text("")), Delta(0, "half")]
STREAMS = {
    "raises at once": (raises_at_once, "no stream", ""),
    "is none": (is_none, "NoneType", ""),
    "ends without an answer": (Bare, "pending", ""),
    "raises in mid-stream": (lambda: Bare(*BEGUN, problem=OSError("gone")), "OSError: gone", "half"),
    "raises and cannot be closed": (lambda: Unclosable(*BEGUN, problem=OSError("gone")), "OSError: gone", "half"),
    "raises what cannot speak": (lambda: Bare(*BEGUN, problem=Mute()), "Mute", "half"),
    "lets a cancellation out": (lambda: Bare(*BEGUN, problem=asyncio.CancelledError()), "CancelledError", "half"),
    "asks to exit": (lambda: Bare(*BEGUN, problem=SystemExit(1)), "SystemExit", "half"),
    "more of no block": (lambda: Bare(Delta(3, "x")), "IndexError", ""),
    "more that is no text": (lambda: Bare(*BEGUN[:2], Delta(0, 5)), "TypeError", ""),
}


@pytest.mark.parametrize(("stream", "detail", "said"), STREAMS.values(), ids=STREAMS)
def test_a_model_that_raises_in_spite_of_its_contract_has_failed_and_leaves_nothing_running(stream, detail, said):
    """GE-22, B143."""

    async def main():
        async with scene(models=[Odd(stream)], agent=perdure.Agent(model="odd/model")) as s:
            await s.ask("warm up")
            gc.collect()
            before = len(asyncio.all_tasks())
            for _ in range(5):
                settled = await s.ask()
                assert (settled.reason, detail in settled.record.detail) == ("model_error", True)
            assert len(asyncio.all_tasks()) <= before
            failed = from_json((await history(s.root))[-1].model[0])
            assert plain_text(failed.content) == said
            assert failed.stop_reason == ("error" if detail != "pending" else "pending")
            assert failed.error is None or failed.error.kind == "unknown"
            assert await s.root.live() == {}
            await s.root.configure(perdure.Agent(model=MODEL))
            assert (await s.ask("y")).answer.text == "re: y"

    go(main)


@pytest.mark.parametrize("kind", [Bare, Unclosable])
def test_a_stream_that_cannot_be_closed_has_answered_all_the_same(kind):
    async def main():
        async with scene(
            models=[Odd(lambda: kind(Done(answer(text("hello")))))], agent=perdure.Agent(model="odd/model")
        ) as s:
            assert (await s.ask()).answer.text == "hello"

    go(main)


def test_a_stream_is_closed_when_its_task_is_aborted():
    async def main():
        started, closed = asyncio.Event(), asyncio.Event()

        class Endless(Bare):
            async def __anext__(self):
                started.set()
                await asyncio.Event().wait()

            async def aclose(self):
                closed.set()

        async with scene(models=[Odd(Endless)], agent=perdure.Agent(model="odd/model")) as s:
            submission = await s.root.submit("x")
            await started.wait()
            await s.root.abort()
            assert closed.is_set()
            assert (await submission.wait()).reason == "aborted"

    go(main)
