import asyncio
import json

import perdure
import pytest
from perdure.actors.conversation import view as views
from perdure.actors.conversation.derivation import derive, follow
from perdure.actors.conversation.view import Mounts
from perdure.actors.models import Pause, UserMessage, call, error_info, plain_text, text
from perdure.actors.models.messages import Thinking
from perdure.actors.task.tx import finish
from perdure.chord import apply
from perdure.events import (
    EntryAppended,
    MessageEnd,
    MessageStart,
    MessageUpdate,
    Snapshot,
    ToolEnd,
    ToolUpdate,
    UnknownEvent,
    event_from_json,
    event_to_json,
)
from perdure.storage.records import Faulted, OutcomeError

from .support import Faults, answering, calling, echo, go, history, quiet, scene, seen
from .test_inbox import Work
from .test_replica_process import live_on, moody_scene


@pytest.fixture(autouse=True)
def _following(monkeypatch):
    """Whatever a test of this file tells of, somebody who does not listen would be at the same point afterwards."""

    def derive_and_follow(seen, view, publication):
        told = derive(seen, view, publication)
        assert follow(seen, view, publication) == told[0]
        return told

    monkeypatch.setattr(views, "derive", derive_and_follow)


def name(event):
    return event.__struct_config__.tag


class Log:
    """Takes in a stream from now on."""

    def __init__(self, stream):
        self.events = []
        self.stream = stream
        self._task = asyncio.ensure_future(self._follow())

    async def _follow(self):
        async for event in self.stream:
            self.events.append(event)

    def names(self):
        return [name(event) for event in self.events]

    def of(self, *kinds):
        return [event for event in self.events if name(event) in kinds]


async def log_of(conversation):
    log = Log(await conversation.watch_events())
    await quiet()
    return log


async def settle(s):
    await s.root.wait_for_idle()
    await quiet()


def commits(events):
    """The names of events, by the commit that they come from."""
    found = {}
    for event in events:
        found.setdefault(event.seq, []).append(name(event))
    return list(found.values())


# --- one run


def test_a_run_with_a_tool_is_told_in_order_and_a_snapshot_comes_first():
    """VE-10."""

    async def main():
        @perdure.tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        async with scene(calling(call("add", a=2, b=3)), tools=[add]) as s:
            log = await log_of(s.root)
            await s.ask("x")
            await settle(s)
            assert isinstance(log.events[0], Snapshot)
            assert commits(log.events[1:]) == [
                ["message_start", "message_end", "submission", "run_start", "turn_start"],
                ["message_start", "message_end"],
                ["message_start", "message_end", "usage"],
                ["tool_start"],
                ["tool_end", "message_start", "message_end"],
                ["turn_end", "turn_start"],
                ["message_start", "message_end", "turn_end", "run_end", "submission", "usage"],
            ]
            [run] = {event.run for event in log.events[1:]}
            assert run == log.of("submission")[0].submission.id
            assert len({event.turn for event in log.events[1:]}) == 2
            assert [event.seq for event in log.events] == sorted(event.seq for event in log.events)
            entries = [event.entry.id for event in log.of("message_end")]
            assert entries == [entry.id for entry in await history(s.root)]

    go(main)


def test_an_answer_that_streams_starts_once_grows_and_ends_with_its_entry():
    async def main():
        clock = perdure.VirtualClock(autojump=True)
        said = "a text that takes its time to stream, word by word"
        async with scene(lambda r: said, clock=clock, tokens_per_second=20) as s:
            log = await log_of(s.root)
            await s.ask("x")
            await settle(s)
            kinds = [n for n in log.names() if n.startswith("message")]
            assert kinds[:3] == ["message_start", "message_end", "message_start"]
            assert kinds[-1] == "message_end"
            assert set(kinds[3:-1]) == {"message_update"}
            assert len(kinds) > 6
            start = log.of("message_start")[1]
            shown = start.message
            for event in log.of("message_update"):
                before = shown["content"][0]["text"]
                shown = apply(json.loads(json.dumps(shown)), event.ops)
                assert shown["content"][0]["text"] == before + event.text
            assert said.startswith(shown["content"][0]["text"])
            end = log.events[-1] if isinstance(log.events[-1], MessageEnd) else log.of("message_end")[-1]
            assert end.entry.model[0]["content"][0]["text"] == said

    go(main)


