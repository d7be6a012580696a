"""Conformance: conversations and forks, entries, head markers, tasks, submissions, and scans of all of them."""

from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from .conformance_rig import (
    ENDED,
    PENDING,
    Rig,
    Suite,
    conversation,
    entry,
    fails,
    ids,
    pages,
    scenario,
    submission,
    task,
)
from .contract import ConversationQuery, EntryQuery, Order, Page, SubmissionQuery, TaskQuery
from .errors import StorageRejected
from .records import (
    Completed,
    Completing,
    ConversationOwner,
    ConversationRecord,
    Running,
    SubmissionRecord,
    TaskRecord,
    TaskState,
    Waiting,
)

ORDERS: tuple[Order, Order] = ("ascending", "descending")


class Table(NamedTuple):
    """A kind of record to be scanned: how, and the ids that there are."""

    scan: Callable[..., Awaitable[Page[Any]]]
    query: Callable[[Order | None], object]
    span: range


class ScanConformance(Suite):
    """Lookups and cursor scans of immutable and changing records."""

    # --- scans in general

    async def _tables(self, rig: Rig) -> list[Table]:
        """Commit five records of each kind; give the scans of all kinds."""
        rig.last_id = 20
        await rig.commit(
            *(conversation(n) for n in range(1, 6)),
            *(entry(n) for n in range(6, 11)),
            *(task(n, ENDED if n % 2 else PENDING) for n in range(11, 16)),
            *(submission(n, status="done" if n % 2 else "queued") for n in range(16, 21)),
        )
        store = rig.storage
        return [
            Table(store.scan_conversations, lambda order: ConversationQuery(order=order), range(1, 6)),
            Table(store.scan_entries, lambda order: EntryQuery(conversation_id=1, order=order), range(6, 11)),
            Table(store.scan_tasks, lambda order: TaskQuery(order=order), range(11, 16)),
            Table(store.scan_submissions, lambda order: SubmissionQuery(order=order), range(16, 21)),
        ]

    @scenario
    async def test_every_scan_runs_in_both_orders(self, rig: Rig) -> None:
        """ST-16: by id, either way; entries newest first by default, everything else oldest first."""
        for table in await self._tables(rig):
            up, down = list(table.span), list(table.span)[::-1]
            default = down if table.scan == rig.storage.scan_entries else up
            for limit in (1, 2, 5, 6):
                assert ids(await pages(table.scan, "session", table.query("ascending"), limit=limit)) == up
                assert ids(await pages(table.scan, "session", table.query("descending"), limit=limit)) == down
                assert ids(await pages(table.scan, "session", table.query(None), limit=limit)) == default

    @scenario
    async def test_a_cursor_keeps_its_order(self, rig: Rig) -> None:
        """ST-17: repeating the order or leaving it out goes on, asking for the other one is refused."""
        for table in await self._tables(rig):
            for order, other in (ORDERS, ORDERS[::-1]):
                cursor = (await table.scan("session", table.query(order), 2)).next
                repeated = await table.scan("session", table.query(order), 2, cursor)
                left_out = await table.scan("session", table.query(None), 2, cursor)
                assert repeated == left_out
                await fails(StorageRejected, table.scan("session", table.query(other), 2, cursor))

    @scenario
    async def test_a_scan_refuses_what_is_no_cursor_and_no_page_size(self, rig: Rig) -> None:
        """Only what an earlier page gave is a cursor."""
        for table in await self._tables(rig):
            shaped = [{}, {"order": "ascending"}, {"order": "up", "after": 1}, {"order": "ascending", "after": "1"}]
            cursors: list[Any] = [*shaped, {"order": [], "after": 1}, 7, "x", [], True]
            for bad in cursors:
                await fails(StorageRejected, table.scan("session", table.query(None), 2, bad))
            limits: list[Any] = [0, -1, 2**70, 1.5, True, "2", None, []]
            for limit in limits:
                await fails(StorageRejected, table.scan("session", table.query(None), limit))

    # --- conversations

    @scenario
    async def test_conversations_are_found_by_owner(self, rig: Rig) -> None:
        """ST-13: by owning conversation, by owning task, by both together, and paged."""
        rig.last_id = 40
        owners = {n: (1 + n % 2, 30 + n % 4) for n in range(10, 22)}
        await rig.commit(
            *(conversation(n) for n in (1, 2, 3)),
            *(
                ConversationRecord(id=n, owner=ConversationOwner(conversation_id=c, task_id=t))
                for n, (c, t) in owners.items()
            ),
        )
        for c in (None, 1, 2, 3, 2**33):
            for t in (None, 30, 31, 39):
                for order in ORDERS:
                    query = ConversationQuery(owner_conversation_id=c, owner_task_id=t, order=order)
                    found = await pages(rig.storage.scan_conversations, "session", query)
                    right = [n for n, o in owners.items() if c in (None, o[0]) and t in (None, o[1])]
                    right = [1, 2, 3, *right] if c is None and t is None else right
                    assert ids(found) == (right if order == "ascending" else right[::-1])

    # --- entries and forks

    async def _fork_chain(self, rig: Rig) -> None:
        """Commit 1: entries 2-5; 6 forks 1 at 4: 7-9; 10 forks 6 at 8: 11-12; 13 forks 10 at 3, an inherited entry: 14."""
        rig.last_id = 20
        await rig.commit(conversation(1), *(entry(n) for n in range(2, 6)))
        await rig.commit(conversation(6, 1, 4), *(entry(n, 6) for n in range(7, 10)))
        await rig.commit(conversation(10, 6, 8), *(entry(n, 10) for n in (11, 12)))
        await rig.commit(conversation(13, 10, 3), entry(14, 13), entry(15, 1), entry(16, 6))

    VISIBLE: ClassVar[dict[int, list[int]]] = {
        1: [2, 3, 4, 5, 15],
        6: [2, 3, 4, 7, 8, 9, 16],
        10: [2, 3, 4, 7, 8, 11, 12],
        13: [2, 3, 14],
    }

    @scenario
    async def test_a_fork_shows_its_ancestors_up_to_each_fork_point(self, rig: Rig) -> None:
        """ST-14, DF-07: every cap is inclusive, and bounds the caps above it; both orders, any bounds, any page size."""
        await self._fork_chain(rig)
        for number, visible in self.VISIBLE.items():
            for low in (None, 1, 3, 4, 8, 16):
                for high in (None, 2, 4, 8, 12, 2**33):
                    right = [n for n in visible if (low or 0) <= n <= (high or 99)]
                    for order in ORDERS:
                        query = EntryQuery(conversation_id=number, min_entry_id=low, max_entry_id=high, order=order)
                        found = await pages(rig.storage.scan_entries, "session", query, limit=3)
                        assert ids(found) == (right if order == "ascending" else right[::-1]), query
        for unknown in (0, 2, 99, 2**32):
            scan = rig.storage.scan_entries("session", EntryQuery(conversation_id=unknown), 9)
            error = await fails(StorageRejected, scan)
            assert "unknown conversation" in str(error)

    @scenario
    async def test_an_entry_is_looked_up_where_it_is_visible(self, rig: Rig) -> None:
        """ST-04, DF-07: what lies behind a fork point, or in a fork, is not there."""
        await self._fork_chain(rig)
        for number, visible in self.VISIBLE.items():
            for n in range(1, 18):
                found = await rig.storage.entry("session", n, number)
                assert (found is not None) == (n in visible)
                assert found is None or found == await rig.storage.entry("session", n)
        assert await rig.storage.entry("session", 2, 99) is None

    @scenario
    async def test_a_conversation_cannot_be_a_fork_of_a_younger_one(self, rig: Rig) -> None:
        """Ancestry has no circles."""
        await rig.commit(conversation(rig.id()))
        fork = rig.id()
        for parent in (2, 3, -1, 2**33):
            await rig.refuse(conversation(fork, parent, 1))
        await rig.refuse(entry(fork, 2**33))

    @scenario
    async def test_entries_committed_out_of_order_are_found_by_id(self, rig: Rig) -> None:
        """ST-10: the order is the ids', not the commits'; heads too."""
        rig.last_id = 9
        await rig.commit(conversation(1))
        for n in (8, 3, 9, 2):
            await rig.commit(entry(n, head=n if n in {3, 8} else None))
        query = EntryQuery(conversation_id=1)
        assert ids(await pages(rig.storage.scan_entries, "session", query)) == [9, 8, 3, 2]
        head = await rig.storage.latest_head_marker("session", 1)
        assert head == entry(8, head=8)

    @scenario
    async def test_a_cursor_stays_valid_when_entries_are_added(self, rig: Rig) -> None:
        """ST-11: a page taken later neither repeats nor misses what the scan had ahead of it."""
        await rig.commit(conversation(rig.id()), *(entry(rig.id()) for _ in range(4)))
        down = await rig.storage.scan_entries("session", EntryQuery(conversation_id=1), 2)
        up = await rig.storage.scan_entries("session", EntryQuery(conversation_id=1, order="ascending"), 2)
        await rig.commit(entry(rig.id()), entry(rig.id()))
        rest = await rig.storage.scan_entries("session", EntryQuery(conversation_id=1), 9, down.next)
        assert ids(down.items + rest.items) == [5, 4, 3, 2]
        rest = await rig.storage.scan_entries("session", EntryQuery(conversation_id=1), 9, up.next)
        assert ids(up.items + rest.items) == [2, 3, 4, 5, 6, 7]

    @scenario
    async def test_the_latest_head_is_found_through_forks(self, rig: Rig) -> None:
        """ST-15: at or before an inclusive cutoff, visible ones only."""
        rig.last_id = 20
        await rig.commit(conversation(1), entry(2, head=2), entry(3), entry(4, head=3), entry(5, head=5))
        await rig.commit(conversation(6, 1, 4), entry(7, 6), entry(8, 6, head=7), entry(9, 6))
        await rig.commit(conversation(10, 6, 7), entry(11, 10))
        cases: dict[int, dict[int | None, int | None]] = {
            1: {None: 5, 5: 5, 4: 4, 3: 2, 2: 2, 1: None},
            6: {None: 8, 7: 4, 3: 2},
            10: {None: 4, 4: 4, 3: 2},
        }
        for number, cutoffs in cases.items():
            for cutoff, right in cutoffs.items():
                found = await rig.storage.latest_head_marker("session", number, cutoff)
                assert (found and found.id) == right, (number, cutoff)
        await fails(StorageRejected, rig.storage.latest_head_marker("session", 99))

    @scenario
    async def test_a_long_chain_of_forks_is_read_whole(self, rig: Rig) -> None:
        """ST-14: 300 forks deep, each with one entry of its own."""
        await rig.commit(conversation(rig.id()), entry(rig.id()))
        newest, visible = 1, [2]
        for _ in range(300):
            fork, own = rig.id(), rig.id()
            await rig.storage.write([rig.batch(conversation(fork, newest, visible[-1]), entry(own, fork))])
            visible.append(own)
            newest = fork
        query = EntryQuery(conversation_id=newest, order="ascending")
        assert ids(await pages(rig.storage.scan_entries, "session", query, limit=100)) == visible
        assert await rig.storage.entry("session", 2, newest) == (entry(2), 1)
        assert await rig.storage.latest_head_marker("session", newest) is None

    # --- tasks

    async def _all_kinds_of_tasks(self, rig: Rig) -> list[TaskRecord]:
        """Commit thirty tasks in which every combination of columns occurs."""
        rig.last_id = 40
        states: list[TaskState] = [
            PENDING,
            Running(checkpoint={}),
            Waiting(checkpoint={}, on=[11], policy="failFast", until=5),
            Completing(outcome=Completed()),
            ENDED,
            ENDED,
        ]
        tasks = [
            task(
                10 + n,
                state,
                conversation_id=1 + n % 2,
                kind="ab"[n % 4 // 2],
                abort_requested=n % 5 == 0,
                background=n % 3 == 0,
                owner=10 if n else None,
            )
            for n, state in enumerate(states * 5)
        ]
        await rig.commit(conversation(1), conversation(2), *tasks)
        return tasks

    @scenario
    async def test_tasks_are_scanned_by_any_of_their_columns(self, rig: Rig) -> None:
        """ST-19: filters combine, in either order; live tasks are found apart."""
        tasks = await self._all_kinds_of_tasks(rig)
        queries: list[dict[str, Any]] = [
            {},
            {"conversation_id": 2},
            {"conversation_id": 3},
            {"kind": "b"},
            {"abort_requested": True},
            {"background": False},
            *({"status": status} for status in ("pending", "running", "waiting", "completing", "terminal")),
            {"conversation_id": 1, "status": "terminal", "kind": "a"},
            {"conversation_id": 1, "status": "terminal", "abort_requested": False, "background": True},
        ]
        for query in queries:
            columns = {"status": lambda one: one.state.__struct_config__.tag}
            right = [
                one
                for one in tasks
                if all(columns.get(name, attrgetter(name))(one) == value for name, value in query.items())
            ]
            up = TaskQuery(**query)
            down = TaskQuery(**query, order="descending")
            assert await pages(rig.storage.scan_tasks, "session", up, limit=4) == right, query
            assert await pages(rig.storage.scan_tasks, "session", down, limit=4) == right[::-1], query
        assert await rig.storage.live_tasks("session") == [one for one in tasks if one.live]

    @scenario
    async def test_every_state_of_a_task_comes_back(self, rig: Rig) -> None:
        """ST-19: owner edges and every status are stored."""
        for one in await self._all_kinds_of_tasks(rig):
            assert await rig.storage.task("session", one.id) == one

    @scenario
    async def test_a_task_that_ended_is_final(self, rig: Rig) -> None:
        """A terminal record is a receipt: it moves out of the live ones and never changes again."""
        await rig.commit(conversation(rig.id()))
        kept, born = rig.id(), rig.id()
        await rig.commit(task(kept))
        await rig.commit(task(kept, ENDED), task(born), task(born, ENDED))
        assert await rig.storage.live_tasks("session") == []
        for ended in (kept, born):
            assert await rig.storage.task("session", ended) == task(ended, ENDED)
            await rig.refuse(task(ended))
            await rig.refuse(task(ended, ENDED))
        fresh = rig.id()
        await rig.refuse(task(fresh, ENDED), task(fresh))

    # --- submissions

    @scenario
    async def test_a_request_is_admitted_once_in_each_conversation(self, rig: Rig) -> None:
        """ST-20: request ids are keyed by conversation; a second submission of one is refused."""
        await rig.commit(conversation(rig.id()), conversation(rig.id()))
        one, two, free = rig.id(), rig.id(), rig.id()
        await rig.commit(
            submission(one, request_id="r"), submission(two, request_id="r", conversation_id=2), submission(free)
        )
        for conversation_id, right in ((1, one), (2, two)):
            found = await rig.storage.submission_by_request("session", conversation_id, "r")
            assert found is not None
            assert found.id == right
        assert await rig.storage.submission_by_request("session", 1, "q") is None
        assert await rig.storage.submission_by_request("other", 1, "r") is None
        again = rig.id()
        await rig.refuse(submission(again, request_id="r"))
        await rig.refuse(submission(again, request_id="q"), submission(rig.id(), request_id="q"))
        await rig.refuse(submission(one, request_id="q"))
        await rig.refuse(submission(one, request_id="r", conversation_id=2))
        await rig.commit(submission(one, request_id="r", status="placed", entry=7))
        found = await rig.storage.submission_by_request("session", 1, "r")
        assert found == submission(one, request_id="r", status="placed", entry=7)

    @scenario
    async def test_a_replaced_submission_moves_between_status_scans(self, rig: Rig) -> None:
        """ST-20: and once settled it never changes again."""
        await rig.commit(conversation(rig.id()), conversation(rig.id()))
        one, two, other = rig.id(), rig.id(), rig.id()
        await rig.commit(submission(one), submission(two), submission(other, conversation_id=2))

        async def found(**query: Any) -> list[int]:
            asked = SubmissionQuery(**query)
            return ids(await pages(rig.storage.scan_submissions, "session", asked))

        assert await found(status="queued") == [one, two, other]
        await rig.commit(submission(one, status="placed", entry=9), submission(two, status="unanswered", reason="x"))
        assert await found(status="queued") == [other]
        assert await found(status="placed", conversation_id=1) == [one]
        assert await found(status="placed", conversation_id=2) == []
        assert await found(status="unanswered", conversation_id=1) == [two]
        assert await found(conversation_id=1, order="descending") == [two, one]
        await rig.commit(submission(one, status="placed", entry=9), submission(one, status="done", entry=9, answer=10))
        assert await found(status="done") == [one]
        for settled in (one, two):
            await rig.refuse(submission(settled))
        fresh = rig.id()
        await rig.refuse(submission(fresh, status="done"), submission(fresh))

    @scenario
    async def test_a_write_submission_stays_out_of_input_states(self, rig: Rig) -> None:
        """ST-21: it is never placed and has no answer."""
        await rig.commit(conversation(rig.id()))
        sent = rig.id()
        await rig.refuse(SubmissionRecord(id=sent, conversation_id=1, type="write", status="placed"))
        await rig.refuse(SubmissionRecord(id=sent, conversation_id=1, type="write", status="done", answer=1))
        await rig.commit(SubmissionRecord(id=sent, conversation_id=1, type="write", status="done", entry=1))
