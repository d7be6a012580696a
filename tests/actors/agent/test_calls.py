import asyncio

import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.models import ToolResultMessage, call, from_json, plain_text
from structlog.testing import capture_logs

from ..conversation.support import calling, echo, go, history, problems, quiet, scene, seen

PAY = calling(call("pay", "c1", amount=5))


class Payments:
    """A tool whose calls are asked about first."""

    def __init__(self, approval="always", **options):
        self.paid = []

        async def pay(ctx: perdure.ToolContext, amount: int, to: str = "me") -> str:
            """Pay."""
            self.paid.append((amount, to))
            return f"paid {amount}"

        self.tool = perdure.tool(approval=approval, **options)(pay)


def asking(view, count=1):
    return sum("approval" in slot for slot in view["docs"]["pi.live"].get("tools", ())) >= count


async def asked(conversation, count=1):
    """Wait until calls wait for approval, and give what is asked, by call id."""
    view = await seen(conversation, lambda value: asking(value, count))
    slots = view["docs"]["pi.live"]["tools"]
    return {slot["callId"]: slot["approval"] for slot in slots if "approval" in slot}


async def result_of(conversation, call_id="c1"):
    messages = [from_json(one.model[0]) for one in await history(conversation) if one.model]
    found = [one for one in messages if isinstance(one, ToolResultMessage) and one.tool_call_id == call_id]
    assert len(found) == 1
    return found[0]


async def persist(act):
    """Do something through any number of deaths of the session."""
    while True:
        try:
            return await act()
        except perdure.SessionFailed:
            await asyncio.sleep(0)


# --- the hash


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.integers())))
def test_a_hash_is_of_the_arguments_whatever_their_order(arguments):
    backwards = dict(reversed(arguments.items()))
    assert perdure.arguments_hash("t", arguments) == perdure.arguments_hash("t", backwards)
    assert perdure.arguments_hash("t", arguments) != perdure.arguments_hash("u", arguments)
    assert perdure.arguments_hash("t", arguments) != perdure.arguments_hash("t", {**arguments, "more\0": 1})


# --- approval


def test_a_call_waits_without_memory_until_it_is_approved_and_runs_once_with_those_arguments():
    """B113, P11."""

    async def main():
        payments = Payments()
        async with scene(PAY, tools=[payments.tool]) as s:
            submission = await s.root.submit("x")
            [shown] = (await asked(s.root)).values()
            assert shown["arguments"] == {"amount": 5}
            assert shown["hash"] == perdure.arguments_hash("pay", {"amount": 5})
            assert await no_task_runs(s.system)
            assert await s.system.next_deadline() is None
            assert payments.paid == []
            await s.root.approve("c1", shown["hash"])
            assert (await submission.wait()).text == "paid 5"
            assert payments.paid == [(5, "me")]
            assert await s.root.live() == {}

    go(main)


async def no_task_runs(system):
    """Whether all tasks have left memory, as a parked one does once its last commit is stored."""
    await quiet()
    return not [one for one in flat(system.inspect().actors) if one["id"].startswith("task:")]


def flat(actors):
    return [found for one in actors for found in (one, *flat(one.get("children", ())))]


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_an_open_approval_survives_a_restart(storage, decision):
    """B113: the same call with the same arguments runs once; a rejection gives a result to the model."""

    async def main():
        payments = Payments()
        async with scene(PAY, storage=storage, tools=[payments.tool]) as s:
            submission = await s.root.submit("x")
            await asked(s.root)
        async with scene(PAY, storage=storage, tools=[payments.tool]) as s:
            [shown] = (await asked(s.root)).values()
            await getattr(s.root, decision)("c1", shown["hash"])
            told = (await (await s.session.submission(submission.id)).wait()).text
            if decision == "approve":
                assert (told, payments.paid) == ("paid 5", [(5, "me")])
            else:
                assert "Tool pay was denied" in told
                assert payments.paid == []

    go(main)


@pytest.mark.parametrize("who", ["session:s", "storage", "sessions"])
def test_an_open_approval_survives_the_death_of_its_session(who):
    """B113."""

    async def main():
        payments = Payments()
        async with scene(PAY, tools=[payments.tool]) as s:
            submission = await s.root.submit("x")
            [shown] = (await asked(s.root)).values()
            assert s.system.kill(who)
            await persist(lambda: s.root.approve("c1", shown["hash"]))
            assert (await persist(submission.wait)).text == "paid 5"
            assert payments.paid == [(5, "me")]

    go(main)


