import asyncio

import perdure
import pytest
from perdure.actors.conversation.builtin import AgentDoc
from perdure.actors.models import (
    Pause,
    ToolResultMessage,
    UserMessage,
    call,
    current_tools,
    error_info,
    from_json,
    plain_text,
)

from ..conversation.support import MODEL, Faults, go, history, kinds, problems, quiet, scene, seen


class Office:
    """A chief that delegates each task it is given, and clerks that work on them with a tool that can be held."""

    def __init__(self, *tasks, clerk=None):
        self.tasks = tasks or ("count the beans",)
        self.clerk = clerk or self._work
        self.started, self.free = asyncio.Event(), asyncio.Event()
        self.free.set()
        self.worked = []
        self.asked = []

        async def work(ctx: perdure.ToolContext) -> str:
            """Work."""
            self.started.set()
            await self.free.wait()
            self.worked.append(ctx.conversation_id)
            return "beans counted"

        self.tool = perdure.tool(replay="safe")(work)

    def hold(self):
        self.free.clear()
        return self

    def brain(self, request):
        said = [plain_text(m.content) for m in request.messages if isinstance(m, UserMessage)]
        if said[0] in self.tasks:
            self.asked.append(request)
            return self.clerk(request)
        if isinstance(request.messages[-1], UserMessage):
            return [call("subagent", task=task) for task in self.tasks] if len(said) == 1 else f"yes, {said[-1]}"
        return " | ".join(plain_text(m.content) for m in request.messages if isinstance(m, ToolResultMessage))

    @staticmethod
    def _work(request):
        if isinstance(request.messages[-1], UserMessage):
            return call("work")
        return f"report: {plain_text(request.messages[-1].content)}"

    def scene(self, **options):
        subagent = options.pop("subagent", None) or perdure.subagent()
        return scene(self.brain, tools=[self.tool, subagent], **options)


async def children(s):
    async with s.session.commit() as tx:
        page = await tx.scan_conversations(perdure.ConversationQuery(owner_conversation_id=1), 100)
    return [await s.session.conversation(record.id) for record in page.items]


async def results(conversation):
    messages = [from_json(entry.model[0]) for entry in await history(conversation) if entry.model]
    return [m for m in messages if isinstance(m, ToolResultMessage)]


async def answered(submission):
    """Wait for an answer through any number of deaths of the session."""
    while True:
        try:
            return await submission.wait()
        except perdure.SessionFailed:
            await asyncio.sleep(0)


async def subagent_task(s):
    return next(record.id for record in await s.session.tasks() if record.conversation_id == 1 and record.owner)


# --- delegating


def test_a_task_is_delegated_to_a_conversation_of_its_own_and_its_answer_is_the_result():
    async def main():
        office = Office()
        async with office.scene() as s:
            assert (await s.ask("go")).answer.text == "report: beans counted"
            [child] = await children(s)
            assert kinds(await history(child)) == ["user", "system", "assistant", "tool-result", "assistant"]
            [result] = await results(s.root)
            assert result.details == {"conversationId": child.id}
            assert not result.is_error
            assert kinds(await history(s.root)) == ["user", "system", "assistant", "tool-result", "assistant"]

    go(main)


def test_the_call_names_its_child_while_it_works():
    async def main():
        office = Office().hold()
        async with office.scene() as s:
            await s.root.submit("go")
            view = await seen(s.root, lambda v: any("details" in t for t in v["docs"]["pi.live"].get("tools", ())))
            [child] = await children(s)
            assert view["docs"]["pi.live"]["tools"][0]["details"] == {"conversationId": child.id}
            assert (await child.live())["run"]
            office.free.set()
            await s.root.wait_for_idle()

    go(main)


def test_several_calls_in_one_round_work_side_by_side_in_a_child_each():
    """B055."""

    async def main():
        office = Office("one", "two", "three").hold()
        async with office.scene() as s:
            submission = await s.root.submit("go")
            while len(await children(s)) < 3 or len(office.asked) < 3:
                await quiet(1)
            office.free.set()
            assert (await submission.wait()).answer.text == " | ".join(["report: beans counted"] * 3)
            assert len(set(office.worked)) == 3
            assert all(problems(request.messages) == [] for request in s.model.calls)

    go(main)


def test_the_child_is_not_offered_the_tool_that_made_it():
    async def main():
        office = Office()
        async with office.scene() as s:
            await s.ask("go")
            assert [t.name for t in current_tools(office.asked[0].messages)] == ["work"]
            assert [t.name for t in current_tools(s.model.calls[0].messages)] == ["work", "subagent"]

    go(main)


