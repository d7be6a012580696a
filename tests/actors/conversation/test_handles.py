import asyncio

import msgspec
import perdure
import pytest
from perdure.actors.conversation.builtin import AgentDoc, LiveDoc
from perdure.actors.models import Text, Thinking, ToolResultMessage, call

from .support import MODEL, answering, echo, go, history, kinds, quiet, scene


class Naps(perdure.Task[int, None], name="test.nap", version=1):
    """Parks until a time that is far away."""

    class Start(perdure.Phase):
        pass

    class Over(perdure.Phase):
        pass

    async def start(self, run, state):
        await run.wait(until=run.now() + run.input, then=self.Over())

    async def over(self, run, state):
        await run.complete()


NAPS = perdure.Extension(name="naps", tasks=[Naps])
LONG = 10_000_000


def nowhere(s):
    return perdure.Conversation(s.system.services, "s", 99)


# --- unknown ids


def test_unknown_ids_are_refused_and_the_session_goes_on():
    """Must show 7 of issue 2."""

    async def main():
        async with scene() as s:
            lost = perdure.Submission(s.system.services, "s", 99)
            attempts = [
                lambda: s.session.conversation(99),
                lambda: s.session.submission(99),
                lambda: s.session.task(99),
                lost.status,
                lost.wait,
                nowhere(s).abort,
                nowhere(s).wait_for_idle,
                nowhere(s).context,
                nowhere(s).entries,
                nowhere(s).watch,
                lambda: nowhere(s).submit("x"),
                lambda: nowhere(s).configure(perdure.Agent(model=MODEL)),
            ]
            for attempt in attempts:
                with pytest.raises(perdure.UnknownRecord, match="99"):
                    await attempt()
            assert (await s.ask("still here")).answer.text == "re: still here"

    go(main)


def test_an_id_of_another_kind_of_record_is_unknown():
    async def main():
        async with scene() as s:
            submission = await s.root.submit("x")
            await submission.wait()
            with pytest.raises(perdure.UnknownRecord):
                await s.session.conversation(submission.id)
            with pytest.raises(perdure.UnknownRecord):
                await s.session.submission(1)

    go(main)


@pytest.mark.parametrize("odd", ["x", "1", None, True, 1.0, float("nan"), -1, 2**70, [1], b"1", object()])
def test_what_is_no_id_is_refused_and_not_taken_for_one(odd):
    """P11: True is not the root conversation."""

    async def main():
        async with scene() as s:
            services = s.system.services
            attempts = [
                lambda: s.session.conversation(odd),
                lambda: s.session.submission(odd),
                lambda: s.session.task(odd),
            ]
            if odd is not None:
                attempts.append(lambda: s.root.context(at=odd))
            for attempt in attempts:
                with pytest.raises((perdure.UnknownRecord, perdure.InvalidValue)):
                    await attempt()
            for handle in (perdure.Conversation, perdure.Submission):
                with pytest.raises(perdure.InvalidValue):
                    handle(services, "s", odd)
            assert (await s.ask("still here")).answer.text == "re: still here"

    go(main)


def test_reads_of_an_unknown_conversation_find_nothing_and_create_nothing():
    """DF-08."""

    async def main():
        async with scene() as s:
            assert await nowhere(s).snapshot(LiveDoc) is None
            assert await nowhere(s).watch_doc(LiveDoc) is None
            assert await nowhere(s).live() == {}
            with pytest.raises(perdure.UnknownRecord):
                await s.session.conversation(99)

    go(main)


# --- sessions


def test_root_gives_the_existing_conversation_and_ignores_its_options():
    """DF-20."""

    async def main():
        async with scene() as s:
            root = await s.session.root(agent=perdure.Agent(model="other/model"))
            assert root == s.root
            assert (await root.snapshot(AgentDoc))["model"] == {"provider": "scripted", "modelId": "model"}

    go(main)


