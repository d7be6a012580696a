import asyncio

import perdure
import pytest
from perdure.actors.models import ToolResultMessage, UserMessage, call, plain_text
from perdure.actors.tools import schedules as module
from perdure.actors.tools.cron import parse_time
from perdure.actors.tools.schedule_tasks import KIND, MOST_CAUGHT_UP, MOST_LOOK_UPS, Plan, missed_and_next

from ..conversation.support import MODEL, go, history, problems, quiet, scene, seen

START = parse_time("2026-03-28T12:00", "Europe/Berlin")
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def brain(request):
    """Makes the calls that a user writes as Python; answers everything else in a word."""
    last = request.messages[-1]
    said = plain_text(last.content)
    if isinstance(last, UserMessage):
        return eval(said, {"call": call}) if said.startswith("call(") else f"noted: {said}"
    return said


def room(clock, storage=None, **options):
    return scene(brain, extensions=[perdure.schedules()], clock=clock, storage=storage, **options)


def inputs(entries):
    """What users have said in a conversation."""
    messages = [one.model[0] for one in entries if one.model]
    return [one["content"] for one in messages if one["role"] == "user"]


async def told(s, count=1):
    """Wait until so many inputs came by schedule; give them, without the calls that were asked for."""

    def there(view):
        return len([one for one in inputs_of(view) if one.startswith("[")]) >= count

    await seen(s.root, there)
    await s.root.wait_for_idle()
    return [one for one in inputs(await history(s.root)) if one.startswith("[")]


def inputs_of(view):
    return [
        one["model"][0]["content"] for one in view["entries"] if one.get("model") and one["model"][0]["role"] == "user"
    ]


async def advance(clock, seconds):
    """Let time pass and everything happen that it brings about."""
    clock.advance(seconds)
    await quiet(60)


async def due_next(s, when):
    """Wait until the next thing is due at a time."""
    while await s.system.next_deadline() != when:
        await asyncio.sleep(0)


# --- once


def test_what_is_scheduled_after_a_delay_is_submitted_once_at_its_time():
    async def main():
        clock = perdure.VirtualClock(START)
        async with room(clock) as s:
            made = await perdure.add_schedule(s.root, "Check the oven.", after_s=120, name="oven", zone="Europe/Berlin")
            assert made.next_at == START + 2 * MINUTE
            await due_next(s, made.next_at)
            await advance(clock, 119.9)
            assert inputs(await history(s.root)) == []
            await advance(clock, 0.1)
            assert await told(s) == ["[Scheduled: oven, due 2026-03-28T12:02:00+01:00]\nCheck the oven."]
            assert "noted: [Scheduled: oven" in str(await history(s.root))
            assert await perdure.list_schedules(s.session) == []
            await advance(clock, 1_000)
            assert len(await told(s)) == 1
            assert await s.system.next_deadline() is None

    go(main)


def test_a_time_may_be_named():
    async def main():
        clock = perdure.VirtualClock(START)
        async with room(clock) as s:
            for at in ("2026-03-28T18:00", "2026-03-28T17:00Z", START + 6 * HOUR):
                made = await perdure.add_schedule(s.root, "Dinner.", at=at, zone="Europe/Berlin")
                assert made.next_at == START + 6 * HOUR
            names = [one.name for one in await perdure.list_schedules(s.root)]
            assert names == ["schedule 1", "schedule 2", "schedule 3"]

    go(main)


@pytest.mark.parametrize("late_s", [30, 60, 3_600])
def test_a_schedule_outlives_the_process_and_fires_at_its_time_or_at_once_when_overdue(storage, late_s):
    """B071: armed again after a restart, and exactly once, however often the process comes back."""

    async def main():
        async with room(perdure.VirtualClock(START), storage) as s:
            await perdure.add_schedule(s.root, "Check.", after_s=30)
        clock = perdure.VirtualClock(START + 10_000)
        async with room(clock, storage) as s:
            await due_next(s, START + 30_000)
        for _ in range(2):
            clock = perdure.VirtualClock(START + late_s * 1_000)
            async with room(clock, storage) as s:
                assert len(await told(s)) == 1

    go(main)


