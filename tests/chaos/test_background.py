"""A system on a loop of its own thread, under a program that knows nothing of asyncio."""

from concurrent.futures import ThreadPoolExecutor

import perdure
import pykka
import pytest
from perdure.actors.runtime import Actor, ActorSystem

from . import scenario
from .scenario import KEY


@pytest.fixture
def background(tmp_path):
    """A background system on a file, with the agent of the scenario installed."""
    tools = scenario.extension(lambda key: None, lambda key: None, seconds=0.01)
    with perdure.System.background(
        tmp_path / "agents.db",
        models=[perdure.ScriptedModel(scenario.brain)],
        extensions=[tools],
        settings=scenario.SETTINGS,
        durability="process",
    ) as opened:
        yield opened


async def answer(system, key):
    """The whole of a job, as it looks on the loop."""
    settled = await (await scenario.submit(system, key)).wait()
    return settled.answer.text


def test_a_synchronous_program_has_its_job_done_by_blocking_calls(background):
    assert background.call(answer, KEY) == scenario.expected_answer()
    assert background.call(lambda system: list(system.inspect().sessions)) == [KEY]


def test_threads_that_block_for_different_sessions_do_not_wait_for_each_other(background):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: background.call(answer, f"session-{number}"), range(8)))
    assert answers == [scenario.expected_answer()] * 8


def test_a_thread_that_waits_while_storage_crashes_is_told_and_may_call_again(background):
    """B031."""

    async def crash(system):
        submission = await scenario.submit(system)
        assert system.kill("storage")
        await submission.wait()

    with pytest.raises(perdure.SessionFailed):
        background.call(crash)
    assert background.call(answer, KEY) == scenario.expected_answer()


# --- Pykka's actors


class Clerk(Actor):
    """An actor of the loop that gives jobs to agents."""

    def __init__(self, system):
        super().__init__()
        self._perdure = system

    async def on_receive(self, message):
        return await answer(self._perdure, message)


class Desk(pykka.ThreadingActor):
    """An actor of the host, in a thread of its own, that holds a reference to the clerk."""

    def __init__(self, clerk):
        super().__init__()
        self._clerk = clerk

    def on_receive(self, message):
        return self._clerk.ask(message, timeout=20)


@pytest.fixture
def clerk(background):
    async def employ(system):
        actors = ActorSystem()
        return actors, actors.spawn(Clerk, system)

    actors, ref = background.call(employ)
    yield ref
    background.call(lambda system: actors.stop())


@pytest.fixture
def desks(clerk):
    refs = [Desk.start(clerk) for _ in range(3)]
    yield refs
    for ref in refs:
        ref.stop()


def test_threading_actors_ask_an_actor_of_the_loop_as_they_ask_each_other(desks):
    asked = [desk.ask(f"desk-{number}", block=False) for number, desk in enumerate(desks)]
    assert pykka.get_all(asked, timeout=20) == [scenario.expected_answer()] * len(desks)


def test_a_threading_actor_that_asks_an_actor_of_the_loop_that_has_ended_is_told_so(clerk, desks):
    assert clerk.stop(timeout=5)
    with pytest.raises(pykka.ActorDeadError):
        desks[0].ask(KEY, timeout=5)
