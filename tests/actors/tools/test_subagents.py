import asyncio

import perdure
import pytest
from perdure.actors.models import ToolResultMessage, UserMessage, call, current_tools, plain_text
from perdure.actors.tools.subagents import KIND, TOOLS, SubagentDoc

from ..conversation.support import go, history, problems, quiet, scene, seen


class Office:
    """A chief whose input is a list of calls, written as Python, and clerks that can be held at their work."""

    def __init__(self):
        self.free = asyncio.Event()
        self.free.set()
        self.started = asyncio.Event()
        self.worked = []

        @perdure.tool(replay="safe")
        async def work(ctx: perdure.ToolContext, what: str) -> str:
            """Work."""
            self.started.set()
            await self.free.wait()
            self.worked.append(what)
            return f"did {what}"

        self.tool = work

    def hold(self):
        self.free.clear()
        return self

    def brain(self, request):
        if any(tool.name == "spawn_agent" for tool in current_tools(request.messages)):
            return self.chief(request)
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            said = plain_text(last.content)
            return call("work", what=said) if said.startswith("do ") else f"heard {said}"
        return plain_text(last.content)

    @staticmethod
    def chief(request):
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            said = plain_text(last.content)
            return eval(said, {"call": call}) if said.startswith("[") else f"noted: {said}"
        return " | ".join(plain_text(m.content) for m in request.messages if isinstance(m, ToolResultMessage))

    def scene(self, *, report="off", **options):
        extensions = [perdure.subagents(report=report), *options.pop("extensions", [])]
        return scene(self.brain, tools=[self.tool], extensions=extensions, **options)


def spawn(name="bob", task="do it"):
    return f"[call('spawn_agent', name={name!r}, task={task!r})]"


def told(name="bob", text="do more", **options):
    return f"[call('message_agent', name={name!r}, text={text!r}, **{options!r})]"


def named(tool, name="bob", **options):
    return f"[call({tool!r}, name={name!r}, **{options!r})]"


async def last(s, content):
    """What the chief's newest call answered."""
    return (await s.ask(content)).text.rpartition(" | ")[2]


async def agents(s):
    async with s.session.commit() as tx:
        return (await tx.scan_tasks(perdure.TaskQuery(kind=KIND), 100)).items


async def child(s, index=0):
    task = (await agents(s))[index]
    doc = await s.session.snapshot(SubagentDoc, task.id)
    return await s.session.conversation(doc["conversationId"])


def inputs(entries):
    return [one.model[0]["content"] for one in entries if one.kind == "pi.user"]


def test_a_subagent_works_beside_its_parent_and_its_answer_is_collected():
    async def main():
        office = Office().hold()
        async with office.scene() as s:
            assert "has begun" in await last(s, spawn())
            await office.started.wait()
            assert (await s.ask("hello")).text == "noted: hello"
            assert "still works" in await last(s, named("wait_agent", timeout_s=0.001))
            office.free.set()
            assert await last(s, named("wait_agent")) == "did do it"
            assert await last(s, named("wait_agent")) == "Subagent 'bob' has reported everything already."

    go(main)


@pytest.mark.parametrize("report", ["steer", "follow_up"])
def test_what_a_subagent_answers_is_reported_to_its_parent_once(report):
    async def main():
        office = Office().hold()
        async with office.scene(report=report) as s:
            await s.ask(spawn())
            await office.started.wait()
            office.free.set()
            reported = "The subagent 'bob' reports:\ndid do it"
            await seen(
                s.root,
                lambda v: any(e["kind"] == "pi.user" and e["model"][0]["content"] == reported for e in v["entries"]),
            )
            await s.root.wait_for_idle()
            await s.ask(told(text="and you?"))
            await seen(s.root, lambda v: str(v["entries"]).count("heard and you?") >= 2)
            await s.root.wait_for_idle()
            said = inputs(await history(s.root))
            assert said[1] == reported
            assert said[-1] == "The subagent 'bob' reports:\nheard and you?"
            assert len(said) == 4

    go(main)


def test_a_subagent_is_messaged_while_it_works_and_each_message_is_answered():
    async def main():
        office = Office().hold()
        async with office.scene() as s:
            await s.ask(spawn())
            await office.started.wait()
            await s.ask(told(text="then this"))
            await s.ask(told(text="and now", steer=True))
            office.free.set()
            assert await last(s, named("wait_agent")) == "heard and now\n\nheard then this"

    go(main)


def test_a_subagent_waits_without_memory_and_is_woken_by_a_message(storage):
    async def main():
        office = Office()
        async with office.scene(storage=storage) as s:
            await s.ask(spawn())
            await (await child(s)).wait_for_idle()
            await quiet()
            [task] = await agents(s)
            assert type(task.state).__name__ == "Waiting"
            assert not [one for one in str(s.system.inspect().actors).split("'") if one.startswith("task:")]
            assert await s.system.next_deadline() is None
        async with office.scene(storage=storage) as s:
            assert await last(s, named("wait_agent")) == "did do it"
            await s.ask(told(text="do more"))
            assert await last(s, named("wait_agent")) == "did do more"
            assert office.worked == ["do it", "do more"]

    go(main)


def test_a_subagent_and_its_work_survive_a_restart_and_report_once(storage):
    async def main():
        office = Office().hold()
        async with office.scene(storage=storage, report="steer") as s:
            await s.ask(spawn())
            await office.started.wait()
        office.free.set()
        async with office.scene(storage=storage, report="steer") as s:
            await seen(s.root, lambda v: "noted: The subagent" in str(v["entries"]))
            await s.root.wait_for_idle()
            assert inputs(await history(s.root))[1:] == ["The subagent 'bob' reports:\ndid do it"]
            assert problems((await s.root.context()).messages) == []

    go(main)


