import asyncio
import functools
import ssl
from contextlib import aclosing

import pytest
from perdure.actors.models import Done, ModelRequest, Partial, UserMessage, to_json


class JumpingClock:
    """Stands still until somebody sleeps, then is where they want it to be."""

    def __init__(self, at=1_000_000):
        self.at = at
        self.slept = []

    def now(self):
        return self.at

    async def sleep_until(self, at, /):
        self.slept.append(at)
        self.at = max(self.at, at)
        await asyncio.sleep(0)


@pytest.fixture
def clock():
    return JumpingClock()


async def collect(model, request=None):
    """All events of one answer, checked: the order of events.py, and deltas that add up to the blocks."""
    partial, events = Partial(), []
    async with aclosing(model.stream(request or asking("Hi"))) as stream:
        async for event in stream:
            events.append(event)
            partial.feed(event)
    assert [type(event) for event in events].index(Done) == len(events) - 1
    assert to_json(partial.message()) == to_json(events[-1].message)
    return events


def asking(*contents, **options):
    return ModelRequest(messages=[UserMessage(content=content) for content in contents], **options)


@pytest.fixture
def ask():
    """Collects the events of one answer and returns (events, final message)."""

    async def ask(model, request=None):
        events = await collect(model, request)
        await model.aclose()
        return events, events[-1].message

    return ask


@pytest.fixture(autouse=True, scope="session")
def one_certificate_store():
    """Every client reads the machine's certificates, 50 ms each time; nothing here speaks TLS."""
    patch = pytest.MonkeyPatch()
    patch.setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))
    yield
    patch.undo()