def test_a_child_that_calls_it_all_the_same_is_told_that_it_is_not_there():
    """B056."""

    async def main():
        def recursive(request):
            last = request.messages[-1]
            return call("subagent", task="more") if isinstance(last, UserMessage) else plain_text(last.content)

        office = Office(clerk=recursive)
        async with office.scene() as s:
            assert "Tool subagent is not available" in (await s.ask("go")).answer.text
            assert len(await children(s)) == 1

    go(main)


def test_the_child_works_with_its_parents_choices_changed_by_the_tools():
    """PR-16."""

    async def main():
        office = Office()
        second = perdure.ScriptedModel(office.brain, name="other/second")
        tool = perdure.subagent(perdure.Agent(model="other/second", instructions="count well"))
        agent = perdure.Agent(model=MODEL, thinking_level="high", instructions="delegate")
        async with office.scene(subagent=tool, models=[second], agent=agent) as s:
            await s.ask("go")
            [child] = await children(s)
            assert await child.snapshot(AgentDoc) == {
                "model": {"provider": "other", "modelId": "second"},
                "thinkingLevel": "high",
                "instructions": "count well",
                "tools": ["work"],
            }
            assert (len(second.calls), len(s.model.calls)) == (2, 2)

    go(main)


def test_a_parent_that_offers_few_tools_gives_its_child_no_more():
    async def main():
        office = Office(clerk=lambda request: "done")
        agent = perdure.Agent(model=MODEL, tools=["subagent"])
        async with office.scene(agent=agent) as s:
            await s.ask("go")
            assert current_tools(office.asked[0].messages) == []

    go(main)


def test_it_can_be_named_and_described():
    tool = perdure.subagent(name="clerk", description="Ask a clerk.")
    assert (tool.spec.name, tool.spec.description) == ("clerk", "Ask a clerk.")
    assert tool.spec.parameters["required"] == ["task"]
    assert "description" in tool.spec.parameters["properties"]["task"]
    assert perdure.subagent().spec.description


def test_an_answer_without_text_is_no_blank_result():
    """B106."""

    async def main():
        office = Office(clerk=lambda request: " ")
        async with office.scene() as s:
            assert (await s.ask("go")).answer.text == "(no output)"

    go(main)


# --- found again


@pytest.mark.parametrize("victim", ["tool task", "session:s", "storage", "child's generation", "child's tool"])
def test_whoever_is_killed_the_child_is_found_again_and_answers_once(victim):
    """P6, P8, B043, B053."""

    async def main():
        office = Office().hold()
        async with office.scene() as s:
            submission = await s.root.submit("go")
            await office.started.wait()
            live = {record.kind: record.id for record in await s.session.tasks() if record.conversation_id != 1}
            ids = {
                "tool task": f"task:s/{await subagent_task(s)}",
                "child's generation": f"task:s/{live['pi.generation']}",
                "child's tool": f"task:s/{live['pi.tool']}",
            }
            office.started.clear()
            killed = s.system.kill(ids.get(victim, victim))
            assert killed is (victim != "child's generation")  # it waits for its tool: nothing of it is in memory
            await quiet(50)
            office.free.set()
            assert (await answered(submission)).answer.text == "report: beans counted"
            [child] = await children(s)
            assert kinds(await history(child)).count("user") == 1
            assert len(await results(s.root)) == 1

    go(main)


def test_a_child_is_found_again_after_a_restart(storage):
    """P6."""

    async def main():
        office = Office().hold()
        async with office.scene(storage=storage) as s:
            submission = await s.root.submit("go")
            await office.started.wait()
            before = await children(s)
        again = Office()
        async with again.scene(storage=storage) as s:
            settled = await (await s.session.submission(submission.id)).wait()
            assert settled.answer.text == "report: beans counted"
            [child] = await children(s)
            assert child == before[0]
            assert kinds(await history(child)).count("user") == 1
            assert (await s.ask("are you there?")).answer.text == "yes, are you there?"

    go(main)


def test_an_answer_that_came_while_the_parent_was_dead_is_the_result():
    async def main():
        office = Office().hold()
        async with office.scene() as s:
            submission = await s.root.submit("go")
            await office.started.wait()
            [child] = await children(s)
            s.system.kill(f"task:s/{await subagent_task(s)}")
            office.free.set()
            await child.wait_for_idle()
            assert (await answered(submission)).answer.text == "report: beans counted"
            assert len(office.asked) == 2

    go(main)


