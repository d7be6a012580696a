"""What commits do to a session's mail: what is staged, stored, and still known after a restart."""

import asyncio
from contextlib import suppress

import pytest
from perdure import InboxFull, InvalidValue, MessageQuery, MessageSender, Phase, Task, TaskRecord
from perdure.actors.session import mail as session_mail
from perdure.actors.session.mail import body_of, end_mail, fate_of, place_backlog, post, receive_from, send, take
from perdure.actors.task.tx import finish
from perdure.chord.errors import InvalidJson
from perdure.storage.records import Completed, MessageRecord

from .support import rig


class Quiet(Task[None, None], name="test.quiet"):
    class Run(Phase):
        pass

    async def run(self, run, state):
        raise AssertionError("nothing runs tasks here")


async def with_task(**options):
    """A session with one task; gives both."""
    session = await rig(**options)
    await session.root()
    async with session.commit(1) as tx:
        task = await tx.create_task(Quiet)
    return session, task.id


async def end(session, task):
    async with session.commit() as tx:
        finish(tx, await tx.task(task), Completed())


async def messages(session, status=None):
    page = await session.storage.scan_messages(session.core.key, MessageQuery(status=status), 100)
    return page.items


def bodies(records):
    return [record.body for record in records]


def run(test):
    def sync():
        asyncio.run(test())

    sync.__name__, sync.__doc__ = test.__name__, test.__doc__
    return sync


# --- sending


@run
async def test_a_message_to_a_task_of_the_session_is_queued_by_its_senders_own_commit():
    session, task = await with_task()
    async with session.commit() as tx:
        await send(tx, "s", task, {"n": 1})
        await send(tx, "s", task, {"n": 2})
    first, second = await messages(session, "queued")
    assert (first.body, second.body, first.id < second.id) == ({"n": 1}, {"n": 2}, True)
    assert first.sender == MessageSender()
    assert [record.id for record in (await session.reopened()).core.mail.inbox(task)] == [first.id, second.id]


@run
async def test_a_block_that_fails_sends_nothing():
    """P2: the message is part of the commit, or there is none."""
    session, task = await with_task()
    with suppress(ZeroDivisionError):
        async with session.commit() as tx:
            await send(tx, "s", task, 1)
            await send(tx, "elsewhere", 5, 2)
            raise ZeroDivisionError
    assert await messages(session) == []
    assert session.core.forest.mail(task) == 0
    async with session.commit() as tx:
        await send(tx, "s", task, 3)
    assert bodies(session.core.mail.inbox(task)) == [3]


@run
async def test_a_message_to_another_session_is_outgoing_and_keeps_its_session_awake():
    """B062: after a crash the store's index of due sessions leads to it."""
    session, task = await with_task()
    async with session.commit() as tx:
        tx.by_task = task
        await send(tx, "elsewhere", 5, "x")
    (record,) = await messages(session)
    assert (record.status, record.session, record.task_id, record.sender) == (
        "outgoing",
        "elsewhere",
        5,
        MessageSender(task_id=task),
    )
    await end(session, task)
    assert await session.storage.due(0, 9) == ["s"]
    assert (await session.reopened()).core.mail.outgoing == {"elsewhere": {record.id: record}}
    async with session.commit() as tx:
        tx.delete_message(record)
    assert (await session.storage.session("s")).wake is None
    assert session.core.mail.outgoing == {}


@run
async def test_what_has_no_json_form_or_is_too_large_is_refused_at_once():
    """P11."""
    with pytest.raises(InvalidJson):
        body_of(object())
    with pytest.raises(InvalidJson):
        body_of(float("nan"))
    assert body_of(MessageSender(task_id=3)) == {"taskId": 3}
    assert body_of("x" * (session_mail.MAX_MESSAGE_BYTES - 2))
    with pytest.raises(InvalidValue, match="bytes of JSON"):
        body_of("x" * session_mail.MAX_MESSAGE_BYTES)


# --- from outside