def test_what_is_due_once_may_be_dropped_when_it_is_overdue(storage):
    async def main():
        async with room(perdure.VirtualClock(START), storage) as s:
            await perdure.add_schedule(s.root, "Wake me.", after_s=30, catch_up="skip")
        async with room(perdure.VirtualClock(START + HOUR), storage) as s:
            await s.root.wait_for_idle(background=True)
            assert await history(s.root) == []
            assert await perdure.list_schedules(s.session) == []

    go(main)


def test_a_schedule_wakes_a_session_that_has_left_memory():
    async def main():
        clock = perdure.VirtualClock(START, autojump=True)
        async with room(clock, settings=perdure.Settings(idle_after_s=1.0)) as s:
            await perdure.add_schedule(s.root, "Wake up.", after_s=3_600)
            while s.system.inspect().sessions:
                await clock.sleep(0.5)
            assert clock.now() < START + MINUTE
            assert await s.system.next_deadline() == START + HOUR
            await clock.sleep_until(START + HOUR + 1_000)
            assert len(await told(s)) == 1

    go(main)


def test_adding_at_every_start_makes_one_schedule_which_fires_once(storage):
    """B070: the delay goes on from the first start; fifty crashes add nothing."""

    async def main():
        for crash in range(50):
            clock = perdure.VirtualClock(START + crash * 1_000)
            async with room(clock, storage) as s:
                made = await perdure.add_schedule(s.root, "Maintain.", after_s=60, name="maint")
                assert made.next_at == START + MINUTE
                assert len(await perdure.list_schedules(s.session)) == 1
        async with room(perdure.VirtualClock(START + HOUR), storage) as s:
            assert len(await told(s)) == 1
            assert len(inputs(await history(s.root))) == 1

    go(main)


def test_what_is_added_by_a_known_name_and_says_something_else_replaces_it():
    async def main():
        clock = perdure.VirtualClock(START)
        async with room(clock) as s:
            first = await perdure.add_schedule(s.root, "Look.", cron="0 * * * *", name="look")
            assert await perdure.add_schedule(s.root, "Look.", cron="0 * * * *", name="look") == first
            second = await perdure.add_schedule(s.root, "Look.", cron="30 * * * *", name="look")
            assert second.id != first.id
            assert await perdure.list_schedules(s.root) == [second]
            await advance(clock, 3_600)
            assert len(await told(s)) == 1

    go(main)


# --- again and again


def test_a_recurring_schedule_fires_at_each_of_its_times():
    async def main():
        clock = perdure.VirtualClock(START)
        async with room(clock) as s:
            await perdure.add_schedule(s.root, "Report.", cron="30 2 * * *", zone="Europe/Berlin", name="r")
            expected = ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00", "2026-03-31T02:30:00+02:00"]
            for count, when in enumerate(expected, 1):
                await due_next(s, parse_time(when, "UTC"))
                clock.advance((parse_time(when, "UTC") - clock.now()) / 1_000)
                assert (await told(s, count))[-1] == f"[Scheduled: r, due {when}]\nReport."
            [one] = await perdure.list_schedules(s.session)
            assert (one.fired, one.next_at) == (3, parse_time("2026-04-01T02:30+02:00", "UTC"))

    go(main)


@pytest.mark.parametrize(
    ("rule", "fired"),
    [
        ("skip", []),
        ("once", ["[Scheduled: r, due 2026-03-28T15:00:00+00:00; 3 due before it were missed]\nReport."]),
        ("all", [f"[Scheduled: r, due 2026-03-28T{hour}:00:00+00:00]\nReport." for hour in (12, 13, 14, 15)]),
    ],
)
def test_due_times_that_were_missed_are_caught_up_with_by_the_rule(storage, rule, fired):
    """B071: each at most once, and in order."""

    async def main():
        async with room(perdure.VirtualClock(START), storage) as s:
            await perdure.add_schedule(s.root, "Report.", cron="0 * * * *", catch_up=rule, name="r")
        clock = perdure.VirtualClock(START + 4 * HOUR + 30 * MINUTE)
        for _ in range(2):
            async with room(clock, storage) as s:
                await due_next(s, START + 5 * HOUR)
                assert await told(s, len(fired)) == fired
                assert len(inputs(await history(s.root))) == len(fired)
                assert problems((await s.root.context()).messages) == []

    go(main)