def test_root_asked_for_by_many_at_once_is_created_once(storage):
    async def main():
        async with scene(storage=storage) as s:
            session = await s.system.session("new")
            agents = [perdure.Agent(model=f"scripted/{i}") for i in range(5)]
            roots = await asyncio.gather(*(session.root(agent=agent) for agent in agents))
            assert {root.id for root in roots} == {1}
            async with session.commit() as tx:
                assert len((await tx.scan_conversations(perdure.ConversationQuery(), 10)).items) == 1

    go(main)


def test_handles_compare_by_id_and_survive_the_restart_of_their_actors():
    async def main():
        async with scene() as s:
            submission = await s.root.submit("one")
            await submission.wait()
            s.system.kill("session:s")
            assert (await submission.wait()).answer.text == "re: one"
            assert (await s.root.submit("two")).id != submission.id
            assert await s.session.conversation(1) == s.root
            assert len({s.root, await s.session.root()}) == 1
            s.system.kill("storage")
            with pytest.raises(perdure.SessionFailed):
                await s.root.submit("three", request_id="r")
            assert (await s.ask("three", request_id="r")).status == "done"

    go(main)


def test_a_closed_system_refuses_what_its_handles_are_asked():
    async def main():
        async with scene() as s:
            submission = await s.root.submit("x")
            await submission.wait()
        for attempt in (lambda: s.root.submit("x"), submission.wait, s.root.entries, s.root.abort):
            with pytest.raises(perdure.SessionClosed):
                await attempt()

    go(main)


def test_live_tasks_are_listed_and_found_by_id():
    async def main():
        async with scene(extensions=[NAPS]) as s:
            async with s.root.commit() as tx:
                ref = await tx.create_task(Naps, LONG)
            assert [record.id for record in await s.session.tasks()] == [ref.id]
            assert await s.session.task(ref.id) == ref
            await ref.abort()
            await ref.settled()
            assert await s.session.tasks() == []
            assert (await (await s.session.task(ref.id)).record()).state.outcome == perdure.Aborted()

    go(main)


# --- waiting


def test_cancelling_a_wait_ends_only_the_waiting():
    async def main():
        free = asyncio.Event()

        async def brain(request):
            await free.wait()
            return "ok"

        async with scene(brain) as s:
            submission = await s.root.submit("x")
            waiting = asyncio.ensure_future(submission.wait())
            await quiet()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            free.set()
            assert (await submission.wait()).answer.text == "ok"

    go(main)


def test_an_answers_text_leaves_out_thinking_and_calls():
    async def main():
        async with scene(answering([Thinking(thinking="hm"), Text(text="yes"), Text(text="!")])) as s:
            settled = await s.ask()
            assert settled.answer.text == "yes!"
            assert settled.answer.message.content[0] == Thinking(thinking="hm")
            assert settled.answer.entry.id == settled.record.answer

    go(main)


def test_idle_is_when_no_foreground_work_is_left_in_or_below():
    async def main():
        clock = perdure.VirtualClock(autojump=True)
        async with scene(extensions=[NAPS], clock=clock) as s:
            began = clock.now()
            other = await s.session.create_conversation()
            async with s.root.commit() as tx:
                owner = await tx.create_task(Naps, 1_000)
                child = await tx.create_conversation(owner=owner.id)
                await tx.create_task(Naps, 5_000, conversation_id=child.id)
                await tx.create_task(Naps, 60_000, background=True)
                await tx.create_task(Naps, 20_000, conversation_id=other.id)
            await s.root.wait_for_idle()
            assert clock.now() - began == 5_000
            await s.session.wait_for_idle()
            assert clock.now() - began == 20_000
            assert [record.background for record in await s.session.tasks()] == [True]

    go(main)


def test_waiting_for_idle_ends_when_the_session_fails():
    async def main():
        async with scene(extensions=[NAPS]) as s:
            async with s.root.commit() as tx:
                await tx.create_task(Naps, LONG)
            waiting = asyncio.ensure_future(s.root.wait_for_idle())
            await quiet()
            s.system.kill("session:s")
            with pytest.raises(perdure.SessionFailed):
                await waiting

    go(main)


# --- aborting