def test_a_denial_tells_the_model_the_reason_and_the_run_goes_on():
    async def main():
        payments = Payments()
        async with scene(PAY, tools=[payments.tool]) as s:
            submission = await s.root.submit("x")
            [shown] = (await asked(s.root)).values()
            await s.root.deny("c1", shown["hash"], reason="too much")
            assert "Tool pay was denied: too much" in (await submission.wait()).text
            assert (await result_of(s.root)).is_error

    go(main)


def test_an_approval_of_other_arguments_or_of_no_call_is_refused_and_the_call_waits_on():
    """B116, P11: typed errors, nothing changed."""

    async def main():
        payments = Payments()
        async with scene(PAY, tools=[payments.tool]) as s:
            submission = await s.root.submit("x")
            [shown] = (await asked(s.root)).values()
            for decide in (s.root.approve, s.root.deny):
                with pytest.raises(perdure.ApprovalMismatch):
                    await decide("c1", perdure.arguments_hash("pay", {"amount": 50}))
                with pytest.raises(perdure.UnknownCall):
                    await decide("c2", shown["hash"])
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.complete_call("c1", "paid")
            assert await asked(s.root) == {"c1": shown}
            await s.root.approve("c1", shown["hash"])
            await submission.wait()
            assert payments.paid == [(5, "me")]

    go(main)


def test_an_approval_is_used_once():
    """B116: the second answer is refused, while the call runs, when it has ended, and in later turns."""

    async def main():
        payments = Payments()
        async with scene(PAY, tools=[payments.tool]) as s:
            submission = await s.root.submit("x")
            [shown] = (await asked(s.root)).values()
            deciding = [s.root.approve("c1", shown["hash"]) for _ in range(5)] + [s.root.deny("c1", shown["hash"])]
            ended = await asyncio.gather(*deciding, return_exceptions=True)
            assert ended[0] is None
            assert all(isinstance(one, perdure.CallNotWaiting) for one in ended[1:])
            await submission.wait()
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.approve("c1", shown["hash"])
            assert payments.paid == [(5, "me")]

    go(main)


def test_parallel_calls_are_decided_one_by_one_in_any_order():
    """B116: each answer reaches its question, restart in between."""

    async def main():
        payments, storage = Payments(), perdure.MemoryStorage()
        brain = calling(*(call("pay", f"c{n}", amount=n) for n in (1, 2, 3)))
        async with scene(brain, storage=storage, tools=[payments.tool]) as s:
            submission = await s.root.submit("x")
            shown = await asked(s.root, 3)
            await s.root.approve("c3", shown["c3"]["hash"])
        async with scene(brain, storage=storage, tools=[payments.tool]) as s:
            await s.root.deny("c2", shown["c2"]["hash"])
            await s.root.approve("c1", shown["c1"]["hash"])
            told = (await (await s.session.submission(submission.id)).wait()).text.split(" | ")
            assert (told[0], told[2]) == ("paid 1", "paid 3")
            assert "denied" in told[1]
            assert sorted(payments.paid) == [(1, "me"), (3, "me")]

    go(main)


def test_nothing_but_an_approver_expiry_or_an_abort_ends_the_wait():
    """B115: steer, follow-up, another model and other tools leave it open."""

    async def main():
        payments = Payments()
        other = perdure.ScriptedModel(echo, name="scripted/other")
        async with scene(PAY, tools=[payments.tool], models=[other]) as s:
            submission = await s.root.submit("x")
            shown = await asked(s.root)
            await s.root.submit("steer", when_busy="steer")
            await s.root.submit("follow", when_busy="follow_up")
            await s.root.configure(perdure.Agent(model="scripted/other"))
            s.system.registry.install(perdure.Extension(name="more"))
            assert await asked(s.root) == shown
            await s.root.approve("c1", shown["c1"]["hash"])
            assert (await submission.wait()).status == "done"
            assert payments.paid[0] == (5, "me")
            await s.root.abort()

    go(main)


def test_an_approval_that_nobody_gives_in_time_is_a_denial_also_after_a_restart(storage):
    """B115: expiry; the deadline is stored."""

    async def main():
        payments, clock = Payments(approval_timeout_s=3_600), perdure.VirtualClock()
        async with scene(PAY, storage=storage, tools=[payments.tool], clock=clock) as s:
            submission = await s.root.submit("x")
            [shown] = (await asked(s.root)).values()
            assert await s.system.next_deadline() == clock.now() + 3_600_000
        async with scene(PAY, storage=storage, tools=[payments.tool], clock=clock) as s:
            clock.advance(3_600)
            told = (await (await s.session.submission(submission.id)).wait()).text
            assert "Tool pay was not approved in time" in told
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.approve("c1", shown["hash"])
            assert payments.paid == []

    go(main)


