"""Waits in memory by a task's own code: refused where they could never end, and only there."""

import asyncio

import perdure
import pytest
from hypothesis import given, settings
from perdure import Agent, Extension, MemoryStorage, PerdureError, Quorum, ScriptedModel, System, WaitCycle
from perdure.actors.models import ToolResultMessage, call, plain_text
from perdure.supervisors.forest import must_outlive

from ...supervisors.test_settlement import Bench, blocks
from ..task.support import Scripted, scene, start, turns


def tries(script, name, wait, *, abort=False):
    """Have a task's code wait in memory for something; it completes with what came of that."""

    async def code(run):
        try:
            await wait(run)
            said = "waited"
        except WaitCycle:
            said = "refused"
        async with run.commit() as tx:
            tx.complete(said)

    script.on(name, **{"abort" if abort else "run": code})


@scene
async def test_a_task_that_waits_for_itself_is_refused_at_once_and_goes_on(script, session, root):
    """B034."""
    tries(script, "a", lambda run: task.result())
    script.gate("run:a")
    task = await start(root, "a")
    script.open("run:a")
    assert await task.result() == "refused"
    assert issubclass(WaitCycle, PerdureError)


@scene
async def test_a_child_that_waits_for_its_owner_is_refused_whatever_the_owner_does(script, session, root):
    """B034: parent and child that ask each other."""

    async def owner(run):
        child = await run.spawn(Scripted, "child")
        script.open("run:child")
        await run.complete(await child.result())

    script.gate("run:child")
    script.on("owner", run=owner)
    tries(script, "child", lambda run: task.result())
    task = await start(root, "owner")
    assert await task.result() == "refused"


@scene
async def test_a_wait_for_a_task_that_is_parked_until_the_waiter_ends_is_refused(script, session, root):
    """B034: through any number of them."""
    script.gate("run:a")
    a = await start(root, "a")
    script.on("b", run=lambda run: run.wait([a], then=Scripted.Resume()))
    b = await start(root, "b")
    script.on("c", run=lambda run: run.wait([b], then=Scripted.Resume()))
    c = await start(root, "c")
    await script.began("run:b", "run:c")
    await turns()
    tries(script, "a", lambda run: c.settled())
    script.open("run:a")
    assert await a.result() == "refused"
    assert await c.result() == "c"


@pytest.mark.parametrize("policy", ["firstCompleted", Quorum(1)], ids=str)
def test_a_wait_for_one_that_may_go_on_without_the_waiter_is_waited(policy):
    @scene
    async def test(script, session, root):
        script.gate("run:a", "run:other")
        a, other = await start(root, "a"), await start(root, "other")
        script.on("b", run=lambda run: run.wait([a, other], then=Scripted.Resume(), policy=policy))
        b = await start(root, "b")
        await script.began("run:b")
        await turns()
        tries(script, "a", lambda run: b.result())
        script.open("run:a")
        await turns()
        script.open("run:other")
        assert await a.result() == "waited"

    test()


@scene
async def test_waiting_for_what_does_not_depend_on_the_waiter_is_no_cycle(script, session, root):
    """A child, a task beside it, and an ended one; and an application's wait for the task itself."""
    script.gate("run:a", "run:beside", "run:child")
    beside = await start(root, "beside")

    async def wait(run):
        child = await run.spawn(Scripted, "child")
        script.open("run:child", "run:beside")
        assert (await child.result(), await beside.result(), await beside.result()) == ("child", "beside", "beside")

    tries(script, "a", wait)
    task = await start(root, "a")
    waiting = asyncio.create_task(task.result())
    await turns()
    script.open("run:a")
    assert await waiting == "waited"


@scene
async def test_a_helper_that_the_code_started_may_wait_for_the_tasks_end(script, session, root):
    """It outlives the code, so that its wait ends."""
    helpers = []

    async def code(run):
        helpers.append(asyncio.create_task(task.result()))
        await asyncio.sleep(0)
        await run.complete("a")

    script.gate("run:a")
    script.on("a", run=code)
    task = await start(root, "a")
    script.open("run:a")
    await script.began("run:a")
    await task.settled()
    assert await helpers[0] == "a"


