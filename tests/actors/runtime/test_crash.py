"""The one rule, for tell and ask: an expected error is an answer; anything else ends that one actor and no other."""

import asyncio
import gc
import pickle
import weakref

import pytest
from perdure.actors.runtime import (
    Actor,
    ActorCrashed,
    ActorDead,
    ActorExists,
    ActorSystem,
    AskCycle,
    AskTimeout,
    Killed,
    MailboxFull,
    RestartIntensityExceeded,
    UnknownChild,
    WouldBlock,
)
from perdure.chord.errors import PerdureError

UNEXPECTED = [
    ValueError("bad"),
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    MemoryError(),
    StopIteration(1),
    TimeoutError(),
]


class Thrower(Actor):
    def __init__(self, failures=None):
        self.failures = failures if failures is not None else []

    def on_receive(self, message):
        if isinstance(message, BaseException):
            raise message
        return message

    def on_failure(self, kind, value, traceback):
        self.failures.append((kind, value, traceback))

    def fail(self, error):
        raise error


class AsyncThrower(Thrower):
    async def on_receive(self, message):
        await asyncio.sleep(0)
        return super().on_receive(message)


def named(value):
    return type(value).__name__ if isinstance(value, BaseException) else None


@pytest.mark.parametrize("kind", [Thrower, AsyncThrower])
@pytest.mark.parametrize("error", UNEXPECTED, ids=named)
async def test_an_unexpected_error_under_ask_is_a_crash_of_that_actor_only(kind, error, logs):
    async with ActorSystem() as system:
        failures = []
        ref, bystander = system.spawn(kind, failures, id="victim"), system.spawn(kind, id="bystander")
        asked, queued = ref.ask(error, block=False), ref.ask("queued", block=False)
        beside = bystander.ask("fine", block=False)

        with pytest.raises(ActorCrashed) as crash:
            await asked
        with pytest.raises(ActorDead):
            await queued
        assert await beside == "fine"
        assert bystander.is_alive()
        assert not ref.is_alive()
        ended = await ref.when_ended()
        assert ended.kind == "crashed"
        cause = crash.value.cause
        assert cause is crash.value.__cause__ is ended.cause
        assert [(kind, value) for kind, value, _ in failures] == [(type(cause), cause)]
        if kind is AsyncThrower and isinstance(error, StopIteration):
            assert isinstance(cause, RuntimeError)  # Python lets no StopIteration out of a coroutine
        else:
            assert cause is error
        assert [log["event"] for log in logs] == ["actor_crashed"]
        assert logs[0]["actor"] == "victim"


@pytest.mark.parametrize("kind", [Thrower, AsyncThrower])
@pytest.mark.parametrize("error", UNEXPECTED, ids=named)
async def test_an_unexpected_error_under_tell_is_the_same_crash(kind, error, logs):
    async with ActorSystem() as system:
        ref, bystander = system.spawn(kind), system.spawn(kind)
        ref.tell(error)
        queued = ref.ask("queued", block=False)

        assert await bystander.ask("fine", block=False) == "fine"
        assert (await ref.when_ended()).kind == "crashed"
        with pytest.raises(ActorDead):
            await queued
        assert [log["event"] for log in logs] == ["actor_crashed"]


@pytest.mark.parametrize("kind", [Thrower, AsyncThrower])
async def test_an_expected_error_under_ask_is_the_answer_and_the_actor_lives(kind, logs):
    async with ActorSystem() as system:
        ref = system.spawn(kind)
        error = PerdureError("not possible")
        with pytest.raises(PerdureError) as answer:
            await ref.ask(error, block=False)

        assert answer.value is error
        assert await ref.ask("still here", block=False) == "still here"
        assert logs == []


@pytest.mark.parametrize("kind", [Thrower, AsyncThrower])
async def test_an_expected_error_under_tell_is_logged_and_the_actor_lives(kind, logs):
    async with ActorSystem() as system:
        ref = system.spawn(kind, id="t")
        ref.tell(PerdureError("not possible"))

        assert await ref.ask("still here", block=False) == "still here"
        assert [(log["event"], log["actor"], log["message_type"]) for log in logs] == [
            ("message_refused", "t", "PerdureError")
        ]


async def test_the_rule_holds_for_proxy_calls():
    async with ActorSystem() as system:
        ref = system.spawn(Thrower)
        with pytest.raises(PerdureError, match="no"):
            await ref.proxy().fail(PerdureError("no"))
        with pytest.raises(ActorCrashed):
            await ref.proxy().fail(KeyError("k"))
        assert not ref.is_alive()