def test_progress_of_a_tool_is_told_as_operations_on_its_slot():
    async def main():
        clock = perdure.VirtualClock(autojump=True)

        @perdure.tool
        async def dig(ctx: perdure.ToolContext) -> str:
            """Dig."""
            for metre in range(4):
                ctx.output(f"{metre} m\n")
                ctx.details({"depth": metre})
                await ctx.sleep(0.15)
            return "bottom"

        async with scene(calling(call("dig"), call("dig")), tools=[dig], clock=clock) as s:
            log = await log_of(s.root)
            await s.ask("x")
            await settle(s)
            slots = {}
            for event in log.of("tool_start", "tool_update", "tool_end"):
                if isinstance(event, ToolUpdate):
                    slots[event.call_id] = apply(slots[event.call_id], event.ops)
                elif not isinstance(event, ToolEnd):
                    slots[event.call_id] = {"callId": event.call_id, "name": event.name}
            assert len(slots) == 2
            for slot in slots.values():
                assert slot["output"] == "0 m\n1 m\n2 m\n3 m\n"
                assert slot["details"] == {"depth": 3}
            assert len(log.of("tool_end")) == 2

    go(main)


def test_what_a_call_shows_before_it_runs_is_told_too():
    """Whatever field of a slot it is that shows it: an approval that is asked for, say."""

    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            log = await log_of(s.root)
            await s.root.submit("x")
            await work.started.wait()
            async with s.root.commit() as tx:
                (await tx.doc(perdure.LiveDoc, s.root.id))["tools"][0]["status"] = "pending"
            async with s.root.commit() as tx:
                (await tx.doc(perdure.LiveDoc, s.root.id))["tools"][0]["approval"] = {"hash": "x"}
            await quiet()
            [update] = log.of("tool_update")
            assert update.ops == [["s", ["approval"], {"hash": "x"}]]
            work.release()
            await settle(s)

    go(main)


def test_a_retry_is_told_with_its_time_and_the_failed_attempt_is_a_message():
    """VE-06, GE-12."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        async with scene(answering(error_info("overloaded", "busy"), "ok"), clock=clock) as s:
            log = await log_of(s.root)
            await s.ask("x")
            await settle(s)
            [retry] = log.of("retry")
            assert (retry.attempt, retry.error) == (1, "busy")
            assert retry.at > 0
            assert len(log.of("turn_start", "turn_end")) == 2
            assert len(log.of("message_end")) == 3

    go(main)


def test_a_turn_ends_once_for_each_generation():
    """VE-02."""

    async def main():
        @perdure.tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        async with scene(calling(call("add", a=2, b=3)), tools=[add]) as s:
            log = await log_of(s.root)
            await s.ask("x")
            await settle(s)
            turns = [(name(event), event.turn) for event in log.of("turn_start", "turn_end")]
            assert [kind for kind, _ in turns] == ["turn_start", "turn_end"] * 2
            assert turns[0][1] == turns[1][1] != turns[2][1] == turns[3][1]

    go(main)


BROKEN = Faulted(error=OutcomeError(message="broken"))


class Held(perdure.Task[None, None], name="held", version=1):
    """Work that holds its owner's outcome open until it is let go."""

    free: asyncio.Event

    class Work(perdure.Phase):
        pass

    async def work(self, run, state):
        await type(self).free.wait()
        await run.complete()

    async def abort(self, run, state):
        async with run.commit() as tx:
            tx.abort()


