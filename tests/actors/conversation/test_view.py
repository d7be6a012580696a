import asyncio
import json

import msgspec
import perdure
import pytest
from perdure.actors.conversation.builtin import BUILT_IN
from perdure.actors.conversation.view import Mounts
from perdure.actors.models import Pause, ToolResultMessage, UserMessage, call, error_info
from perdure.chord import Decoder, Encoder, apply

from .support import Faults, echo, go, history, quiet, scene, seen


class Replica:
    """What a browser would hold: the first value, and every operation since, over the wire."""

    def __init__(self, watch):
        self.value = json.loads(json.dumps(watch.value))
        self.frames = 0
        self._encoder, self._decoder = Encoder(), Decoder()
        watch.start(self._take)

    async def _take(self, _value, ops):
        sent = json.loads(json.dumps(self._encoder.encode(ops)))
        self.value = apply(self.value, self._decoder.decode(sent))
        self.frames += 1


async def committed(conversation):
    """The view as anybody would put it together from what is stored."""
    docs = {doc.kind: await conversation.snapshot(doc) for doc in BUILT_IN}
    entries = msgspec.to_builtins(list((await conversation.context()).entries))
    return {"entries": entries, "docs": docs}


async def assert_equal(replica, conversation):
    await conversation.wait_for_idle()
    await quiet()
    value = dict(replica.value)
    assert value.pop("conversation")["id"] == conversation.id
    assert value == await committed(conversation)


@perdure.tool
async def dig(ctx: perdure.ToolContext, depth: int) -> str:
    """Dig, and say how it goes."""
    for metre in range(depth):
        ctx.output(f"at {metre} m\n")
        ctx.details({"depth": {"now": metre}})
        await ctx.sleep(0.15)
    ctx.diagnostic("wet", severity="warn")
    return "bottom"


def digger(request):
    if isinstance(request.messages[-1], UserMessage):
        return ["let me dig, it takes a while", Pause(500), call("dig", depth=4), call("dig", depth=2), call("gone")]
    return ["that was deep: ", *(m.tool_call_id for m in request.messages if isinstance(m, ToolResultMessage))]


def in_motion():
    """A scene in which streams and tools take virtual time."""
    clock = perdure.VirtualClock(autojump=True)
    return scene(digger, tools=[dig], clock=clock, tokens_per_second=50)


def test_a_replica_that_applies_the_operations_holds_the_committed_view_after_a_run_with_tools():
    async def main():
        async with in_motion() as s:
            replica = Replica(await s.root.watch())
            await s.ask("dig", request_id="a")
            await s.ask("dig again")
            assert replica.frames > 20
            await assert_equal(replica, s.root)

    go(main)


@pytest.mark.parametrize("moment", ["partial", "output", "result"])
def test_a_replica_that_joins_late_holds_the_same_view(moment):
    conditions = {
        "partial": lambda v: v["docs"]["pi.live"].get("generation", {}).get("message", {}).get("content"),
        "output": lambda v: any("output" in slot for slot in v["docs"]["pi.live"].get("tools", ())),
        "result": lambda v: any(slot["status"] == "done" for slot in v["docs"]["pi.live"].get("tools", ())),
    }

    async def main():
        async with in_motion() as s:
            early = Replica(await s.root.watch())
            await s.root.submit("dig")
            await seen(s.root, conditions[moment])
            late = Replica(await s.root.watch())
            await assert_equal(late, s.root)
            assert late.value == early.value

    go(main)


def test_a_slow_watcher_gets_one_replacement_and_then_holds_the_same_view():
    """VE-08."""

    async def main():
        async with scene() as s:
            watch = await s.root.watch()
            for _ in range(101):
                async with s.root.commit() as tx:
                    await tx.append("note")
            async with s.root.commit() as tx:
                await tx.append("last")
            replica = Replica(watch)
            await assert_equal(replica, s.root)
            assert replica.frames == 2  # the replacement, and the commit after it

    go(main)


def test_a_replica_follows_queues_failures_retries_and_aborts():
    async def main():
        clock = perdure.VirtualClock(autojump=True)

        def brain(request):
            if len(brain.asked) < 2:
                brain.asked.append(request)
                return error_info("overloaded", "busy")
            return ["a long answer that streams on and on and on", Pause(60_000)]

        brain.asked = []
        async with scene(brain, clock=clock, tokens_per_second=20) as s:
            replica = Replica(await s.root.watch())
            await s.root.submit("one")
            await s.root.submit("two")
            await s.root.submit("three", when_busy="steer")
            await seen(s.root, lambda v: v["docs"]["pi.live"].get("generation", {}).get("message"))
            await s.root.abort()
            await assert_equal(replica, s.root)

    go(main)


def test_live_shows_the_partial_the_retry_and_at_last_nothing():
    """VE-06, GE-12."""

    async def main():
        clock = perdure.VirtualClock(autojump=True)
        answers = [error_info("overloaded", "busy"), "a text that takes its time to stream"]
        async with scene(lambda request: answers.pop(0), clock=clock, tokens_per_second=20) as s:
            shown = []
            watch = await s.root.watch()
            submission = await s.root.submit("x")
            await submission.wait()
            while not shown or shown[-1] != {}:
                value, _ = await anext(watch)
                shown.append(value["docs"]["pi.live"])
            generations = [live["generation"] for live in shown if "generation" in live]
            retries = [g["retry"] for g in generations if "retry" in g]
            assert retries[0]["error"] == "busy"
            assert {g["attempt"] for g in generations} == {1, 2}
            partials = [g["message"]["content"][0]["text"] for g in generations if "message" in g]
            assert partials == sorted(partials, key=len)
            assert len(partials) >= 2

    go(main)


