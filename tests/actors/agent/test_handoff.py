import perdure
import pytest
from perdure.actors.agent.rounds import verdict
from perdure.actors.models import SystemMessage, call, from_json, plain_text
from perdure.storage.records import Completed, Failed, OutcomeError

from ..conversation.support import answering, echo, go, history, kinds, problems, scene


def completed(**asked):
    return Completed(result={"entryId": 1, **asked})


@perdure.tool
async def leave(note: str) -> perdure.ToolResult:
    """Hand off."""
    return perdure.ToolResult(content="left", handoff=note)


@perdure.tool
async def stay() -> str:
    """Stay."""
    return "stayed"


def texts(request):
    return [plain_text(m.content) for m in request.messages if not isinstance(m, SystemMessage)]


def test_of_several_handoffs_the_last_in_call_order_wins_and_only_of_calls_that_completed():
    """GE-39."""
    failed = Failed(error=OutcomeError(message="x"), result={"entryId": 1, "handoff": "no"})
    assert verdict(3, [completed(handoff="a"), completed(handoff="b"), failed]).handoff == "b"
    assert verdict(1, [failed]).handoff is None
    assert verdict(2, [completed(handoff="a"), completed()]).terminate
    assert not verdict(2, [failed, completed()]).terminate


def test_a_tools_handoff_ends_the_run_and_begins_the_context_anew(storage):
    """GE-39, SI-16: the input is answered by the message that made the calls; the model is not asked again for it."""

    async def main():
        brain = answering([call("stay", "c1"), call("leave", "c2", note="take over from here")], echo)
        async with scene(brain, tools=[leave, stay], storage=storage) as s:
            settled = await s.ask("go")
            assert (settled.status, settled.answer.message.stop_reason) == ("done", "toolUse")
            assert len(s.model.calls) == 1
            assert kinds(await history(s.root)) == [
                "user", "system", "assistant", "tool-result", "tool-result", "reset",
            ]  # fmt: skip
            reset = (await history(s.root))[-1]
            assert (reset.head, from_json(reset.model[0]).content) == (reset.id, "take over from here")
            assert await s.root.live() == {}
            assert (await s.ask("next")).text == "re: next"
            request = s.model.calls[-1]
            assert texts(request) == ["take over from here", "next"]
            assert {tool.name for tool in request.messages[0].tools_added} == {"leave", "stay"}
            assert problems(request.messages) == []

    go(main)


def test_what_waits_is_answered_in_the_new_context():
    """SI-13, SI-16: a handoff's end applies the final boundary, behind the reset."""

    @perdure.tool
    async def queue(ctx: perdure.ToolContext) -> str:
        """Queue."""
        await ctx.conversation().submit("later")
        return "queued"

    async def main():
        brain = answering([call("queue", "c1"), call("leave", "c2", note="new")], echo)
        async with scene(brain, tools=[leave, queue]) as s:
            await s.ask("go")
            await s.root.wait_for_idle()
            assert texts(s.model.calls[-1]) == ["new", "later"]
            assert kinds(await history(s.root))[-4:] == ["reset", "user", "system", "assistant"]

    go(main)


@pytest.mark.parametrize("note", ["", " "])
def test_a_handoff_that_says_nothing_is_a_reset(note):
    async def main():
        async with scene(answering([call("leave", "c1", note=note)], echo), tools=[leave]) as s:
            await s.ask("go")
            assert (await history(s.root))[-1].model is None
            assert (await s.root.context()).messages == []
            assert (await s.ask("next")).text == "re: next"

    go(main)


def test_a_conversation_can_be_handed_off_by_its_holder():
    """SI-09: a write of a self-headed entry with the text as a user's message; it starts nothing by itself."""

    async def main():
        async with scene(echo) as s:
            await s.ask("one")
            settled = await (await s.root.handoff("go on from here", request_id="h")).wait()
            again = await (await s.root.handoff("go on from here", request_id="h")).wait()
            assert settled.record == again.record
            assert settled.status == "done"
            assert len(s.model.calls) == 1
            await s.ask("two")
            assert texts(s.model.calls[-1]) == ["go on from here", "two"]

    go(main)