def test_aborting_an_idle_conversation_does_nothing():
    async def main():
        async with scene() as s:
            await s.ask("x")
            before = await history(s.root)
            await s.root.abort()
            assert await history(s.root) == before
            assert (await s.ask("y")).status == "done"

    go(main)


def test_an_abort_ends_foreground_work_and_nothing_else():
    async def main():
        async with scene(extensions=[NAPS]) as s:
            other = await s.session.create_conversation()
            async with s.root.commit() as tx:
                mine = await tx.create_task(Naps, LONG)
                background = await tx.create_task(Naps, LONG, background=True)
                theirs = await tx.create_task(Naps, LONG, conversation_id=other.id)
            await s.root.abort()
            assert not (await mine.record()).live
            assert (await background.record()).live
            assert (await theirs.record()).live

    go(main)


def test_an_abort_of_background_work_too_ends_everything_below_and_waits_for_it():
    async def main():
        async with scene(extensions=[NAPS]) as s:
            async with s.root.commit() as tx:
                mine = await tx.create_task(Naps, LONG)
                background = await tx.create_task(Naps, LONG, background=True)
                below = await tx.create_task(Naps, LONG, owner=background.id)
                child = await tx.create_conversation(owner=background.id)
                deep = await tx.create_task(Naps, LONG, conversation_id=child.id)
            waiting = asyncio.ensure_future(s.root.wait_for_idle(background=True))
            await s.root.abort()
            await quiet()
            assert (await background.record()).live
            assert not waiting.done()
            await s.root.abort(background=True)
            await waiting
            assert not any([(await one.record()).live for one in (mine, background, below, deep)])

    go(main)


def test_an_abort_by_two_at_once_is_one_abort():
    async def main():
        never = asyncio.Event()

        async def brain(request):
            await never.wait()

        async with scene(brain) as s:
            submission = await s.root.submit("x")
            await quiet()
            await asyncio.gather(s.root.abort(), s.root.abort())
            assert (await submission.wait()).reason == "aborted"
            assert kinds(await history(s.root)) == ["user"]

    go(main)


# --- reading


def test_the_history_is_paged_newest_first_by_default(storage):
    async def main():
        async with scene(storage=storage) as s:
            async with s.root.commit() as tx:
                written = [(await tx.append("note", {"n": n})).id for n in range(5)]
                await tx.append("mark", head="self")
            first = await s.root.entries(limit=4)
            assert [e.id for e in first.items[1:]] == written[:1:-1]
            rest = await s.root.entries(limit=4, cursor=first.next)
            assert [e.id for e in rest.items] == written[1::-1]
            assert rest.next is None
            oldest = await s.root.entries(limit=2, order="ascending")
            assert [e.id for e in oldest.items] == written[:2]
            with pytest.raises(perdure.StorageRejected):
                await s.root.entries(limit=2, cursor=oldest.next, order="descending")

    go(main)


def test_the_context_as_of_an_entry_is_what_was_sent_then():
    """CX-10."""

    async def main():
        async with scene() as s:
            for text in ("one", "two", "three"):
                await s.ask(text)
            users = [e.id for e in await history(s.root) if e.kind == "pi.user"]
            for request, at in zip(s.model.calls, users, strict=True):
                assert (await s.root.context(at=at)).messages == request.messages

    go(main)


def test_documents_are_read_and_watched_through_the_handle():
    async def main():
        async with scene() as s:
            notes: perdure.Doc = perdure.Doc("test.notes", initial=lambda: {"n": 0})
            assert await s.root.snapshot(notes) is None
            async with s.root.commit() as tx:
                (await tx.doc(notes, s.root.id))["n"] = 1
            watch = await s.root.watch_doc(notes)
            async with s.root.commit() as tx:
                (await tx.doc(notes, s.root.id))["n"] = 2
            assert await anext(watch) == ({"n": 2}, [["s", ["n"], 2]])
            assert await s.root.snapshot(notes) == {"n": 2}

    go(main)


# --- configuring