@pytest.mark.parametrize("how", ["completes", "faults"])
def test_a_turn_ends_at_the_hold_and_who_attaches_during_it_sees_no_second_end(how):
    """VE-02, GE-34, GE-35."""

    async def main():
        Held.free = asyncio.Event()
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def brain(request):
            asked.set()
            await go_on.wait()
            return "ok"

        kit = perdure.Extension(name="work", tasks=[Held])
        async with scene(brain, extensions=[kit]) as s:
            log = await log_of(s.root)
            first = await s.root.submit("x")
            await asked.wait()
            generation = (await s.root.live())["run"]["taskId"]
            async with s.root.commit() as tx:
                await tx.create_task(Held, owner=generation)
            if how == "completes":
                go_on.set()
                await first.wait()
                await quiet()
                assert len(log.of("turn_end")) == 1
                late = await log_of(s.root)
                Held.free.set()
                await settle(s)
                assert late.names() == ["snapshot"]
            else:
                async with s.root.commit() as tx:
                    finish(tx, await tx.task(generation), BROKEN)
                await settle(s)
                assert log.of("turn_end")[0].seq < log.of("run_end")[0].seq
                assert (await first.wait()).reason == "faulted"
            assert len(log.of("turn_end")) == 1

    go(main)


def test_a_new_run_of_a_follow_up_begins_in_the_commit_that_ends_the_one_before():
    """B166: every event names its run, also where two meet in one commit."""

    async def main():
        asked, free = asyncio.Event(), asyncio.Event()

        async def brain(request):
            asked.set()
            await free.wait()
            return echo(request)

        async with scene(brain) as s:
            log = await log_of(s.root)
            first = await s.root.submit("one")
            await asked.wait()
            second = await s.root.submit("two")
            free.set()
            await second.wait()
            await settle(s)
            meeting = next(e.seq for e in log.events if name(e) == "run_end")
            told = [(name(e), e.run) for e in log.events if e.seq == meeting]
            a, b = first.id, second.id
            assert told == [
                *[("message_start", a), ("message_end", a), ("message_start", b), ("message_end", b)],
                *[("turn_end", a), ("run_end", a), ("submission", a), ("submission", b), ("inbox", a), ("usage", a)],
                *[("run_start", b), ("turn_start", b)],
            ]

    go(main)


def test_the_events_of_an_aborted_and_continued_conversation_name_the_right_run():
    """B166."""

    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            log = await log_of(s.root)
            first = await s.root.submit("one")
            await work.started.wait()
            await s.root.abort()
            work.release()
            second = await s.root.submit("two")
            await second.wait()
            await settle(s)
            for event in log.events[1:]:
                assert event.run in (first.id, second.id)
            ends = {event.run: event.seq for event in log.of("run_end")}
            assert all(e.seq <= ends[first.id] for e in log.events if e.run == first.id)
            assert all(e.seq > ends[first.id] for e in log.events if e.run == second.id)
            assert len(log.of("turn_start")) == len(log.of("turn_end")) == 3

    go(main)


# --- ends


def test_unstarted_calls_of_an_aborted_sequential_round_end_right_before_their_results():
    """VE-01, GE-33."""

    async def main():
        work = Work()
        calls = calling(call("work", "c1"), call("work", "c2"), call("work", "c3"))
        settings = perdure.Settings(tool_execution="sequential")
        async with scene(calls, tools=[work.tool], settings=settings) as s:
            log = await log_of(s.root)
            await s.root.submit("x")
            await work.started.wait()
            await s.root.abort()
            await settle(s)
            told = [
                (name(e), e.call_id if isinstance(e, ToolEnd) else e.entry.model[0].get("toolCallId"))
                for e in log.events
                if isinstance(e, ToolEnd) or (isinstance(e, MessageEnd) and e.entry.kind == "pi.tool-result")
            ]
            assert told == [(kind, c) for c in ("c1", "c2", "c3") for kind in ("tool_end", "message_end")]
            for at, event in enumerate(log.events):
                if isinstance(event, ToolEnd):
                    assert event.entry == log.events[at + 2].entry.id
            assert [e.call_id for e in log.of("tool_start")] == ["c1"]

    go(main)