def plan(**options):
    given = {"name": "n", "text": "t", "look_up": False, "cron": "* * * * *", "zone": "UTC", "catch_up": "all"}
    return Plan(**{**given, "at": START, "fixed": False, **options})


def test_catching_up_with_all_of_a_long_absence_is_bounded():
    now = START + 3 * 365 * DAY
    due, following = missed_and_next(plan(), START, now)
    assert [one.tick for one in due] == [now - (MOST_CAUGHT_UP - 1 - n) * MINUTE for n in range(MOST_CAUGHT_UP)]
    assert following == now + MINUTE
    due, _ = missed_and_next(plan(look_up=True), START, now)
    assert len(due) == MOST_LOOK_UPS


def test_the_due_time_that_was_stored_counts_even_if_the_zone_has_changed_its_rules():
    due, following = missed_and_next(plan(cron="0 9 * * *"), START + 1, START + 2)
    assert [one.tick for one in due] == [START + 1]
    assert following > START + 2


def test_a_full_inbox_holds_a_due_time_up_and_loses_none():
    async def main():
        clock = perdure.VirtualClock(START)
        free = asyncio.Event()

        @perdure.tool
        async def hold() -> str:
            """Hold."""
            await free.wait()
            return "free"

        async with room(clock, tools=[hold], settings=perdure.Settings(max_queued_submissions=1)) as s:
            await s.root.submit("call('hold')")
            await seen(s.root, lambda v: v["docs"]["pi.live"].get("tools"))
            waiting = await s.root.submit("wait")
            await perdure.add_schedule(s.root, "Check.", after_s=1)
            await advance(clock, 1)
            [task] = [one for one in await s.session.tasks() if one.kind == KIND]
            assert task.state.until == START + 31_000
            free.set()
            await waiting.wait()
            await advance(clock, 30)
            assert len(await told(s)) == 1

    go(main)


# --- look-ups


def test_a_look_up_is_answered_by_a_subagent_and_only_its_answer_is_written_down():
    async def main():
        clock = perdure.VirtualClock(START)
        async with room(clock) as s:
            await perdure.add_schedule(s.root, "What is new?", after_s=60, look_up=True, name="news")
            await advance(clock, 60)
            [said] = await told(s)
            assert said == "[Looked up as scheduled: news, due 2026-03-28T11:01:00+00:00]\nnoted: What is new?"
            [entry] = await history(s.root)
            assert entry.kind == "perdure.lookup"
            child = await s.session.conversation(entry.data["conversationId"])
            assert inputs(await history(child)) == ["What is new?"]
            offered = (await child.snapshot(perdure.AgentDoc))["tools"]
            assert offered == []
            assert (await s.ask("and?")).text == "noted: and?"
            assert problems((await s.root.context()).messages) == []
            assert await s.session.tasks() == []

    go(main)


def test_a_look_up_without_answer_says_so():
    async def main():
        clock = perdure.VirtualClock(START)
        async with room(clock, agent=perdure.Agent(model="scripted/gone")) as s:
            await perdure.add_schedule(s.root, "What is new?", after_s=60, look_up=True)
            await advance(clock, 60)
            [said] = await told(s)
            assert said.endswith("\n(no answer: no_model)")

    go(main)