def test_an_abort_ends_the_wait_and_no_approval_counts_any_more():
    """B115."""

    async def main():
        payments = Payments()
        async with scene(PAY, tools=[payments.tool]) as s:
            submission = await s.root.submit("x")
            [shown] = (await asked(s.root)).values()
            await s.root.abort()
            assert (await submission.wait()).reason == "aborted"
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.approve("c1", shown["hash"])
            assert "Tool pay was aborted" in plain_text((await result_of(s.root)).content)
            assert payments.paid == []
            assert problems((await s.root.context()).messages) == []

    go(main)


@pytest.mark.parametrize("policy", [lambda one: one.arguments["amount"] > 10, lambda one: asyncio.sleep(0, "")])
def test_a_policy_says_which_calls_are_asked_about(policy):
    async def main():
        payments = Payments(policy)
        async with scene(PAY, tools=[payments.tool]) as s:
            assert (await s.ask()).text == "paid 5"

    go(main)


def test_a_policy_that_fails_has_somebody_asked():
    """B178: it fails closed."""

    async def main():
        payments = Payments(lambda one: 1 / 0)
        async with scene(PAY, tools=[payments.tool]) as s:
            with capture_logs() as logs:
                submission = await s.root.submit("x")
                [shown] = (await asked(s.root)).values()
            assert "approval_policy_failed" in [one["event"] for one in logs]
            await s.root.approve("c1", shown["hash"])
            assert (await submission.wait()).text == "paid 5"

    go(main)


def test_what_a_hook_makes_of_the_arguments_is_what_is_approved_and_run():
    """A changed argument needs an approval of its own: the hash is of what will run."""

    async def main():
        payments = Payments()
        hooks = perdure.Hooks(before_tool=lambda ctx, one: {**one.arguments, "to": "you"})
        async with scene(PAY, tools=[payments.tool], extensions=[perdure.Extension(name="h", hooks=hooks)]) as s:
            submission = await s.root.submit("x")
            [shown] = (await asked(s.root)).values()
            with pytest.raises(perdure.ApprovalMismatch):
                await s.root.approve("c1", perdure.arguments_hash("pay", {"amount": 5}))
            await s.root.approve("c1", shown["hash"])
            await submission.wait()
            assert payments.paid == [(5, "you")]

    go(main)


@pytest.mark.parametrize("change", ["removed", "schema"])
def test_a_tool_that_has_changed_while_its_call_waited_is_answered_with_that(change):
    """B118."""

    async def main():
        payments = Payments()
        async with scene(PAY, tools=[payments.tool]) as s:
            submission = await s.root.submit("x")
            [shown] = (await asked(s.root)).values()

            @perdure.tool
            async def pay(sum: str) -> str:
                """Pay."""
                payments.paid.append(sum)
                return "paid"

            tools = [] if change == "removed" else [pay]
            s.system.registry.install(perdure.Extension(name="kit", tools=tools))
            await s.root.approve("c1", shown["hash"])
            told = (await submission.wait()).text
            assert ("is not available" if change == "removed" else "Validation failed") in told
            assert payments.paid == []

    go(main)


def test_approved_code_that_a_crash_interrupts_is_not_run_again_unless_it_is_safe():
    """B091: the approval was for one execution."""

    async def main():
        arrived, runs = asyncio.Event(), []

        @perdure.tool(approval="always")
        async def pay(amount: int) -> str:
            """Pay."""
            runs.append(amount)
            arrived.set()
            await asyncio.Event().wait()
            return "paid"

        async with scene(PAY, tools=[pay]) as s:
            submission = await s.root.submit("x")
            [shown] = (await asked(s.root)).values()
            await s.root.approve("c1", shown["hash"])
            await arrived.wait()
            s.system.kill("session:s")
            told = (await persist(submission.wait)).text
            assert "interrupted" in told
            assert runs == [5]

    go(main)


# --- completed from outside


class Outside:
    """A tool whose work is done elsewhere."""

    def __init__(self, **options):
        self.started = []
        self.timeout_s = options.pop("timeout_s", None)
        self.before_return = options.pop("before_return", None)

        async def order(ctx: perdure.ToolContext, what: str) -> perdure.External:
            """Order."""
            later = await ctx.external(timeout_s=self.timeout_s)
            ctx.output("ordered\n")
            ctx.details({"what": what})
            self.started.append(later.call_id)
            if self.before_return is not None:
                await self.before_return(ctx)
            return later

        self.tool = perdure.tool(**options)(order)


