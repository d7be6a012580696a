import perdure
import pytest
from perdure.actors.conversation.builtin import UsageDoc
from perdure.actors.models import AssistantMessage, Cost, ToolResultMessage, Usage, call, plain_text, text

from .support import MODEL, go, scene


def spending(*content, tokens=10, cost=0.5):
    """An answer that has cost something."""
    usage = Usage(input=tokens, total_tokens=tokens, cost=Cost(total=cost, priced=True))
    return AssistantMessage(content=list(content) or [text("ok")], usage=usage)


def delegating(depth):
    """A model that delegates until it is ``depth`` deep, every answer at 10 tokens and half a dollar."""

    def brain(request):
        asked = plain_text(next(m for m in request.messages if m.__class__.__name__ == "UserMessage").content)
        level = int(asked.split()[-1]) if asked.split()[-1].isdigit() else 0
        answered = any(isinstance(m, ToolResultMessage) for m in request.messages)
        if level < depth and not answered:
            return spending(call("subagent", task=f"level {level + 1}"))
        return spending(text(f"done {level}"))

    return brain


NESTED = perdure.Agent(model=MODEL)


def nested():
    """A subagent that has subagents itself."""
    return perdure.subagent(perdure.Agent(tools=["subagent"]))


async def numbers(report):
    return (await report).total.total_tokens, (await report).total.cost.total, (await report).turns


def test_a_conversations_usage_is_its_own_and_with_its_subtree_all_that_was_spent_for_it():
    """US-01, US-04: three levels of agents, 2 + 2 + 1 answers."""

    async def main():
        async with scene(delegating(2), tools=[nested()]) as s:
            assert (await s.ask("level 0")).answer.text == "done 0"
            own, all_of_it = await s.root.usage(), await s.root.usage(subtree=True)
            assert (own.turns, own.total.total_tokens, own.total.cost.total) == (2, 20, 1.0)
            assert (all_of_it.turns, all_of_it.total.total_tokens, all_of_it.total.cost.total) == (5, 50, 2.5)
            assert all_of_it.models == {MODEL: all_of_it.total}
            assert all_of_it.total.cost.priced

    go(main)


def test_a_sessions_usage_is_that_of_all_its_conversations(storage):
    """US-04."""

    async def main():
        async with scene(delegating(1), tools=[nested()], storage=storage) as s:
            await s.ask("level 0")
            other = await s.session.create_conversation(agent=NESTED)
            await (await other.submit("level 1")).wait()
            assert (await s.session.usage()).turns == 4
        async with scene(delegating(1), tools=[nested()], storage=storage) as s:
            total = await s.session.usage()
            assert (total.turns, total.total.total_tokens) == (4, 40)

    go(main)


def test_more_conversations_than_a_page_are_summed(monkeypatch):
    """US-04."""

    async def main():
        monkeypatch.setattr("perdure.actors.conversation.ledger.PAGE", 2)
        async with scene(delegating(0)) as s:
            for _ in range(5):
                other = await s.session.create_conversation(agent=NESTED)
                await (await other.submit("level 0")).wait()
            assert (await s.session.usage()).turns == 5

    go(main)


def test_what_tools_spend_is_summed_by_tool_and_in_the_total():
    async def main():
        @perdure.tool
        def think() -> perdure.ToolResult:
            """Think."""
            return perdure.ToolResult(content="x", usage=Usage(total_tokens=7, cost=Cost(total=0.25)))

        async with scene(lambda r: call("think") if len(r.messages) < 4 else "ok", tools=[think]) as s:
            await s.ask("x")
            usage = await s.root.usage()
            assert usage.tools["think"].total_tokens == 7
            assert usage.total.total_tokens == 7 + usage.models[MODEL].total_tokens

    go(main)


def test_nothing_was_spent_where_nobody_asked():
    """US-05."""

    async def main():
        async with scene() as s:
            assert await s.root.usage(subtree=True) == await s.session.usage() == perdure.UsageReport()
            assert (await s.root.usage()).total == Usage()
            assert await s.root.snapshot(UsageDoc) == {"models": {}, "tools": {}}
            with pytest.raises(perdure.UnknownRecord):
                await perdure.Conversation(s.system.services, "s", 99).usage()

    go(main)