def test_look_ups_that_take_long_do_not_pile_up():
    async def main():
        clock = perdure.VirtualClock(START)
        free = asyncio.Event()

        @perdure.tool(replay="safe")
        async def hold() -> str:
            """Hold."""
            await free.wait()
            return "free"

        async with room(clock, tools=[hold]) as s:
            await perdure.add_schedule(s.root, "call('hold')", cron="* * * * *", look_up=True, name="h")
            for _ in range(2 * MOST_LOOK_UPS):
                await advance(clock, 60)
            tasks = [one for one in await s.session.tasks() if one.kind == "perdure.lookup"]
            assert len(tasks) == MOST_LOOK_UPS
            await perdure.cancel_schedule(s.root, "h")
            await s.root.wait_for_idle(background=True)
            assert await s.session.tasks() == []

    go(main)


# --- seeing and removing


def test_schedules_are_listed_and_cancelled():
    async def main():
        clock = perdure.VirtualClock(START)
        async with room(clock) as s:
            other = await s.session.create_conversation(agent=perdure.Agent(model=MODEL))
            one = await perdure.add_schedule(s.root, "One.", cron="0 9 * * *", zone="Asia/Kolkata", name="a")
            two = await perdure.add_schedule(other, "Two.", after_s=5, name="a")
            assert await perdure.list_schedules(s.session) == [one, two]
            assert await perdure.list_schedules(other) == [two]
            assert str(two) == "'a', once, next at 2026-03-28T11:00:05+00:00 (UTC): Two."
            assert "cron '0 9 * * *', next at 2026-03-29T09:00:00+05:30" in str(one)
            for wanted in ("b", 99, "a"):
                with pytest.raises(perdure.NoSuchSchedule):
                    await perdure.cancel_schedule(s.session, wanted)
            with pytest.raises(perdure.NoSuchSchedule):
                await perdure.cancel_schedule(s.root, two)
            await perdure.cancel_schedule(other, "a")
            await perdure.cancel_schedule(s.session, one)
            assert await perdure.list_schedules(s.session) == []
            await advance(clock, 2 * 86_400)
            assert inputs(await history(s.root)) == inputs(await history(other)) == []
            assert await s.system.next_deadline() is None

    go(main)


def test_an_abort_leaves_schedules_alone_unless_it_says_so():
    """P7: a background task is a boundary."""

    async def main():
        async with room(perdure.VirtualClock(START)) as s:
            await perdure.add_schedule(s.root, "One.", after_s=5)
            await s.root.abort()
            assert len(await perdure.list_schedules(s.root)) == 1
            await s.root.abort(background=True)
            assert await perdure.list_schedules(s.root) == []

    go(main)