ORDER = calling(call("order", "c1", what="tea"))


def parked(view):
    return any(slot.get("external") and slot.get("output") for slot in view["docs"]["pi.live"].get("tools", ()))


def test_a_call_is_completed_from_outside_after_any_number_of_restarts(storage):
    async def main():
        outside = Outside()
        async with scene(ORDER, storage=storage, tools=[outside.tool]) as s:
            submission = await s.root.submit("x")
            await seen(s.root, parked)
            assert await no_task_runs(s.system)
        async with scene(ORDER, storage=storage, tools=[outside.tool]) as s:
            await seen(s.root, parked)
        async with scene(ORDER, storage=storage, tools=[outside.tool]) as s:
            await s.root.complete_call("c1", "it is here")
            assert (await (await s.session.submission(submission.id)).wait()).text == "it is here"
            assert outside.started == ["c1"]
            assert (await result_of(s.root)).details == {"what": "tea"}

    go(main)


def test_sending_a_completion_again_is_harmless_and_another_one_is_refused():
    async def main():
        outside = Outside()
        async with scene(ORDER, tools=[outside.tool]) as s:
            submission = await s.root.submit("x")
            await seen(s.root, parked)
            with pytest.raises(perdure.UnknownCall):
                await s.root.complete_call("c9", "x")
            with pytest.raises(perdure.PerdureError):
                await s.root.complete_call("c1", object())
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.approve("c1", "x")
            await asyncio.gather(*(s.root.complete_call("c1", "tea", request_id="r1") for _ in range(3)))
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.complete_call("c1", "coffee", request_id="r2")
            assert (await submission.wait()).text == "tea"
            await s.root.complete_call("c1", "tea", request_id="r1")
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.complete_call("c1", "coffee")
            assert (await result_of(s.root)).content[0].text == "tea"

    go(main)


def test_a_completion_may_come_before_the_tool_has_returned():
    async def main():
        async def at_once(ctx):
            await ctx.conversation().complete_call("c1", {"quick": True})

        outside = Outside(before_return=at_once)
        async with scene(ORDER, tools=[outside.tool]) as s:
            assert (await s.ask()).text == '{"quick":true}'

    go(main)


def test_a_completion_may_be_a_whole_result_or_leave_what_was_shown():
    async def main():
        outside = Outside()
        async with scene(ORDER, tools=[outside.tool]) as s:
            submission = await s.root.submit("x")
            await seen(s.root, parked)
            await s.root.complete_call("c1", perdure.ToolResult(is_error=True, details={"why": "sold out"}))
            await submission.wait()
            result = await result_of(s.root)
            assert (result.content[0].text, result.is_error, result.details) == ("ordered\n", True, {"why": "sold out"})

    go(main)


def test_a_call_that_is_not_completed_in_time_is_answered_with_that(storage):
    async def main():
        outside, clock = Outside(timeout_s=60), perdure.VirtualClock()
        async with scene(ORDER, storage=storage, tools=[outside.tool], clock=clock) as s:
            submission = await s.root.submit("x")
            await seen(s.root, parked)
        async with scene(ORDER, storage=storage, tools=[outside.tool], clock=clock) as s:
            clock.advance(60)
            told = (await (await s.session.submission(submission.id)).wait()).text
            assert "ordered" in told
            assert "Tool order was not completed in time" in told
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.complete_call("c1", "late")

    go(main)


def test_an_aborted_call_is_completed_by_nobody():
    async def main():
        outside = Outside()
        async with scene(ORDER, tools=[outside.tool]) as s:
            await s.root.submit("x")
            await seen(s.root, parked)
            await s.root.abort()
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.complete_call("c1", "late")
            assert plain_text((await result_of(s.root)).content).startswith("ordered")

    go(main)


@pytest.mark.parametrize("replay", ["safe", "unsafe"])
def test_until_the_tool_has_returned_its_replay_policy_holds(replay):
    """B091: the order may have been placed; a completion that has come by then is not lost."""

    async def main():
        arrived = asyncio.Event()

        async def hang(ctx):
            arrived.set()
            if len(outside.started) == 1:
                await asyncio.Event().wait()

        outside = Outside(before_return=hang, replay=replay)
        async with scene(ORDER, tools=[outside.tool]) as s:
            submission = await s.root.submit("x")
            await arrived.wait()
            s.system.kill("session:s")
            if replay == "safe":
                await seen(s.root, lambda view: parked(view) and len(outside.started) == 2)
                await s.root.complete_call("c1", "tea")
            told = (await persist(submission.wait)).text
            assert ("tea" if replay == "safe" else "interrupted") in told
            assert len(outside.started) == (2 if replay == "safe" else 1)

    go(main)