class ChildHook(Faults):
    """Fails a write of a child's first life, before or after storing it: that which makes it, or that which asks it."""

    def __init__(self, what, when):
        super().__init__(perdure.MemoryStorage())
        self._what, self._when = what, when

    async def write(self, batches):
        records = [w for b in batches for w in b.writes]
        owned = any(getattr(w, "owner", None) and type(w).__name__ == "ConversationRecord" for w in records)
        asked = any(str(getattr(w, "request_id", "")).startswith("subagent:") for w in records)
        if self._when and (owned if self._what == "made" else asked):
            self.fail(self.writes + 1, self._when)
            self._when = None
        await super().write(batches)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["made", "asked"])
def test_a_crash_between_making_a_child_and_asking_it_makes_no_second_one(what, when):
    """B025."""

    async def main():
        office = Office()
        async with office.scene(storage=ChildHook(what, when)) as s:
            settled = await answered(await s.root.submit("go"))
            assert settled.answer.text == "report: beans counted"
            [child] = await children(s)
            assert kinds(await history(child)).count("user") == 1

    go(main)


# --- failure


def test_a_child_that_waits_for_a_retry_is_woken_while_its_parents_call_runs():
    """B071."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        failures = [error_info("overloaded", "busy")]
        office = Office(clerk=lambda request: failures.pop() if failures else Office._work(request))
        async with office.scene(clock=clock) as s:
            began = clock.now()
            assert (await s.ask("go")).answer.text == "report: beans counted"
            assert 2_000 <= clock.now() - began <= 2_200

    go(main)


def test_a_child_that_fails_gives_an_error_result_and_the_parent_goes_on():
    """B052."""

    async def main():
        office = Office(clerk=lambda request: error_info("invalid_request", "no such thing"))
        async with office.scene() as s:
            answer = (await s.ask("go")).answer.text
            assert "the subagent ended without an answer: model_error" in answer
            [result] = await results(s.root)
            assert result.is_error
            [child] = await children(s)
            assert result.details == {"conversationId": child.id}
            assert kinds(await history(child)) == ["user", "system", "assistant"]
            assert (await s.ask("are you there?")).answer.text == "yes, are you there?"

    go(main)


def test_a_child_without_a_model_gives_an_error_result():
    """B052: there is not even a first token."""

    async def main():
        office = Office()
        tool = perdure.subagent(perdure.Agent(model="nobody/there"))
        async with office.scene(subagent=tool) as s:
            assert "no_model" in (await s.ask("go")).answer.text

    go(main)


def test_a_child_that_somebody_aborts_gives_an_error_result():
    async def main():
        office = Office().hold()
        async with office.scene() as s:
            submission = await s.root.submit("go")
            await office.started.wait()
            [child] = await children(s)
            await child.abort()
            assert "ended without an answer: aborted" in (await submission.wait()).answer.text
            assert await s.session.tasks() == []

    go(main)


def test_when_the_call_fails_the_childs_work_is_aborted():
    """SC-21: nobody supervises it any more."""

    async def main():
        office = Office().hold()

        @perdure.tool
        async def hasty(ctx: perdure.ToolContext, task: str) -> str:
            """Ask a clerk and lose patience."""
            async with ctx.commit() as tx:
                child = await tx.create_conversation(owner=ctx.task_id)
            await ctx.conversation(child.id).submit(task)
            await office.started.wait()
            raise TimeoutError("too slow")

        office_brain = office.brain

        def brain(request):
            answer = office_brain(request)
            return [call("hasty", task="count the beans")] if isinstance(answer, list) else answer

        async with scene(brain, tools=[office.tool, hasty]) as s:
            assert "too slow" in (await s.ask("go")).answer.text
            [child] = await children(s)
            assert await s.session.tasks() == []
            [result] = await results(child)
            assert "was aborted" in plain_text(result.content)
            assert await child.live() == {}

    go(main)


# --- aborting


def test_an_abort_of_the_parent_aborts_the_child_from_the_bottom_up(storage):
    """B049, SC-25, SC-29."""

    async def main():
        office = Office("one", "two").hold()
        async with office.scene(storage=storage) as s:
            submission = await s.root.submit("go")
            while len(await children(s)) < 2 or len([r for r in await s.session.tasks() if r.kind == "pi.tool"]) < 4:
                await quiet(1)
            await office.started.wait()
            ids = [record.id for record in await s.session.tasks()]
            await s.root.abort()
            assert (await submission.wait()).reason == "aborted"
            assert await s.session.tasks() == []
            records = [await (await s.session.task(task)).record() for task in ids]
            assert {type(record.state.outcome) for record in records} == {perdure.Aborted}
            for record in records:
                owned = [one for one in records if one.owner == record.id]
                assert all(one.ended_at <= record.ended_at for one in owned)
            for child in await children(s):
                assert await child.live() == {}
                [last] = await results(child)
                assert "was aborted" in plain_text(last.content)
            assert all("was aborted" in plain_text(m.content) for m in await results(s.root))
            assert office.worked == []
            assert (await s.ask("are you there?")).answer.text == "yes, are you there?"

    go(main)


def test_work_that_comes_for_the_child_while_the_abort_is_under_way_never_runs():
    """B050."""

    async def main():
        cleaning, cleaned = asyncio.Event(), asyncio.Event()
        office = Office()

        @perdure.tool(name="work")
        async def slow_to_end() -> str:
            """Work."""
            try:
                await asyncio.Event().wait()
            finally:
                cleaning.set()
                await cleaned.wait()

        office.tool = slow_to_end
        async with office.scene() as s:
            await s.root.submit("go")
            await seen(s.root, lambda v: any("details" in t for t in v["docs"]["pi.live"].get("tools", ())))
            [child] = await children(s)
            await seen(child, lambda v: any(t["status"] == "running" for t in v["docs"]["pi.live"].get("tools", ())))
            await quiet()
            aborting = asyncio.ensure_future(s.root.abort())
            await cleaning.wait()
            asked = len(office.asked)
            with pytest.raises(perdure.OwnershipRefused, match="abort-marked"):
                await child.submit("one more thing")
            cleaned.set()
            await aborting
            assert await s.session.tasks() == []
            assert len(office.asked) == asked

    go(main)


def test_an_abort_withdraws_what_is_queued_for_the_child():
    async def main():
        office = Office().hold()
        async with office.scene() as s:
            await s.root.submit("go")
            await office.started.wait()
            [child] = await children(s)
            queued = await child.submit("and the peas", when_busy="steer")
            await s.root.abort()
            assert (await queued.wait()).reason == "aborted"

    go(main)


def test_an_abort_of_a_streaming_child_keeps_what_it_had_said():
    """B080."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        office = Office(clerk=lambda request: ["I have counted so far", Pause(10**8)])
        async with office.scene(clock=clock, tokens_per_second=50) as s:
            await s.root.submit("go")
            await seen(s.root, lambda v: any("details" in t for t in v["docs"]["pi.live"].get("tools", ())))
            [child] = await children(s)
            await seen(child, lambda v: "message" in v["docs"]["pi.live"].get("generation", {}))
            await s.root.abort()
            last = from_json((await history(child))[-1].model[0])
            assert last.stop_reason == "aborted"
            assert "I have counted so far".startswith(plain_text(last.content))

    go(main)