WRONG = [
    ({}, "exactly one of"),
    ({"after_s": 1, "cron": "* * * * *"}, "exactly one of"),
    ({"after_s": -1}, "after_s"),
    ({"after_s": float("nan")}, "after_s"),
    ({"after_s": "soon"}, "after_s"),
    ({"after_s": 1e300}, "after_s"),
    ({"at": "2026-03-28T11:59", "zone": "Europe/Berlin"}, "a time from now"),
    ({"at": "9999-01-01"}, "a time from now"),
    ({"at": 1.5}, "a time from now"),
    ({"at": "soon"}, "a time such as"),
    ({"cron": "* * *"}, "cron text"),
    ({"cron": "0 0 31 4 *"}, "cron text"),
    ({"cron": "* * * * *", "zone": "Mars"}, "time zone"),
    ({"cron": "* * * * *", "catch_up": "never"}, "catch_up"),
    ({"after_s": 1, "text": " "}, "in 1 to"),
    ({"after_s": 1, "text": "x" * 10_001}, "in 1 to"),
    ({"after_s": 1, "text": None}, "in 1 to"),
    ({"after_s": 1, "name": ""}, "a name"),
    ({"after_s": 1, "name": 5}, "a name"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_cannot_be_scheduled_is_refused_in_words_and_nothing_is_stored(given, said):
    """P11."""

    async def main():
        async with room(perdure.VirtualClock(START)) as s:
            before = await s.system._store.storage.session("s")
            with pytest.raises(perdure.InvalidSchedule, match=said):
                await perdure.add_schedule(s.root, **{"text": "Do.", **given})
            assert await s.system._store.storage.session("s") == before
            assert await s.session.tasks() == []

    go(main)


def test_a_conversation_has_so_many_schedules_at_most(monkeypatch):
    async def main():
        monkeypatch.setattr(module, "MOST_SCHEDULES", 2)
        async with room(perdure.VirtualClock(START)) as s:
            for name in "ab":
                await perdure.add_schedule(s.root, "Do.", after_s=5, name=name)
            with pytest.raises(perdure.InvalidSchedule, match="2 things are scheduled"):
                await perdure.add_schedule(s.root, "Do.", after_s=5, name="c")
            assert (await perdure.add_schedule(s.root, "Do.", after_s=5, name="a")).name == "a"

    go(main)


def test_without_the_extension_nothing_is_scheduled_that_nobody_would_carry_out():
    async def main():
        async with scene(brain) as s:
            with pytest.raises(perdure.InvalidSchedule, match=r"extensions=\[perdure.schedules"):
                await perdure.add_schedule(s.root, "Do.", after_s=5)
            assert await s.session.tasks() == []

    go(main)


# --- agents' tools


async def last(s, content):
    """What the newest call answered."""
    return (await s.ask(content)).text


def test_an_agent_schedules_lists_and_cancels():
    async def main():
        clock = perdure.VirtualClock(START)
        extension = perdure.schedules(zone="Europe/Berlin")
        async with scene(brain, extensions=[extension], clock=clock) as s:
            said = await last(s, "call('schedule', text='Check.', after_s=90, name='c')")
            assert said == (
                "Scheduled 'c', once, next at 2026-03-28T12:01:30+01:00 (Europe/Berlin): Check.. "
                "It is 2026-03-28T12:00:00+01:00 now."
            )
            said = await last(s, "call('schedule', text='Again.', cron='0 9 * * *', zone='UTC', name='d')")
            assert "next at 2026-03-29T09:00:00+00:00 (UTC)" in said
            assert "already" in await last(s, "call('schedule', text='Check.', after_s=90, name='c')")
            assert "expected a time zone" in await last(s, "call('schedule', text='x', at='2026-05-01', zone='Mars')")
            said = await last(s, "call('list_schedules')")
            assert said.splitlines()[0] == "It is 2026-03-28T12:00:00+01:00 (Europe/Berlin)."
            assert [line[:5] for line in said.splitlines()[1:]] == ["- 'c'", "- 'd'"]
            assert "is cancelled" in await last(s, "call('cancel_schedule', name='d')")
            assert "there is no schedule 'd'" in await last(s, "call('cancel_schedule', name='d')")
            await advance(clock, 90)
            assert len(await told(s)) == 1
            assert (await last(s, "call('list_schedules')")).endswith("Nothing is scheduled.")

    go(main)


def test_an_interrupted_call_schedules_once(storage):
    """B040: a safe call that runs again adds no second one."""

    async def main():
        arrived, free, first = asyncio.Event(), asyncio.Event(), []

        async def hold(ctx, one, result):
            if one.name == "schedule" and not first:
                first.append(one)
                arrived.set()
                await free.wait()

        kit = perdure.Extension(name="h", hooks=perdure.Hooks(after_tool=hold))
        clock = perdure.VirtualClock(START)
        async with scene(brain, extensions=[perdure.schedules(), kit], clock=clock, storage=storage) as s:
            submission = await s.root.submit("call('schedule', text='Check.', after_s=90)")
            await arrived.wait()
            clock.advance(10)
            s.system.kill("session:s")
            await quiet()
            await advance(clock, 1)
            while True:
                try:
                    assert "Scheduled 'schedule 1'" in (await submission.wait()).text
                    break
                except perdure.SessionFailed:
                    await asyncio.sleep(0)
            [one] = await perdure.list_schedules(s.session)
            assert one.next_at == START + 90_000
            results = [m for m in (await s.root.context()).messages if isinstance(m, ToolResultMessage)]
            assert len(results) == 1

    go(main)