async def test_the_crash_of_an_asked_actor_is_an_expected_error_for_the_asker():
    class Middle(Actor):
        async def on_receive(self, message):
            return await message.ask(ValueError("deep"), block=False)

    async with ActorSystem() as system:
        middle = system.spawn(Middle)
        with pytest.raises(ActorCrashed, match="deep"):
            await middle.ask(system.spawn(Thrower), block=False)
        assert middle.is_alive()


@pytest.mark.parametrize("error", [ValueError("no"), PerdureError("no"), asyncio.CancelledError()], ids=named)
async def test_whatever_on_start_raises_is_a_failed_start(error, logs):
    class NeverUp(Thrower):
        async def on_start(self):
            raise error

    async with ActorSystem() as system:
        failures = []
        ref = system.spawn(NeverUp, failures)
        asked = ref.ask("anyone?", block=False)

        with pytest.raises(ActorDead):
            await asked
        assert (await ref.when_ended()).cause is error
        assert failures[0][1] is error
        assert [(log["event"], log["doing"]) for log in logs] == [("actor_crashed", "start")]


async def test_a_constructor_that_raises_raises_where_it_was_spawned():
    class Stillborn(Actor):
        def __init__(self):
            refs.append(self.actor_ref)
            raise ValueError("no")

    refs = []
    async with ActorSystem() as system:
        with pytest.raises(ValueError, match="no"):
            system.spawn(Stillborn, id="x")
        assert system.ref("x") is None
        assert not refs[0].is_alive()
        system.spawn(Thrower, id="x")


async def test_an_asynchronous_on_failure_is_waited_for():
    class Careful(Thrower):
        async def on_failure(self, kind, value, traceback):
            await asyncio.sleep(0)
            done.append(value)

    done = []
    async with ActorSystem() as system:
        ref = system.spawn(Careful)
        error = ValueError("x")
        ref.tell(error)
        await ref.when_ended()
        assert done == [error]


@pytest.mark.parametrize("failing", [Thrower, AsyncThrower])
async def test_an_error_in_on_failure_is_logged_and_the_end_goes_on(failing, logs):
    class Clumsy(failing):
        def on_failure(self, kind, value, traceback):
            raise SystemExit(2)

    async with ActorSystem() as system:
        ref = system.spawn(Clumsy)
        error = ValueError("x")
        ref.tell(error)
        assert (await ref.when_ended()).cause is error
        assert [log["event"] for log in logs] == ["actor_crashed", "hook_failed"]


async def test_a_logger_that_raises_takes_no_actor_down(monkeypatch):
    from perdure.actors.runtime import events

    class BadLog:
        def __getattr__(self, name):
            raise RuntimeError("disk full")

    monkeypatch.setattr(events, "_log", BadLog())
    async with ActorSystem() as system:
        ref = system.spawn(Thrower)
        ref.tell(PerdureError("refused"))
        assert await ref.ask(1, block=False) == 1
        ref.tell(ValueError("x"))
        assert (await ref.when_ended()).kind == "crashed"


@pytest.mark.parametrize("kind", [Thrower, AsyncThrower])
async def test_a_crashed_actor_leaves_memory_with_its_error(kind, logs):
    async with ActorSystem() as system:
        ref = system.spawn(kind)
        actor = weakref.ref(ref._actor_weakref())
        ref.tell(ValueError("x"))
        await ref.when_ended()
        assert ref._actor_weakref() is None

        del ref
        await asyncio.sleep(0)  # asyncio lets go of the handler's task
        logs.clear()  # the exception's traceback holds the handler's frame
        gc.collect()
        assert actor() is None


@pytest.mark.parametrize(
    "error",
    [
        ActorCrashed("a", ValueError("x")),
        ActorDead("a"),
        ActorDead("a", "it is late"),
        ActorExists("a"),
        AskCycle(("a", "b", "a")),
        AskTimeout(0.5),
        Killed("a"),
        MailboxFull("a", 3),
        RestartIntensityExceeded("s", "a", 3, 60.0, ValueError("x")),
        RestartIntensityExceeded("s", "a", 3, 60.0),
        UnknownChild("s", "a"),
        WouldBlock("use something else"),
    ],
    ids=named,
)
def test_errors_are_expected_say_who_and_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(error, PerdureError)
    assert str(copy) == str(error)
    assert vars(copy).keys() == vars(error).keys()
    assert repr(copy.__cause__) == repr(error.__cause__)
