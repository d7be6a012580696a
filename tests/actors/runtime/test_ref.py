"""Refs refuse to block a loop before anything is sent, and keep every promise of Pykka's in threads."""

import asyncio
import functools
import threading

import pykka
import pytest
from perdure.actors.runtime import (
    Actor,
    ActorDead,
    ActorSystem,
    AskTimeout,
    ChildSpec,
    MailboxFull,
    Supervisor,
    VirtualClock,
    WouldBlock,
)


class Echo(Actor):
    def __init__(self):
        self.value = 1
        self.seen = []

    def on_receive(self, message):
        self.seen.append(message)
        return message


class Never(Actor):
    async def on_receive(self, message):
        await asyncio.Event().wait()


class Bounded(Echo):
    mailbox_limit = 2


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda ref: ref.ask("x"), "await ref.ask(message, block=False)"),
        (lambda ref: ref.ask("x", block=True, timeout=1), "await ref.ask(message, block=False)"),
        (lambda ref: ref.stop(), "await ref.stop(block=False)"),
        (lambda ref: setattr(ref.proxy(), "value", 2), "await ref.ask(message, block=False)"),
        (lambda ref: ref.ask("y", block=False).get(), "await future"),
    ],
    ids=["ask", "ask with timeout", "stop", "proxy attribute", "get"],
)
async def test_a_call_that_would_block_the_loop_is_refused_before_anything_is_sent(call, instead):
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        actor = ref._actor_weakref()
        with pytest.raises(WouldBlock) as refusal:
            call(ref)
        assert instead in str(refusal.value)
        await turns()
        assert actor.seen in ([], ["y"])
        assert actor.value == 1
        assert ref.is_alive()


async def test_a_handler_that_blocks_on_an_ask_is_refused_in_the_same_way():
    class Blocker(Actor):
        def on_receive(self, message):
            return message.ask("x")

    async with ActorSystem() as system:
        with pytest.raises(WouldBlock):
            await system.spawn(Blocker).ask(system.spawn(Echo), block=False)


def test_the_loops_own_thread_may_not_block_while_the_loop_stands_still_either():
    with asyncio.Runner() as runner:

        async def make():
            system = ActorSystem()
            return system, system.spawn(Echo)

        system, ref = runner.run(make())
        with pytest.raises(WouldBlock, match="runs on"):
            ref.ask("x")
        pending = ref.ask("x", block=False)
        with pytest.raises(WouldBlock):
            pending.get()
        runner.run(system.stop())


async def test_threads_ask_stop_and_set_attributes_by_blocking():
    async with ActorSystem() as system:
        ref = system.spawn(Echo)

        def session():
            proxy = ref.proxy()
            proxy.value = 5
            return ref.ask("x"), ref.ask("y", block=False).get(timeout=5), proxy.value.get(), ref.stop(), ref.stop()

        assert await asyncio.to_thread(session) == ("x", "y", 5, True, False)


async def test_a_blocking_ask_times_out_by_real_time():
    async with ActorSystem() as system:
        ref = system.spawn(Never)
        with pytest.raises(pykka.Timeout):
            await asyncio.to_thread(ref.ask, "x", timeout=0.01)
        system.kill(ref)


async def test_an_awaited_ask_times_out_by_the_systems_clock():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        ref = system.spawn(Never)
        future = ref.ask("x", block=False, timeout=30)
        await turns()
        clock.advance(29.9)
        assert not future.done()
        clock.advance(0.2)
        with pytest.raises(AskTimeout, match="30 s"):
            await future
        system.kill(ref)


async def test_an_answer_in_time_takes_the_timer_away():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        ref = system.spawn(Echo)
        assert await ref.ask("x", block=False, timeout=30) == "x"
        assert await ref.stop(block=False, timeout=30)
        await turns()
        assert clock.next_due() is None


async def test_an_answer_that_comes_after_the_timeout_is_dropped():
    clock = VirtualClock()

    class Slow(Actor):
        async def on_receive(self, message):
            await gate.wait()
            return message

    gate = asyncio.Event()
    async with ActorSystem(clock=clock) as system:
        ref = system.spawn(Slow)
        late = ref.ask("x", block=False, timeout=1)
        await turns()
        clock.advance(2)
        gate.set()
        with pytest.raises(AskTimeout):
            await late
        assert await ref.ask("y", block=False) == "y"