def test_a_change_of_model_takes_effect_at_the_next_request_of_a_run():
    """B086."""

    async def main():
        second = perdure.ScriptedModel(lambda request: "from the second", name="scripted/second")

        @perdure.tool
        async def switch(ctx: perdure.ToolContext) -> str:
            """Switch to the second model."""
            await ctx.conversation().configure(perdure.Agent(model="scripted/second", thinking_level="high"))
            return "switched"

        async with scene(answering(call("switch"), echo), tools=[switch], models=[second]) as s:
            settled = await s.ask()
            assert settled.answer.text == "from the second"
            assert settled.answer.message.model == "second"
            assert [request.thinking_level for request in (*s.model.calls, *second.calls)] == ["off", "high"]
            assert any(isinstance(m, ToolResultMessage) for m in second.calls[0].messages)

    go(main)


def test_a_conversation_without_a_model_answers_nothing_until_it_has_one():
    """GE-02."""

    async def main():
        async with scene() as s:
            bare = await s.session.create_conversation()
            assert (await (await bare.submit("one")).wait()).reason == "no_model"
            await bare.configure(perdure.Agent(model=MODEL))
            assert (await (await bare.submit("two")).wait()).answer.text == "re: two"

    go(main)


# --- documents of an application

SessionNotes = perdure.Doc("test.session-notes", scope="session", initial=lambda: {"n": 0})
TaskNotes = perdure.Doc("test.task-notes", scope="task", initial=lambda: {"n": 0})


class Shelf(msgspec.Struct):
    n: int = 0


Shelves = perdure.Doc("test.shelves", family=True, initial=lambda seed: {"n": seed}, type=Shelf)


def test_documents_of_every_scope_are_read_and_watched_through_the_handle_of_their_owner():
    """DF-01, DF-08, DF-18."""

    async def main():
        async with scene(extensions=[NAPS]) as s:
            async with s.root.commit() as tx:
                task = await tx.create_task(Naps, LONG)
            handles = {
                "session": (s.session, SessionNotes, None, {}),
                "conversation": (s.root, Shelves, s.root.id, {"key": "top"}),
                "task": (task, TaskNotes, task.id, {}),
            }
            for owner, doc, _, key in handles.values():
                assert await owner.snapshot(doc, **key) is None
                assert await owner.watch_doc(doc, **key) is None
            for _, doc, scope, key in handles.values():
                async with s.session.commit() as tx:
                    (await tx.doc(doc, scope, **key, seed=5 if key else None))["more"] = 1
            watches = {name: await owner.watch_doc(doc, **key) for name, (owner, doc, _, key) in handles.items()}
            for _, doc, scope, key in handles.values():
                async with s.session.commit() as tx:
                    (await tx.doc(doc, scope, **key, seed=99 if key else None))["n"] += 1
            assert [(await anext(watch))[0]["n"] for watch in watches.values()] == [1, 6, 1]
            assert await s.root.snapshot(Shelves, key="top") == Shelf(6)
            assert Shelves.view(watches["conversation"].value) == Shelf(6)
            assert (await s.session.watch_doc(Shelves, s.root.id, key="top")).value["n"] == 6
            await task.abort()
            await task.settled()
            assert await task.snapshot(TaskNotes) is None
            assert [value async for value, _ in watches["task"]] == [None]
            assert watches["task"].ended.reason == "retired"

    go(main)


def test_the_built_in_documents_are_created_first_and_in_order():
    """DF-19: then come the choice of an agent and whatever else the creating block does."""

    async def main():
        async with scene() as s:
            published = []
            (await s.system.core("s")).subscribe(published.append)
            async with s.session.commit() as tx:
                record = await tx.create_conversation()
                await perdure.configure(tx, record.id, perdure.Agent(model=MODEL))
                await tx.doc(Shelves, record.id, key="own", seed=1)
            created = sorted((one.record.id, one.record.kind) for one in published[0].documents if one.created)
            kinds_ = [kind for _, kind in created]
            assert kinds_ == ["pi.live", "pi.inbox", "pi.usage", "pi.provider", "pi.agent", "test.shelves"]
            agent = next(one for one in published[0].documents if one.record.kind == "pi.agent")
            assert agent.value["model"]["modelId"] == "model"

    go(main)