def test_a_faulted_tool_is_told_with_an_end_without_entry_when_its_work_has_drained():
    """VE-04."""

    async def main():
        Held.free = asyncio.Event()
        made, decided = asyncio.Event(), asyncio.Event()

        @perdure.tool
        async def breaks(ctx: perdure.ToolContext) -> str:
            """Own some work, and break."""
            await ctx.spawn(Held)
            made.set()
            await decided.wait()
            return "ok"

        kit = perdure.Extension(name="work", tasks=[Held])
        async with scene(calling(call("breaks")), tools=[breaks], extensions=[kit]) as s:
            log = await log_of(s.root)
            submission = await s.root.submit("x")
            await made.wait()
            tool = (await s.root.live())["tools"][0]["taskId"]
            async with s.session.commit() as tx:
                finish(tx, await tx.task(tool), BROKEN)
            decided.set()
            held = (await s.system.core("s")).seq
            await submission.wait()
            await settle(s)
            [failed] = [e for e in log.of("task_failed") if e.task_id == tool]
            [end] = log.of("tool_end")
            assert (failed.kind, failed.status, failed.message) == ("pi.tool", "faulted", "broken")
            assert (end.entry, end.task_id) == (None, tool)
            assert failed.seq == end.seq > held

    go(main)


CUTS = {
    "thinking": [Thinking(thinking="let me think about this for a long long while"), Pause(10**7)],
    "text": ["some text that goes on and on and on", Pause(10**7)],
    "arguments": [call("work", "c", a="some arguments that go on and on"), Pause(10**7)],
}


@pytest.mark.parametrize("where", CUTS)
def test_an_abort_anywhere_in_a_stream_closes_the_message_and_the_next_turn_is_told_right(where):
    """B169."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        async with scene(answering(CUTS[where], echo), clock=clock, tokens_per_second=20) as s:
            log = await log_of(s.root)
            await s.root.submit("x")
            await seen(s.root, lambda v: v["docs"]["pi.live"].get("generation", {}).get("message"))
            await s.root.abort()
            await s.ask("again")
            await settle(s)
            opened = 0
            for event in log.events:
                opened += isinstance(event, MessageStart) - isinstance(event, MessageEnd)
                assert opened in (0, 1)
                assert opened or not isinstance(event, MessageUpdate)
            assert opened == 0
            stops = [e.entry.model[0].get("stopReason") for e in log.of("message_end")]
            assert [stop for stop in stops if stop] == ["aborted", "stop"]

    go(main)


def test_a_display_entry_is_told_as_an_entry():
    """VE-05."""

    async def main():
        async with scene() as s:
            log = await log_of(s.root)
            await s.root.write("note", {"shown": True})
            await quiet()
            [entry] = log.of("entry_appended")
            assert isinstance(entry, EntryAppended)
            assert (entry.entry.kind, entry.entry.data) == ("note", {"shown": True})

    go(main)


def test_what_changes_beside_a_run_is_told():
    async def main():
        work = Work()
        async with scene(Work.brain, tools=[work.tool]) as s:
            log = await log_of(s.root)
            await s.root.submit("one")
            await work.started.wait()
            queued = await s.root.submit("two")
            await s.root.configure(perdure.Agent(instructions="be brief"))
            await queued.withdraw()
            work.release()
            await settle(s)
            assert [[i["id"] for i in e.items] for e in log.of("inbox")] == [[queued.id], []]
            assert [e.agent.get("instructions") for e in log.of("agent")] == ["be brief"]
            assert log.of("usage")[-1].usage["models"]["scripted/model"]["totalTokens"] > 0
            states = [e.submission.status for e in log.of("submission") if e.submission.id == queued.id]
            assert states == ["queued", "unanswered"]

    go(main)


def test_a_compaction_is_told_from_its_status_to_its_end():
    """CO-14's status is what starts and ends it."""

    async def main():
        async with scene() as s:
            log = await log_of(s.root)
            status = {"taskId": 77, "reason": "manual", "blocking": False, "attempt": 1}
            async with s.root.commit() as tx:
                (await tx.doc(perdure.LiveDoc, s.root.id))["compactions"] = [status]
            async with s.root.commit() as tx:
                (await tx.doc(perdure.LiveDoc, s.root.id)).pop("compactions")
            await quiet()
            assert [(name(e), e.task_id) for e in log.events[1:]] == [("compaction_start", 77), ("compaction_end", 77)]
            assert log.events[1].status == status

    go(main)