def test_a_steer_to_the_child_reaches_the_child_and_no_one_else():
    """B065."""

    async def main():
        office = Office(clerk=lambda r: Office._work(r) if len(r.messages) < 4 else f"heard {r.messages[-1].content}")
        office.hold()
        async with office.scene() as s:
            submission = await s.root.submit("go")
            await office.started.wait()
            [child] = await children(s)
            await child.submit("hurry", when_busy="steer")
            office.free.set()
            assert (await submission.wait()).answer.text == "heard hurry"
            assert kinds(await history(s.root)).count("user") == 1

    go(main)


def test_of_three_children_a_steer_reaches_the_one_it_names_and_one_that_has_ended_refuses_it():
    """B065: every target is definite, and what became of each message is recorded."""

    async def main():
        def clerk(request):
            said = [plain_text(m.content) for m in request.messages if isinstance(m, UserMessage)]
            if said[0] == "b" and not any(isinstance(m, ToolResultMessage) for m in request.messages):
                return call("work")
            return f"{said[0]} heard {said[1:]}"

        office = Office("a", "b", "c", clerk=clerk).hold()
        async with office.scene() as s:
            submission = await s.root.submit("go")
            await office.started.wait()
            a, b, c = await children(s)
            for ended in (a, c):
                owner = await s.session.task((await ended._core())._conversations[ended.id].owner.task_id)
                await owner.settled()
            steer = await b.submit("hurry", when_busy="steer")
            to_parent = await s.root.submit("and you", when_busy="steer")
            before = len(await history(a))
            with pytest.raises(perdure.OwnershipRefused):
                await a.submit("too late", when_busy="steer")
            assert len(await history(a)) == before
            office.free.set()
            assert (await steer.wait()).answer.text == "b heard ['hurry']"
            assert (await to_parent.wait()).status == "done"
            texts = sorted(r.content[0].text for r in await results(s.root))
            assert texts == ["a heard []", "b heard ['hurry']", "c heard []"]
            assert (await submission.wait()).status == "done"

    go(main)