@pytest.mark.parametrize("who", ["session:s", "storage", "sessions"])
def test_whoever_is_killed_a_subagent_is_spawned_once_and_answers_once(who):
    async def main():
        office = Office().hold()
        async with office.scene() as s:
            await s.ask(spawn())
            await office.started.wait()
            assert s.system.kill(who)
            office.free.set()
            while True:
                try:
                    assert await last(s, named("wait_agent")) == "did do it"
                    break
                except perdure.SessionFailed:
                    await asyncio.sleep(0)
            assert len(await agents(s)) == 1

    go(main)


def test_an_interrupted_spawn_finds_the_subagent_that_it_has_made():
    """B040: a safe call that runs again makes no second one."""

    async def main():
        office = Office()
        arrived, free, first = asyncio.Event(), asyncio.Event(), []

        async def hold(ctx, one, result):
            if one.name == "spawn_agent" and not first:
                first.append(one)
                arrived.set()
                await free.wait()

        kit = perdure.Extension(name="h", hooks=perdure.Hooks(after_tool=hold))
        async with office.scene(extensions=[kit]) as s:
            submission = await s.root.submit(spawn())
            await arrived.wait()
            s.system.kill("session:s")
            while True:
                try:
                    assert "has begun" in (await submission.wait()).text
                    break
                except perdure.SessionFailed:
                    await asyncio.sleep(0)
            assert len(await agents(s)) == 1

    go(main)


def test_a_subagent_is_stopped_with_all_its_work():
    async def main():
        office = Office().hold()
        async with office.scene() as s:
            await s.ask(spawn())
            await office.started.wait()
            assert "is stopped" in await last(s, named("stop_agent"))
            [task] = await agents(s)
            ended = await (await s.session.task(task.id)).settled()
            assert isinstance(ended.state.outcome, perdure.Aborted)
            assert office.worked == []
            assert "there is no subagent 'bob'" in await last(s, named("wait_agent"))
            assert "has begun" in await last(s, spawn(task="again"))
            assert await last(s, named("wait_agent")) == "heard again"

    go(main)


def test_an_abort_of_the_parent_leaves_its_subagents_alone_unless_it_says_so():
    """P7: a background task is a boundary."""

    async def main():
        office = Office().hold()
        async with office.scene() as s:
            await s.ask(spawn())
            await office.started.wait()
            await s.root.abort()
            office.free.set()
            assert await last(s, named("wait_agent")) == "did do it"
            await s.root.abort(background=True)
            [task] = await agents(s)
            assert isinstance(task.state.outcome, perdure.Aborted)

    go(main)


def test_subagents_are_listed_and_have_names_of_their_own():
    async def main():
        office = Office().hold()
        async with office.scene() as s:
            assert await last(s, "[call('list_agents')]") == "[]"
            await s.ask(spawn("ann", "hello"))
            await s.ask(spawn("bob"))
            assert "there is a subagent 'ann' already" in await last(s, spawn("ann"))
            await office.started.wait()
            await (await child(s)).wait_for_idle()
            listed = await last(s, "[call('list_agents')]")
            ann, bob = [(await child(s, index)).id for index in (0, 1)]
            assert listed == (
                f'[{{"name":"ann","conversationId":{ann},"working":true}},'
                f'{{"name":"bob","conversationId":{bob},"working":true}}]'
            )
            await last(s, named("wait_agent", "ann"))
            assert f'"name":"ann","conversationId":{ann},"working":false' in await last(s, "[call('list_agents')]")
            for content in (told("eve"), named("wait_agent", "eve"), named("stop_agent", "eve")):
                assert "there is no subagent 'eve'; there are: ann, bob" in await last(s, content)
            office.free.set()

    go(main)


def test_another_conversations_subagents_are_none_of_ones_own():
    async def main():
        office = Office()
        async with office.scene() as s:
            await s.ask(spawn())
            other = await s.session.create_conversation(agent=perdure.Agent(model="scripted/model"))
            answer = await (await other.submit(told())).wait()
            assert "there is no subagent 'bob'; there are: none" in answer.text

    go(main)


def test_a_subagent_starts_as_its_parent_without_these_tools_changed_by_what_is_given():
    """PR-16."""

    async def main():
        office = Office()
        async with office.scene() as s:
            await s.root.configure(perdure.Agent(instructions="be brief"))
            await s.ask(spawn())
            agent = await (await child(s)).snapshot(perdure.AgentDoc)
            assert agent["instructions"] == "be brief"
            assert agent["tools"] == ["work"]
            assert not set(agent["tools"]) & set(TOOLS)

    go(main)


def test_a_subagent_that_gets_no_answer_says_why():
    async def main():
        office = Office()
        async with office.scene() as s:
            s.system.registry.install(perdure.subagents(perdure.Agent(model="scripted/gone"), report="off"))
            await s.ask(spawn())
            assert await last(s, named("wait_agent")) == "(no answer: no_model)"

    go(main)


def test_a_report_that_nobody_has_seen_is_taken_back_by_who_waits_for_it():
    """The model is told an answer once, whichever comes first."""

    async def main():
        office = Office().hold()
        async with office.scene(report="follow_up") as s:
            await s.ask(spawn())
            await office.started.wait()
            both = f"{spawn('ann', 'hello')[:-1]}, {named('wait_agent')[1:]}"
            waiting = await s.root.submit(both)
            await seen(s.root, lambda v: len(v["docs"]["pi.live"].get("tools", ())) == 2)
            office.free.set()
            assert "did do it" in (await waiting.wait()).text
            await s.session.wait_for_idle()
            await quiet()
            said = str(await history(s.root))
            assert said.count("'bob' reports") == 0

    go(main)