# --- streams


def test_a_slow_consumer_gets_one_snapshot_for_what_it_missed():
    """VE-08, B160."""

    async def main():
        async with scene() as s:
            stream = await s.root.watch_events()
            fast = await log_of(s.root)
            for _ in range(150):
                await (await s.root.write("note")).wait()
            last = await s.root.write("last")
            await quiet()
            slow = []
            async for event in stream:
                slow.append(event)
                if getattr(event, "entry", None) is not None and event.entry.kind == "last":
                    break
            assert [name(e) for e in slow[:1]] == ["snapshot"]
            assert "snapshot" not in [name(e) for e in slow[1:]]
            shown = [entry["id"] for entry in slow[0].view["entries"]]
            told = [e.entry.id for e in slow if isinstance(e, EntryAppended)]
            assert shown + told == [entry.id for entry in await history(s.root)]
            assert len(slow) < 202
            assert len(fast.of("entry_appended")) == 151
            assert (await last.wait()).record.entry == fast.of("entry_appended")[-1].entry.id

    go(main)


def test_what_a_stalled_consumer_is_kept_is_bounded_in_bytes():
    """B161: ten events of 5 MB are not ten times 5 MB."""

    async def main():
        settings = perdure.Settings(max_submission_bytes=6_000_000)
        async with scene(settings=settings) as s:
            watch, stream = await s.root.watch(), await s.root.watch_events()
            for _ in range(10):
                await (await s.root.write("big", "x" * 5_000_000)).wait()
            await quiet()
            assert watch._bytes < 8 * 2**20
            assert stream._watch._bytes < 8 * 2**20
            [first, *_] = [frame async for frame in _so_far(watch)]
            assert first[1][0][0] == "r"

    go(main)


async def _so_far(watch):
    while watch._frames:
        yield await anext(watch)


def test_attaching_again_after_every_event_resumes_with_one_snapshot_and_no_event_twice():
    """B158: no position of another life is taken for one of this; what is told is told once, or is in the snapshot."""

    async def main():
        async with scene(calling(call("add", a=2, b=3)), tools=[add_tool()]) as s:
            reference = await log_of(s.root)
            told = []

            async def hop():
                while True:
                    async with await s.root.watch_events() as stream:
                        snapshot = await anext(stream)
                        at = snapshot.seq
                        told.append([snapshot])
                        event = await anext(stream)
                        assert event.seq > at
                        told[-1].append(event)

            hopping = asyncio.ensure_future(hop())
            await s.ask("x")
            await settle(s)
            hopping.cancel()
            await asyncio.gather(hopping, return_exceptions=True)
            assert len(told) > 2
            ids = [[entry["id"] for entry in part[0].view["entries"]] for part in told]
            assert ids == sorted(ids, key=len)
            every = [event_to_json(event) for event in reference.events]
            assert all(event_to_json(event) in every for part in told for event in part[1:])

    go(main)


def add_tool():
    @perdure.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return add