async def test_a_full_mailbox_refuses_tells_and_answers_asks_but_takes_a_stop():
    async with ActorSystem() as system:
        ref = system.spawn(Bounded, id="b")
        ref.tell(1)
        ref.tell(2)
        with pytest.raises(MailboxFull, match="b has 2 messages"):
            ref.tell(3)
        refused = ref.ask(4, block=False)
        assert refused.done()
        with pytest.raises(MailboxFull):
            await refused
        assert await ref.stop(block=False)


async def test_a_factorys_actor_has_the_bound_of_its_class():
    async with ActorSystem() as system:
        supervisor = system.spawn(Supervisor, children=[ChildSpec("b", functools.partial(Bounded))])
        await supervisor.proxy().children()
        assert system.ref("b").actor_class is Bounded
        assert system.ref("b").actor_inbox.limit == 2


async def test_a_bounded_mailbox_takes_messages_again_once_it_has_room():
    async with ActorSystem() as system:
        ref = system.spawn(Bounded)
        for round_ in range(10):
            ref.tell(round_)
            assert await ref.ask(round_, block=False) == round_


async def test_a_dead_ref_keeps_answering():
    async with ActorSystem() as system:
        ref = system.spawn(Echo, id="gone")
    assert not ref.is_alive()
    with pytest.raises(ActorDead, match="gone"):
        await ref.ask(1, block=False)
    with pytest.raises(ActorDead):
        await asyncio.to_thread(ref.ask, 1)
    assert await ref.stop(block=False) is False


async def test_a_pykka_ref_made_by_the_host_works_too():
    async with ActorSystem() as system:
        foreign = pykka.ActorRef(system.spawn(Echo)._actor_weakref())
        foreign.tell("told")
        assert await foreign.ask("asked", block=False) == "asked"
        assert foreign.is_alive()


async def test_threads_that_tell_at_the_same_time_lose_nothing_and_keep_their_own_order():
    class Log(Actor):
        def __init__(self):
            self.seen = {number: [] for number in range(4)}

        def on_receive(self, message):
            sender, number = message
            self.seen[sender].append(number)

    async with ActorSystem() as system:
        ref = system.spawn(Log)
        log = ref._actor_weakref()
        barrier = threading.Barrier(4)

        def send(sender):
            barrier.wait()
            for number in range(2_000):
                ref.tell((sender, number))
            return ref.ask((sender, "end"))

        await asyncio.gather(*(asyncio.to_thread(send, sender) for sender in range(4)))
        assert all(seen == [*range(2_000), "end"] for seen in log.seen.values())


async def test_threads_that_ask_at_the_same_time_each_get_their_own_answer():
    async with ActorSystem() as system:
        ref = system.spawn(Echo)

        def ask_all(sender):
            return all(ref.ask((sender, number)) == (sender, number) for number in range(200))

        assert all(await asyncio.gather(*(asyncio.to_thread(ask_all, sender) for sender in range(4))))


# -- ThreadingActor ------------------------------------------------------------------------------------------------------


class Host(pykka.ThreadingActor):
    """An actor of the host, with refs of ours."""

    use_daemon_thread = True

    def on_receive(self, message):
        kind, ref, payload = message
        if kind == "ask":
            return ref.ask(payload)
        if kind == "proxy":
            return ref.proxy().seen.get()
        return payload


async def test_a_threading_actor_asks_ours_by_blocking_in_its_own_thread():
    async with ActorSystem() as system:
        ref = system.spawn(Echo)
        host = Host.start()
        asks = [pykka_await(host, ("ask", ref, number)) for number in range(10)]
        assert await asyncio.gather(*asks) == list(range(10))
        assert await pykka_await(host, ("proxy", ref, None)) == list(range(10))
        await asyncio.to_thread(host.stop)


async def pykka_await(host, message):
    from perdure.actors.runtime import adopt

    return await adopt(host.ask(message, block=False))


async def test_our_actor_asks_a_threading_actor_that_asks_ours():
    class Bridge(Actor):
        async def on_receive(self, message):
            return await pykka_await(message, ("ask", echo, "through"))

    async with ActorSystem() as system:
        echo = system.spawn(Echo)
        host = Host.start()
        assert await system.spawn(Bridge).ask(host, block=False) == "through"
        await asyncio.to_thread(host.stop)