def test_a_head_puts_its_marker_first_and_keeps_from_its_target_on():
    """VE-12."""

    async def main():
        async with scene() as s:
            replica = Replica(await s.root.watch())
            async with s.root.commit() as tx:
                notes = [(await tx.append("note")).id for _ in range(3)]
            async with s.root.commit() as tx:
                marker = (await tx.append("summary", head=notes[1])).id
            async with s.root.commit() as tx:
                tail = (await tx.append("note")).id
            await quiet()
            assert [e["id"] for e in replica.value["entries"]] == [marker, notes[1], notes[2], tail]
            late = await s.root.watch()
            assert late.value == replica.value
            await assert_equal(replica, s.root)

    go(main)


def test_after_a_restart_a_view_starts_from_what_is_stored(storage):
    async def main():
        async with scene(storage=storage) as s:
            replica = Replica(await s.root.watch())
            await s.ask("one")
            async with s.root.commit() as tx:
                await tx.append("summary", head="self")
            await s.ask("two")
            await quiet()
            before = replica.value
        async with scene(storage=storage) as s:
            async with await s.root.watch() as watch:
                assert watch.value == before
            replica = Replica(await s.root.watch())
            await s.ask("three")
            await assert_equal(replica, s.root)

    go(main)


def test_nothing_is_shown_before_it_is_stored():
    """P1, B164."""

    async def main():
        storage = Faults(perdure.MemoryStorage())
        async with scene(storage=storage) as s:
            watch = await s.root.watch()
            frames = []

            async def take(value, ops):
                frames.append(ops)

            watch.start(take)
            released = storage.hold(storage.writes + 1)
            submitting = asyncio.ensure_future(s.root.submit("x"))
            await quiet(100)
            assert (frames, submitting.done()) == ([], False)
            released.set()
            await (await submitting).wait()
            await quiet()
            assert frames

    go(main)


def test_what_a_failed_write_would_have_shown_is_never_shown():
    """B014, B164."""

    async def main():
        storage = Faults(perdure.MemoryStorage())
        async with scene(storage=storage) as s:
            watch = await s.root.watch()
            storage.fail(storage.writes + 1)
            with pytest.raises(perdure.SessionFailed):
                await s.root.submit("x")
            assert (await watch.closed).reason == "closed"
            assert [value async for value, _ in watch] == []
            assert await history(s.root) == []

    go(main)


def test_a_publication_is_seen_on_the_line_and_the_code_of_watchers_runs_later():
    """VE-07: what a watcher's code does, or fails to do, is nothing that a commit waits for."""

    async def main():
        async with scene() as s:
            core = await s.system.core("s")
            order = []
            watch = await s.root.watch()

            async def slow(value, ops):
                order.append("watcher")
                await asyncio.Event().wait()

            watch.start(slow)
            core.subscribe(lambda publication: order.append(("published", core.gate.durable >= publication.seq)))
            async with s.root.commit() as tx:
                await tx.append("note")
            order.append("committed")
            await quiet()
            assert order[0] == ("published", True)
            assert order.index("watcher") > 0
            async with s.root.commit() as tx:
                await tx.append("note")
            assert order[-1] == ("published", True)
            watch.stop()

    go(main)


def test_only_the_conversations_own_commits_reach_its_watchers():
    async def main():
        async with scene() as s:
            other = await s.session.create_conversation(agent=perdure.Agent(model="scripted/model"))
            replica = Replica(await s.root.watch())
            await (await other.submit("x")).wait()
            await quiet()
            assert replica.frames == 0

    go(main)


def test_watchers_share_one_mount_that_goes_with_the_last_of_them():
    """VE-11's rule for views, B170."""

    async def main():
        async with scene() as s:
            mounts = (await s.system.core("s")).part(Mounts, Mounts)
            watches = await asyncio.gather(*(s.root.watch() for _ in range(10)))
            assert len(mounts._mounts) == 1
            for watch in watches:
                assert mounts._mounts
                watch.stop()
            assert mounts._mounts == {}
            await s.ask("x")
            watch = await s.root.watch()
            assert len(watch.value["entries"]) == 2

    go(main)


def test_a_view_ends_with_its_session():
    async def main():
        async with scene() as s:
            watch, killed = await s.root.watch(), await s.root.watch()
            s.system.kill("session:s")
            assert (await killed.closed).reason == "closed"
            await quiet()
            again = await s.root.watch()
        assert (await again.closed).reason == "closed"
        assert watch.ended.reason == "closed"

    go(main)


def test_an_unknown_conversation_cannot_be_watched():
    async def main():
        async with scene() as s:
            with pytest.raises(perdure.UnknownRecord):
                await perdure.Conversation(s.system.services, "s", 99).watch()

    go(main)


def test_a_listener_that_raises_ends_its_own_watch_only():
    """VE-13."""

    async def main():
        async with scene() as s:
            bad, good = await s.root.watch(), Replica(await s.root.watch())

            async def fall_over(value, ops):
                raise ValueError

            bad.start(fall_over)
            await s.ask("x")
            assert (await bad.closed).reason == "listener_error"
            await assert_equal(good, s.root)

    go(main)


def test_a_watch_in_a_commit_block_of_its_session_is_refused_at_once():
    async def main():
        async with scene(echo) as s, s.root.commit():
            with pytest.raises(perdure.LineReentry):
                await s.root.watch()

    go(main)