def test_a_stream_ends_with_the_session_and_goes_on_by_watching_again():
    """B158."""

    async def main():
        async with scene() as s:
            log = await log_of(s.root)
            await s.ask("one")
            s.system.kill("session:s")
            again = await log_of(s.root)
            assert log.stream.ended.reason == "closed"
            assert [name(e) for e in again.events] == ["snapshot"]
            assert len(again.events[0].view["entries"]) == 2
            await s.ask("two")
            await settle(s)
            assert log.events[-1].seq <= again.events[0].seq < again.events[1].seq

    go(main)


def test_events_are_told_after_the_commit_is_stored_and_never_of_one_that_failed():
    """B164, P1."""

    async def main():
        storage = Faults(perdure.MemoryStorage())
        async with scene(storage=storage) as s:
            log = await log_of(s.root)
            storage.fail(storage.writes + 1)
            with pytest.raises(perdure.SessionFailed):
                await s.root.write("note")
            await quiet()
            assert log.names() == ["snapshot"]

    go(main)


def test_watchers_of_events_and_of_the_view_share_one_mount_that_goes_with_the_last():
    """B170: a thousand come and go, half of them without a word."""

    async def main():
        async with scene() as s:
            mounts = (await s.system.core("s")).part(Mounts, Mounts)
            for number in range(1_000):
                watch = await (s.root.watch_events() if number % 2 else s.root.watch())
                assert len(mounts._mounts) == 1
                if number % 4 < 2:
                    async with watch:
                        pass
                else:
                    watch.stop()
            assert mounts._mounts == {}
            both = await s.root.watch_events(), await s.root.watch()
            both[0].stop()
            assert len(mounts._mounts) == 1
            both[1].stop()
            assert mounts._mounts == {}

    go(main)


def test_attaching_to_a_long_conversation_shows_what_is_active_and_the_rest_is_paged():
    """B167: the view is the context's range, not the history."""

    async def main():
        async with scene() as s:
            async with s.root.commit() as tx:
                for _ in range(2_000):
                    await tx.append("note", "x" * 100)
            await s.root.reset("go on")
            await s.ask("x")
            async with await s.root.watch_events() as stream:
                snapshot = await anext(stream)
            assert [entry["kind"] for entry in snapshot.view["entries"]] == ["pi.reset", "pi.user", "pi.assistant"]
            first = await s.root.entries(limit=100)
            older = await s.root.entries(limit=100, cursor=first.next)
            assert first.items[-1].id > older.items[0].id

    go(main)


def test_an_unknown_conversation_has_no_events():
    async def main():
        async with scene() as s:
            with pytest.raises(perdure.UnknownRecord):
                await perdure.Conversation(s.system.services, "s", 99).watch_events()

    go(main)


# --- JSON


def test_every_event_is_the_same_after_a_way_through_json():
    async def main():
        clock = perdure.VirtualClock(autojump=True)
        brain = answering(error_info("overloaded", "busy"), [text("so"), call("add", a=1, b=2)], echo)
        async with scene(brain, tools=[add_tool()], clock=clock, tokens_per_second=10) as s:
            log = await log_of(s.root)
            await s.ask("x")
            await (await s.root.write("note")).wait()
            await settle(s)
            assert len({name(e) for e in log.events}) >= 12
            for event in log.events:
                sent = json.loads(json.dumps(event_to_json(event)))
                assert sent["type"] == name(event)
                assert event_from_json(sent) == event

    go(main)


def test_a_reader_takes_events_and_fields_of_a_newer_version():
    """B163: what is unknown is shown as unknown; the rest works."""
    known = {"type": "turn_end", "seq": 4, "conversationId": 1, "turn": 9, "mood": {"new": True}}
    assert name(event_from_json(known)) == "turn_end"
    newer = {"type": "hologram", "seq": 5, "conversationId": 1, "data": [1]}
    unknown = event_from_json(newer)
    assert isinstance(unknown, UnknownEvent)
    assert (unknown.type, unknown.value) == ("hologram", newer)
    for odd in [None, 5, [], {}, {"type": 7}, {"type": "turn_end"}]:
        assert event_from_json(odd).value == odd