@run
async def test_of_messages_with_one_request_id_to_a_task_the_first_one_counts():
    """B064: while it waits, once it is consumed, and after a restart."""
    session, task = await with_task()
    for body in ("first", "second"):
        async with session.commit() as tx:
            kept = await post(tx, task, body, "r")
        assert kept.body == "first"
    async with session.commit() as tx:
        assert bodies(take(tx, task, None)) == ["first"]
    for life in range(2):
        async with session.commit() as tx:
            assert (await post(tx, task, "third", "r")).status == "consumed"
            assert (await post(tx, task, "other", f"r{life}")).status == "queued"
        assert bodies(await messages(session)) == [None, *["other"] * (life + 1)]
        session = await session.reopened()


@run
async def test_a_request_is_known_before_its_commit_is_durable():
    """B067: two callers in one tick send one message."""
    session, task = await with_task()
    session.auto = False
    async with session.commit(wait=False) as tx:
        first = await post(tx, task, 1, "r")
    async with session.commit(wait=False) as tx:
        assert (await post(tx, task, 2, "r")).id == first.id
    async with session.commit(wait=False) as tx:
        take(tx, task, None)
    async with session.commit(wait=False) as tx:
        assert (await post(tx, task, 3, "r")).status == "consumed"
    await session.store(1)
    async with session.commit(wait=False) as tx:
        assert (await post(tx, task, 4, "r")).status == "consumed"
    await session.store()
    assert [record.status for record in await messages(session)] == ["consumed"]


@run
async def test_a_full_inbox_refuses_whoever_can_send_again_and_loses_nothing_of_whoever_cannot():
    """B073."""
    session, task = await with_task()
    session_mail_limit, session_mail.MAX_INBOX = session_mail.MAX_INBOX, 2
    try:
        async with session.commit() as tx:
            for n in range(5):
                await send(tx, "s", task, n)
        assert bodies(await messages(session, "queued")) == [0, 1]
        assert bodies(await messages(session, "outgoing")) == [2, 3, 4]
        with pytest.raises(InboxFull) as full:
            async with session.commit() as tx:
                await post(tx, task, "x", "r")
        assert (full.value.receiver, full.value.count) == (task, 2)
        async with session.commit() as tx:
            take(tx, task, 1)
        async with session.commit() as tx:
            await send(tx, "s", task, 5)
        assert bodies(await messages(session, "outgoing")) == [2, 3, 4, 5], "nobody overtakes"
        for expected in ([1, 2], [2, 3], [3, 4], [4, 5]):
            async with session.commit() as tx:
                await place_backlog(tx, list(session.core.mail.outgoing[None].values()))
            assert bodies(session.core.mail.inbox(task)) == expected
            async with session.commit() as tx:
                take(tx, task, 1)
        assert not session.core.mail.has_backlog
    finally:
        session_mail.MAX_INBOX = session_mail_limit


# --- arriving


def from_elsewhere(number, task, body=None):
    sender = MessageSender(task_id=9)
    return MessageRecord(id=number, status="outgoing", task_id=task, session="s", sender=sender, body=body or number)


async def hand_over(session, outbox, *bundle):
    async with session.commit() as tx:
        return await receive_from(tx, "peer", outbox, bundle)


@run
async def test_what_is_handed_over_again_is_noticed_also_after_a_restart():
    """B064: the mark is stored with the messages."""
    session, task = await with_task()
    bundle = [from_elsewhere(number, task) for number in (3, 5)]
    assert await hand_over(session, "o", *bundle) == 2
    assert await hand_over(session, "o", *bundle) == 2
    session = await session.reopened()
    assert await hand_over(session, "o", *bundle) == 2
    assert await hand_over(session, "o", *bundle, from_elsewhere(6, task)) == 3
    assert bodies(session.core.mail.inbox(task)) == [3, 5, 6]
    assert session.core.mail.inbox(task)[0].sender == MessageSender(session="peer", task_id=9)


@run
async def test_a_sender_that_was_deleted_and_begun_anew_is_another_one():
    """Its ids begin anew, so the mark of the old one must not swallow its messages."""
    session, task = await with_task()
    await hand_over(session, "old", from_elsewhere(50, task))
    await hand_over(session, "new", from_elsewhere(4, task))
    await hand_over(session, "new", from_elsewhere(4, task), from_elsewhere(5, task))
    assert bodies(session.core.mail.inbox(task)) == [50, 4, 5]