@scene
async def test_code_whose_task_is_held_by_its_work_alone_may_wait_for_its_end(script, session, root):
    said = []

    async def code(run):
        await run.spawn(Scripted, "child")
        await run.complete("a")
        said.append(await task.result())

    script.gate("run:a", "run:child")
    script.on("a", run=code)
    task = await start(root, "a")
    script.open("run:a")
    await script.began("run:child")
    await turns()
    script.open("run:child")
    await task.settled()
    await turns()
    assert said == ["a"]


# --- idleness


WAITS = {
    "conversation": lambda session, root: root.wait_for_idle(),
    "session": lambda session, _: session.wait_for_idle(),
}


@pytest.mark.parametrize("what", WAITS)
@pytest.mark.parametrize("abort", [False, True])
def test_a_task_that_waits_for_the_idleness_of_what_it_works_in_is_refused(what, abort):
    """B034."""

    @scene
    async def test(script, session, root):
        tries(script, "a", lambda run: WAITS[what](session, root), abort=abort)
        script.gate("run:a")
        task = await start(root, "a")
        await script.began("run:a")
        if abort:
            await task.abort()
        script.open("run:a")
        assert await task.result() == "refused"

    test()


@scene
async def test_background_work_may_wait_for_idleness_since_nobody_waits_for_it(script, session, root):
    tries(script, "b", lambda run: root.wait_for_idle())
    assert await (await start(root, "b", background=True)).result() == "waited"


@scene
async def test_an_abort_of_its_own_conversation_by_a_task_is_its_own_abort(script, session, root):
    """B034: it is stored, and nothing hangs."""
    script.on("a", run=lambda run: root.abort())
    script.gate("run:a")
    task = await start(root, "a")
    script.open("run:a")
    assert (await task.settled()).state.outcome.__struct_config__.tag == "aborted"


# --- submissions


@pytest.mark.parametrize("when_busy", ["follow_up", "steer"])
@pytest.mark.parametrize("below", [False, True])
def test_a_tool_that_prompts_the_conversation_that_waits_for_it_is_refused_at_once(below, when_busy):
    """B034: from inside a subagent, too; the input stays queued and is answered after the run."""

    async def main():
        inputs = []

        async def prompt(ctx: perdure.ToolContext) -> str:
            """Prompt the root."""
            inputs.append(await ctx.conversation(1).submit("from the tool", when_busy=when_busy))
            try:
                await inputs[0].wait()
            except WaitCycle:
                return "refused"
            return "waited"

        def brain(request):
            last = request.messages[-1]
            if isinstance(last, ToolResultMessage):
                return f"it was {plain_text(last.content)}"
            if plain_text(last.content) == "from the tool":
                return "heard"
            return call("subagent", task="deeper") if below and plain_text(last.content) == "go" else call("prompt")

        tools = [perdure.tool(replay="safe")(prompt), perdure.subagent()]
        async with System.open(
            MemoryStorage(), models=[ScriptedModel(brain)], extensions=[Extension(name="t", tools=tools)]
        ) as system:
            session = await system.session("s")
            root = await session.root(agent=Agent(model="scripted/model"))
            answer = await (await root.submit("go")).wait()
            assert "it was" in answer.text or answer.text == "heard"
            assert (await inputs[0].wait()).text == "heard"
            results = [entry for entry in (await root.entries()).items if entry.kind == "pi.tool-result"]
            assert "refused" in str(results[-1].model)

    asyncio.run(main())


# --- the decision


@settings(max_examples=150, deadline=None)
@given(blocks)
def test_who_must_outlive_whom_is_what_waits_for_all_and_holds_say(history):
    """Whatever is certain is a cycle by the rule for parked waits, too; and an owner outlives all of its ordinary work."""
    bench = Bench()
    for steps, _ in history:
        for numbers in steps:
            bench.step(*numbers)
        bench.keep()
    world, live = bench.world, sorted(bench.world.live())
    for task in live[:5]:
        for other in live[:5]:
            certain = must_outlive(bench.forest, task, other)
            assert certain or (other != task and other not in world.work(task))
            if certain and task != other:
                assert other in reach(world, task)


def reach(world, task):
    found, new = set(), {task}
    while new:
        found |= new
        new = {one for tid in new for one in world.dependencies(tid)} - found
    return found