def test_a_users_words_are_a_message_like_any_other():
    async def main():
        async with scene() as s:
            log = await log_of(s.root)
            await s.ask("hello")
            await settle(s)
            start = log.of("message_start")[0]
            assert start.message["role"] == "user"
            assert plain_text(UserMessage(content=start.message["content"]).content) == "hello"

    go(main)


# --- any run


class Fold:
    """What somebody knows who has heard the events alone."""

    def __init__(self):
        self.entries, self.message, self.calls = [], None, {}
        self.run = self.turn = None
        self.docs = {}

    def take(self, event):
        getattr(self, f"_{name(event)}", lambda event: None)(event)

    def _snapshot(self, event):
        live = event.view["docs"]["pi.live"]
        self.entries = [(entry["id"], entry.get("head")) for entry in event.view["entries"]]
        self.message = live.get("generation", {}).get("message")
        self.calls = {s["callId"]: dict(s) for s in live.get("tools", ()) if s["status"] == "running"}
        self.run, self.turn = event.run, event.turn
        self.docs = {kind: event.view["docs"][f"pi.{kind}"] for kind in ("inbox", "usage", "agent")}

    def _message_start(self, event):
        assert self.message is None
        self.message = event.message

    def _message_update(self, event):
        self.message = apply(json.loads(json.dumps(self.message)), event.ops)

    def _message_end(self, event):
        assert self.message is not None
        self.message = None
        if event.entry is not None:
            self._append(event.entry)

    def _entry_appended(self, event):
        self._append(event.entry)

    def _append(self, entry):
        kept = [one for one in self.entries if entry.head is None or (one[1] is None and one[0] >= entry.head)]
        new = [(entry.id, entry.head)]
        self.entries = kept + new if entry.head is None else new + kept  # a marker comes first

    def _tool_start(self, event):
        assert event.call_id not in self.calls
        self.calls[event.call_id] = {}

    def _tool_update(self, event):
        self.calls[event.call_id] = apply(self.calls[event.call_id], event.ops)

    def _tool_end(self, event):
        self.calls.pop(event.call_id, None)

    def _run_start(self, event):
        assert self.run is None
        self.run = event.run

    def _run_end(self, event):
        assert self.run == event.run
        assert self.turn is None
        self.run = None

    def _turn_start(self, event):
        assert self.turn is None
        self.turn = event.turn

    def _turn_end(self, event):
        assert self.turn == event.turn
        self.turn = None

    def _inbox(self, event):
        self.docs["inbox"] = {"items": event.items}

    def _usage(self, event):
        self.docs["usage"] = event.usage

    def _agent(self, event):
        self.docs["agent"] = event.agent


@pytest.mark.parametrize("seed", range(6))
def test_the_events_of_any_run_add_up_to_what_is_committed(seed):
    """VE-10, B166, B169: beginnings and ends alternate, and nothing is told twice or left out, over deaths too."""

    async def main():
        async with moody_scene(seed) as (s, dice):
            folds = []

            async def follow():
                while True:
                    fold = Fold()
                    try:
                        async with await s.root.watch_events() as stream:
                            folds.append(fold)
                            async for event in stream:
                                fold.take(event)
                    except perdure.SessionFailed:
                        continue

            following = asyncio.ensure_future(follow())
            for _ in range(3):
                await live_on(s, dice, 10)
                await quiet(200)
                fold = folds[-1]
                view = (await s.root.watch()).value
                assert [entry for entry, _ in fold.entries] == [entry["id"] for entry in view["entries"]]
                assert (fold.message, fold.run, fold.turn, fold.calls) == (None, None, None, {})
                assert fold.docs == {kind: view["docs"][f"pi.{kind}"] for kind in ("inbox", "usage", "agent")}
                s.system.kill("session:s")
                await quiet()
            assert not following.done()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    go(main, within=50)
