"""Conformance: messages, from the sender's outbox to the receiver's inbox, and dead letters."""

from typing import Any

from .conformance_rig import ENDED, Rig, Suite, conversation, entry, ids, message, pages, scenario, task
from .contract import MessageQuery
from .records import MessageDelete, MessageRecord, MessageSender


class MessageConformance(Suite):
    """What becomes of messages, and how they are found."""

    async def _begin(self, rig: Rig) -> int:
        """Commit a conversation and a task; give the task."""
        await rig.commit(conversation(rig.id()), task(rig.id()))
        return rig.last_id

    @scenario
    async def test_a_message_is_found_by_id_until_it_is_deleted(self, rig: Rig) -> None:
        """B062: it is stored as it is, body included, and gone when it is deleted."""
        await self._begin(rig)
        sender = MessageSender(session="other", task_id=7)
        sent = message(rig.id(), sender=sender, body={"text": "é\u2028", "n": [1, 2.5, None]})
        away = message(rig.id(), status="outgoing", session="other", body="x", sender=MessageSender(task_id=2))
        await rig.commit(sent, away)
        await rig.restart()
        assert await rig.storage.message("session", 3) == sent
        assert await rig.storage.message("session", 4) == away
        assert await rig.storage.message("other", 3) is None
        await rig.commit(MessageDelete(id=3))
        await rig.restart()
        assert await rig.storage.message("session", 3) is None
        assert await rig.storage.live_messages("session") == [away]

    @scenario
    async def test_live_messages_are_those_that_nobody_has_received_yet(self, rig: Rig) -> None:
        """Outgoing and queued ones, by id; neither dead letters nor receipts."""
        await self._begin(rig)
        statuses = ("outgoing", "queued", "dead", "consumed", "queued")
        rig.last_id = 10
        made = [self._made(6 + n, status) for n, status in enumerate(statuses)]
        rig.last_id = 10
        await rig.commit(*reversed(made))
        await rig.restart()
        assert ids(await rig.storage.live_messages("session")) == [6, 7, 10]
        assert await rig.storage.live_messages("nobody") == []

    def _made(self, id: int, status: Any, **fields: Any) -> MessageRecord:
        """Make a message that may have the status."""
        more: dict[str, Any] = {"consumed": {"request_id": f"r{id}"}, "outgoing": {"session": "other"}}.get(status, {})
        return message(id, status=status, body=None, **(more | fields))

    @scenario
    async def test_messages_are_paged_by_task_and_status_in_either_order(self, rig: Rig) -> None:
        """A page and its cursor, as of every other scan."""
        await self._begin(rig)
        rig.last_id = 40
        statuses = ("outgoing", "queued", "dead", "consumed")
        made = [self._made(n, statuses[n % 4], task_id=2 + n % 3 // 2) for n in range(5, 41)]
        await rig.commit(*made)
        for order in ("ascending", "descending"):
            for status in (None, *statuses):
                for wanted in (None, 2, 3, 99):
                    query = MessageQuery(status=status, task_id=wanted, order=order)  # type: ignore[arg-type]
                    found = await pages(rig.storage.scan_messages, "session", query, limit=4)
                    kept = [m for m in made if status in (None, m.status) and wanted in (None, m.task_id)]
                    assert ids(found) == sorted(ids(kept), reverse=order == "descending")

    @scenario
    async def test_a_message_goes_forward_and_stays_the_one_that_it_is(self, rig: Rig) -> None:
        """Outgoing, queued, consumed or dead; then only its deletion is left."""
        await self._begin(rig)
        rig.last_id = 6
        await rig.commit(message(3, status="outgoing"), message(4, request_id="r"), message(5), message(6))
        await rig.commit(message(3), message(4, status="consumed", request_id="r", body=None))
        await rig.commit(message(5, status="dead", reason="ended"))
        await rig.refuse(message(3, status="outgoing"))
        await rig.refuse(message(3, task_id=1))
        await rig.refuse(message(3, request_id="new"))
        for over in (4, 5):
            await rig.refuse(message(over, request_id="r" if over == 4 else None))
        await rig.refuse(message(6), message(6))
        await rig.refuse(message(6, status="dead"), MessageDelete(id=6))
        await rig.refuse(MessageDelete(id=2))
        await rig.refuse(MessageDelete(id=7))
        await rig.refuse(entry(6), MessageDelete(id=6))
        await rig.refuse(message(6, task_id=0))
        await rig.commit(*(MessageDelete(id=number) for number in (3, 4, 5, 6)))
        await rig.refuse(MessageDelete(id=3))

    @scenario
    async def test_fields_fit_the_status(self, rig: Rig) -> None:
        """P11: what no message can be is refused."""
        await self._begin(rig)
        new = rig.id()
        await rig.refuse(message(new, status="outgoing", request_id="r"))
        await rig.refuse(message(new, status="consumed", body=None))
        await rig.refuse(message(new, status="consumed", request_id="r", body=1))
        await rig.refuse(message(new, session="other"))
        await rig.refuse(message(new, body="\ud800"))
        await rig.refuse(task(new), message(new))

    @scenario
    async def test_a_request_id_is_taken_once_for_each_task(self, rig: Rig) -> None:
        """B064: also when the message was consumed, until that is deleted."""
        await self._begin(rig)
        rig.last_id = 9
        await rig.commit(message(3, request_id="r"), message(4, request_id="r", task_id=1))
        found = await rig.storage.message_by_request("session", 2, "r")
        assert found is not None
        assert found.id == 3
        assert await rig.storage.message_by_request("session", 2, "s") is None
        await rig.refuse(message(5, request_id="r"))
        await rig.commit(message(3, status="consumed", request_id="r", body=None))
        await rig.restart()
        await rig.refuse(message(5, request_id="r"))
        found = await rig.storage.message_by_request("session", 2, "r")
        assert found is not None
        assert (found.id, found.status) == (3, "consumed")
        await rig.commit(task(2, ENDED), MessageDelete(id=3), message(5, request_id="r"))
        found = await rig.storage.message_by_request("session", 2, "r")
        assert found is not None
        assert found.id == 5

    @scenario
    async def test_a_message_that_comes_and_goes_in_one_group_leaves_nothing(self, rig: Rig) -> None:
        """ST-07: batches of a group see each other."""
        await self._begin(rig)
        rig.last_id = 4
        await rig.write(
            rig.batch(message(3), message(4, status="outgoing", session="other")),
            rig.batch(MessageDelete(id=3), message(4)),
            rig.batch(message(4, status="dead"), entry(rig.id())),
            rig.batch(MessageDelete(id=4)),
        )
        await rig.restart()
        assert [await rig.storage.message("session", n) for n in (3, 4)] == [None, None]
        assert await rig.storage.entry("session", 5) == (entry(5), 4)

    @scenario
    async def test_dead_letters_are_counted_by_session(self, rig: Rig) -> None:
        """B062: nobody has to know where to look."""
        other = rig.other("other")
        assert await rig.storage.dead_letters() == {}
        for one, count in ((rig, 3), (other, 1)):
            await self._begin(one)
            one.last_id = 20
            dead = [message(5 + n, status="dead", reason="ended") for n in range(count)]
            await one.commit(*dead, message(15))
        assert await rig.storage.dead_letters() == {"session": 3, "other": 1}
        await other.commit(MessageDelete(id=5))
        await rig.restart()
        assert await rig.storage.dead_letters() == {"session": 3}

    @scenario
    async def test_messages_go_with_their_session(self, rig: Rig) -> None:
        """Deleting a session deletes its mail; a new one of its key begins without."""
        await self._begin(rig)
        await rig.commit(message(rig.id(), request_id="r"), message(rig.id(), status="dead"))
        assert await rig.storage.delete_session("session")
        assert await rig.storage.dead_letters() == {}
        assert await rig.storage.live_messages("session") == []
        again = rig.other("session")
        await self._begin(again)
        await again.commit(message(again.id(), request_id="r"))
        assert ids(await rig.storage.live_messages("session")) == [3]
