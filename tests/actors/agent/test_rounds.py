import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.agent.rounds import Verdict, verdict
from perdure.actors.models import call
from perdure.storage.records import Aborted, Completed, Failed, Faulted, OutcomeError

from ..conversation.support import answering, go, history, kinds, scene


def completed(*add, terminate=False):
    return Completed(result={"entryId": 1, "addTools": list(add), "terminate": terminate})


FAILED = Failed(error=OutcomeError(message="x"), result={"entryId": 1, "addTools": ["no"], "terminate": True})
OTHERS = [FAILED, Aborted(result={"entryId": 1}), Faulted(error=OutcomeError(message="x"))]


def test_a_round_ends_the_run_only_if_every_call_had_a_task_that_completed_asking_for_it():
    """GE-39: a call answered without a task vetoes it."""
    stop = completed(terminate=True)
    assert verdict(2, [stop, stop]).terminate
    assert not verdict(2, [stop, completed()]).terminate
    assert not verdict(2, [stop]).terminate
    assert not verdict(0, []).terminate
    for other in OTHERS:
        assert not verdict(2, [stop, other]).terminate


def test_tools_are_added_by_all_calls_that_completed_and_by_no_other():
    """GE-39."""
    assert verdict(3, [completed("a", "b"), FAILED, completed("b", "c")]) == Verdict(["a", "b", "c"], terminate=False)


@given(st.lists(st.sampled_from([completed("a"), completed("b", terminate=True), completed(terminate=True), *OTHERS])))
def test_the_verdict_adds_nothing_that_nobody_asked_for(outcomes):
    judged = verdict(len(outcomes), outcomes)
    asked = {name for one in outcomes if isinstance(one, Completed) for name in one.result["addTools"]}
    assert set(judged.add_tools) == asked
    assert len(judged.add_tools) == len(asked)
    ends = [isinstance(one, Completed) and one.result["terminate"] for one in outcomes]
    assert judged.terminate == (ends != [] and all(ends))


@perdure.tool
async def finish(stop: bool = True) -> perdure.ToolResult:
    """Finish."""
    return perdure.ToolResult(content="finished", terminate=stop)


def test_a_run_ends_with_the_round_when_all_of_its_calls_ask_for_it():
    """GE-39: the input is answered by the message that made the calls, and the model is not asked again."""

    async def main():
        brain = answering([call("finish", "c1"), call("finish", "c2")])
        async with scene(brain, tools=[finish]) as s:
            settled = await s.ask()
            assert settled.answer.message.stop_reason == "toolUse"
            assert len(s.model.calls) == 1
            assert kinds(await history(s.root)) == ["user", "system", "assistant", "tool-result", "tool-result"]
            assert await s.root.live() == {}
            await s.session.wait_for_idle()
            again = await s.root.submit("more")
            assert (await again.wait()).status == "done"

    go(main)


@pytest.mark.parametrize(
    "other", [call("finish", "c2", stop=False), call("gone", "c2"), call("finish", "c2", stop="?")]
)
def test_one_call_that_does_not_ask_for_it_lets_the_run_go_on(other):
    """GE-39."""

    async def main():
        async with scene(answering([call("finish", "c1"), other], "on"), tools=[finish]) as s:
            assert (await s.ask()).text == "on"

    go(main)


def test_what_waits_in_the_inbox_is_answered_after_a_run_that_its_tools_ended():
    async def main():
        async def queue(ctx: perdure.ToolContext) -> perdure.ToolResult:
            """Queue."""
            await ctx.conversation().submit("next")
            return perdure.ToolResult(content="ok", terminate=True)

        async with scene(answering([call("queue", "c1")], "second"), tools=[perdure.tool(queue)]) as s:
            assert (await s.ask()).answer.message.stop_reason == "toolUse"
            await s.session.wait_for_idle()
            assert kinds(await history(s.root))[-2:] == ["user", "assistant"]

    go(main)


def test_tools_that_a_call_adds_are_offered_from_the_next_request_on():
    """GE-39, PR-10: the change is a system entry, and it stays with the conversation."""

    async def main():
        @perdure.tool
        async def unlock() -> perdure.ToolResult:
            """Unlock."""
            return perdure.ToolResult(content="unlocked", add_tools=["finish", "missing"])

        brain = answering([call("unlock", "c1")], [call("finish", "c2")])
        async with scene(brain, tools=[unlock, finish]) as s:
            await s.root.configure(perdure.Agent(tools=["unlock"]))
            await s.ask()
            assert (await s.root.snapshot(perdure.AgentDoc))["tools"] == ["unlock", "finish", "missing"]
            assert kinds(await history(s.root))[-3:] == ["system", "assistant", "tool-result"]

    go(main)


def test_a_conversation_that_is_offered_everything_needs_no_adding():
    async def main():
        @perdure.tool
        async def unlock() -> perdure.ToolResult:
            """Unlock."""
            return perdure.ToolResult(add_tools=["finish"])

        async with scene(answering([call("unlock", "c1")], "ok"), tools=[unlock, finish]) as s:
            await s.ask()
            assert "tools" not in await s.root.snapshot(perdure.AgentDoc)

    go(main)
