import perdure
import pytest
from perdure.actors.agent.usage import add
from perdure.actors.conversation.builtin import UsageDoc
from perdure.actors.models import AssistantMessage, Cost, Pause, Usage, call, error_info, text, to_json
from perdure.actors.models.messages import Text

from ..conversation.support import answering, go, quiet, scene, seen


def spent(input, output, **options):
    return Usage(input=input, output=output, total_tokens=input + output, **options)


def answer(usage, *content, **options):
    return AssistantMessage(content=list(content) or [Text(text="x")], usage=usage, **options)


async def ledger(conversation):
    return await conversation.snapshot(UsageDoc)


def test_numbers_add_up_field_by_field_and_flags_stay_true():
    first = {"input": 1, "cost": {"total": 0.5, "priced": True}, "estimated": True}
    second = {"input": 2, "cost": {"total": 0.25}, "estimated": False, "reasoning": 7}
    assert add(first, second) == {
        "input": 3,
        "cost": {"total": 0.75, "priced": True},
        "estimated": True,
        "reasoning": 7,
    }
    assert first["input"] == 1


def test_every_answer_counts_under_its_model_and_raw_usage_is_left_out():
    """US-01."""

    async def main():
        usage = spent(10, 5, cost=Cost(total=0.5, priced=True), raw={"x": 1}, cache_write_1h=3)
        async with scene(answering(answer(usage))) as s:
            await s.ask()
            await s.ask()
            assert (await ledger(s.root))["models"] == {
                "scripted/model": {
                    "input": 20,
                    "output": 10,
                    "cacheRead": 0,
                    "cacheWrite": 0,
                    "cacheWrite1h": 6,
                    "totalTokens": 30,
                    "cost": {
                        "input": 0.0,
                        "output": 0.0,
                        "cacheRead": 0.0,
                        "cacheWrite": 0.0,
                        "total": 1.0,
                        "priced": True,
                    },
                }
            }

    go(main)


def test_failed_tries_count():
    """US-01, B157."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        failing = answer(spent(7, 0), stop_reason="error", error=error_info("overloaded", "busy"))
        async with scene(answering(failing, failing, answer(spent(7, 2))), clock=clock) as s:
            assert (await s.ask()).status == "done"
            assert (await ledger(s.root))["models"]["scripted/model"]["totalTokens"] == 23

    go(main)


def test_an_aborted_stream_counts_what_it_had_used_marked_as_an_estimate():
    """US-01, B157."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        async with scene(answering(["some text", Pause(10**7)]), clock=clock, tokens_per_second=20) as s:
            await s.root.submit("x")
            await seen(s.root, lambda v: "message" in v["docs"]["pi.live"].get("generation", {}))
            await s.root.abort()
            used = (await ledger(s.root))["models"]["scripted/model"]
            assert used["input"] > 0
            assert used["output"] > 0
            assert used["estimated"] is True

    go(main)


def test_what_a_tool_spends_counts_under_its_name():
    async def main():
        @perdure.tool
        def think() -> perdure.ToolResult:
            """Think."""
            return perdure.ToolResult(content="thought", usage=spent(3, 4))

        async with scene(answering([call("think"), call("think")], "ok"), tools=[think]) as s:
            await s.ask()
            await quiet()
            assert (await ledger(s.root))["tools"]["think"]["totalTokens"] == 14

    go(main)


@pytest.mark.parametrize("by", ["tool", "model"])
def test_nobody_gives_back_what_was_spent(by):
    """P11: with negative numbers, from wherever they come, a budget would grow."""
    gift = Usage(input=-7, total_tokens=-7, reasoning=-1, cost=Cost(total=-1.0, priced=True))

    async def main():
        @perdure.tool
        async def think() -> perdure.ToolResult:
            """Think."""
            return perdure.ToolResult(content="thought", usage=gift if by == "tool" else spent(1, 0))

        asks = answer(gift if by == "model" else spent(1, 0), call("think", "c1"))
        async with scene(answering(asks, answer(spent(3, 4))), tools=[think]) as s:
            await s.root.set_budget(perdure.Budget(tokens=100, cost=1.0))
            await s.ask()
            state = await s.root.budget()
            assert (state.tokens, state.cost) == (8, 0.0)
            report = await s.root.usage()
            counted = [*report.models.values(), *report.tools.values()]
            assert sum(one.total_tokens for one in counted) == 8
            assert all((one.input, one.cost.total) >= (0, 0.0) for one in counted)

    go(main)


def test_a_conversation_counts_its_own_spend_only():
    """US-05."""

    async def main():
        async with scene() as s:
            other = await s.session.create_conversation(agent=perdure.Agent(model="scripted/model"))
            await s.ask()
            assert await ledger(other) == {"models": {}, "tools": {}}
            entry = (await s.root.entries()).items[0]
            total = (await ledger(s.root))["models"]["scripted/model"]["totalTokens"]
            assert entry.model[0]["usage"]["totalTokens"] == total
            assert to_json(answer(spent(1, 1), text("x")))["usage"]["input"] == 1

    go(main)