@run
async def test_messages_to_nobody_are_kept_as_dead_letters_and_stop_nobody():
    """B062, B065: with the reason."""
    session, task = await with_task()
    async with session.commit(1) as tx:
        over = await tx.create_task(Quiet)
    await end(session, over.id)
    assert await hand_over(session, "o", *(from_elsewhere(n, t) for n, t in ((1, over.id), (2, 999), (3, task)))) == 3
    async with session.commit() as tx:
        await send(tx, "s", over.id, "late")
        await send(tx, "s", 999, "lost")
    dead = await messages(session, "dead")
    assert [(one.task_id, one.reason) for one in dead] == [(over.id, "ended"), (999, "unknown_task")] * 2
    assert bodies(session.core.mail.inbox(task)) == [3]
    assert await session.storage.dead_letters() == {"s": 4}


# --- receiving


@run
async def test_messages_are_taken_in_order_by_the_commit_that_uses_them():
    session, task = await with_task()
    async with session.commit() as tx:
        for n in range(5):
            await send(tx, "s", task, n)
    with suppress(ZeroDivisionError):
        async with session.commit() as tx:
            take(tx, task, 3)
            raise ZeroDivisionError
    async with session.commit() as tx:
        assert bodies(take(tx, task, 2)) == [0, 1]
        await send(tx, "s", task, 5)
        assert bodies(take(tx, task, 0)) == []
        assert bodies(take(tx, task, None)) == [2, 3, 4]
    assert bodies(await messages(session)) == [5]
    assert session.core.forest.mail(task) == 1
    assert (await session.reopened()).core.forest.mail(task) == 1


# --- the end of a task


@run
async def test_what_a_task_has_not_received_when_it_ends_becomes_dead_letters():
    session, task = await with_task()
    async with session.commit() as tx:
        await send(tx, "s", task, 1)
    async with session.commit() as tx:
        await send(tx, "s", task, 2)
        finish(tx, await tx.task(task), Completed())
        await send(tx, "s", task, 3)
    dead = await messages(session)
    assert [(one.body, one.status, one.reason) for one in dead] == [(n, "dead", "ended") for n in (1, 2, 3)]
    assert session.core.mail.inbox(task) == []
    assert session.core.forest.mail(task) == 0


@run
async def test_receipts_go_with_their_task():
    """P10: those of this life, of an earlier one, and of the very commit that ends the task."""
    session, task = await with_task()
    async with session.commit() as tx:
        for number in range(3):
            await post(tx, task, number, f"r{number}")
    async with session.commit() as tx:
        take(tx, task, 1)
    session = await session.reopened()
    async with session.commit() as tx:
        take(tx, task, 1)
    assert [one.status for one in await messages(session)] == ["consumed", "consumed", "queued"]
    async with session.commit() as tx:
        take(tx, task, 1)
        finish(tx, await tx.task(task), Completed())
    assert await messages(session) == []


@run
async def test_receipts_of_an_earlier_life_go_with_their_task_though_it_receives_nothing_more():
    session, task = await with_task()
    async with session.commit() as tx:
        await post(tx, task, 1, "r")
    async with session.commit() as tx:
        take(tx, task, None)
    session = await session.reopened()
    await end(session, task)
    assert await messages(session) == []


@run
async def test_the_end_of_a_task_without_mail_asks_storage_nothing():
    """P10: settling thousands costs nothing for mail that nobody sent."""
    session, task = await with_task()
    asked = []
    session.core.storage.scan_messages = lambda *arguments: asked.append(arguments)
    async with session.commit() as tx:
        await end_mail(tx, task)
    await end(session, task)
    assert asked == []


@run
async def test_the_fate_of_a_message_is_known_from_the_block_itself():
    session, task = await with_task()
    async with session.commit() as tx:
        assert await fate_of(tx, task) == session_mail.MAX_INBOX
        await send(tx, "s", task, 1)
        assert await fate_of(tx, task) == session_mail.MAX_INBOX - 1
        finish(tx, await tx.task(task), Completed())
        assert await fate_of(tx, task) == "ended"
        assert await fate_of(tx, 999) == "unknown_task"
    assert not (await session.core.row(TaskRecord, task)).live
