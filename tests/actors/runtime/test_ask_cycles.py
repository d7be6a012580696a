"""A ring of actors that wait for one another is refused at once, and nothing else is taken for one."""

import asyncio

import pytest
from perdure.actors.runtime import Actor, ActorSystem, AskCycle
from perdure.chord.errors import PerdureError


class Forwarder(Actor):
    """Asks along a path of ids."""

    async def on_receive(self, message):
        if not message:
            return [self.id]
        target, *rest = message
        return [self.id, *await self.system.ref(target).ask(rest, block=False)]


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_an_actor_that_asks_itself_gets_an_error_at_once():
    """B034."""

    async with ActorSystem() as system:
        ref = system.spawn(Forwarder, id="a")
        with pytest.raises(AskCycle) as cycle:
            await ref.ask(["a"], block=False)
        assert cycle.value.path == ("a", "a")
        assert isinstance(cycle.value, PerdureError)
        assert await ref.ask([], block=False) == ["a"]


@pytest.mark.parametrize("length", [2, 3, 7])
async def test_a_ring_of_asks_gets_an_error_at_once_and_every_actor_lives(length):
    """B034."""

    names = [f"n{number}" for number in range(length)]
    async with ActorSystem() as system:
        refs = [system.spawn(Forwarder, id=name) for name in names]
        with pytest.raises(AskCycle, match="n0 -> "):
            await refs[0].ask([*names[1:], names[0]], block=False)
        for ref, name in zip(refs, names, strict=True):
            assert await ref.ask([], block=False) == [name]


async def test_a_chain_that_does_not_close_is_no_ring():
    names = [f"n{number}" for number in range(20)]
    async with ActorSystem() as system:
        refs = [system.spawn(Forwarder, id=name) for name in names]
        assert await refs[0].ask(names[1:], block=False) == names


async def test_two_actors_that_ask_each_other_at_the_same_time_do_not_wait_for_ever():
    async with ActorSystem() as system:
        one, two = system.spawn(Forwarder, id="one"), system.spawn(Forwarder, id="two")
        answers = await asyncio.gather(
            one.ask(["two"], block=False), two.ask(["one"], block=False), return_exceptions=True
        )
        assert [type(answer).__name__ for answer in answers if isinstance(answer, Exception)] == ["AskCycle"]


async def test_stopping_itself_and_waiting_for_it_is_refused_also_in_on_start():
    """B034."""

    class Impatient(Actor):
        async def on_start(self):
            with pytest.raises(AskCycle):
                await self.actor_ref.stop(block=False)
            done.append("started")

        def on_stop(self):
            done.append("stopped")

    done = []
    async with ActorSystem() as system:
        ref = system.spawn(Impatient)
        await ref.when_ended()
        assert done == ["started", "stopped"]


async def test_a_helper_task_may_wait_for_the_actor_that_made_it():
    class Delegating(Actor):
        async def on_receive(self, message):
            if message == "start":
                self.helper = asyncio.create_task(self.help())
                await asyncio.sleep(0)
                return "on its way"
            return message

        async def help(self):
            return await self.actor_ref.ask("later", block=False)

    async with ActorSystem() as system:
        ref = system.spawn(Delegating)
        assert await ref.ask("start", block=False) == "on its way"
        assert await ref._actor_weakref().helper == "later"


async def test_an_answer_that_was_taken_over_closes_no_ring():
    class Keeper(Actor):
        """Asks its asker before it answers, which works since it answers from elsewhere."""

        def on_receive(self, message):
            self.reply = self.reply_later()

        async def work(self, asker):
            answer = await asker.ask([], block=False)
            self.reply.settle(answer)

    class Asker(Actor):
        async def on_receive(self, message):
            return await keeper.ask("please", block=False)

    async with ActorSystem() as system:
        keeper = system.spawn(Keeper)
        asker, beside = system.spawn(Asker), system.spawn(Forwarder, id="beside")
        answer = asker.ask("go", block=False)
        await turns()
        keeper.proxy().work(beside)
        assert await answer == ["beside"]


async def test_a_wait_that_was_cancelled_is_no_edge():
    class Patient(Actor):
        async def on_receive(self, message):
            if message == "wait":
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await self.system.ref("slow").ask("x", block=False)
                await gate.wait()
            return message

    class Slow(Actor):
        async def on_receive(self, message):
            if message == "x":
                await asyncio.sleep(0)
                return "x"
            return await self.system.ref("patient").ask("fine", block=False)

    gate = asyncio.Event()
    async with ActorSystem() as system:
        patient, slow = system.spawn(Patient, id="patient"), system.spawn(Slow, id="slow")
        waiting = patient.ask("wait", block=False)
        await turns(10)
        back = slow.ask("back", block=False)
        await turns(10)
        gate.set()
        assert await waiting == "wait"
        assert await back == "fine"