def test_a_completion_that_came_before_a_crash_is_the_result():
    async def main():
        completed = asyncio.Event()

        async def complete_and_hang(ctx):
            await ctx.conversation().complete_call("c1", "tea")
            completed.set()
            await asyncio.Event().wait()

        outside = Outside(before_return=complete_and_hang)
        async with scene(ORDER, tools=[outside.tool]) as s:
            submission = await s.root.submit("x")
            await completed.wait()
            s.system.kill("session:s")
            assert (await persist(submission.wait)).text == "tea"
            assert outside.started == ["c1"]

    go(main)


def test_a_tool_that_waits_for_nobody_cannot_be_completed():
    """A completion must not be lost in a call that does not look for it."""

    async def main():
        running, free = asyncio.Event(), asyncio.Event()

        @perdure.tool
        async def order(what: str) -> str:
            """Order."""
            running.set()
            await free.wait()
            return what

        async with scene(ORDER, tools=[order]) as s:
            submission = await s.root.submit("x")
            await running.wait()
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.complete_call("c1", "coffee")
            free.set()
            assert (await submission.wait()).text == "tea"

    go(main)


@pytest.mark.parametrize("story", ["approve", "complete"])
def test_a_call_that_waits_keeps_no_session_in_memory_and_a_decision_brings_it_back(story):
    """B047, B113: passivation, and no handle but a new one."""

    async def main():
        clock, payments, outside = perdure.VirtualClock(), Payments(), Outside()
        brain = PAY if story == "approve" else ORDER
        settings = perdure.Settings(idle_after_s=60.0)
        async with scene(brain, tools=[payments.tool, outside.tool], clock=clock, settings=settings) as s:
            await s.root.submit("x", request_id="r1")
            shown = await asked(s.root) if story == "approve" else await seen(s.root, parked)
            while s.system.inspect().sessions:
                await quiet()
                clock.advance(61)
            if story == "approve":
                await s.root.approve("c1", shown["c1"]["hash"])
            else:
                await s.root.complete_call("c1", "tea")
            settled = await (await s.root.submit("x", request_id="r1")).wait()
            assert settled.text == ("paid 5" if story == "approve" else "tea")

    go(main)


def test_a_tool_that_asks_twice_in_a_row_gets_each_answer_once_over_restarts_in_between():
    """B116: what came before a question is not repeated when it is answered."""

    async def main():
        storage, steps = perdure.MemoryStorage(), []

        @perdure.tool(approval="always", replay="safe")
        async def confirm(question: str) -> str:
            """Ask somebody."""
            steps.append(question)
            return "yes"

        @perdure.tool(replay="safe")
        async def deploy(ctx: perdure.ToolContext) -> str:
            """Deploy, if somebody says so twice."""
            answers = [await ctx.call("confirm", {"question": one}, key=one) for one in ("really?", "sure?")]
            return " and ".join(one.text if not one.is_error else "no" for one in answers)

        async def decide(s, question, decision):
            """Decide as soon as that is asked."""
            while True:
                try:
                    return await decision(f"c1/{question}", perdure.arguments_hash("confirm", {"question": question}))
                except (perdure.UnknownCall, perdure.CallNotWaiting):
                    await asyncio.sleep(0)

        brain, tools = calling(call("deploy", "c1")), [confirm, deploy]
        async with scene(brain, storage=storage, tools=tools) as s:
            submission = await s.root.submit("x")
            await decide(s, "really?", s.root.approve)
            with pytest.raises(perdure.ApprovalMismatch):  # the second question is open
                await decide(s, "sure?", lambda call_id, _: s.root.approve(call_id, "another hash"))
        async with scene(brain, storage=storage, tools=tools) as s:
            with pytest.raises(perdure.CallNotWaiting):
                await s.root.approve("c1/really?", perdure.arguments_hash("confirm", {"question": "really?"}))
            await decide(s, "sure?", s.root.deny)
            assert (await (await s.session.submission(submission.id)).wait()).text == "yes and no"
            assert steps == ["really?"]

    go(main)
