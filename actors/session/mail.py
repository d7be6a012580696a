"""The mail of one session: inboxes of its tasks, its outbox, and what a commit does to them.

A message is stored with its sender's commit: queued for a task of the same session, or outgoing to another one, where the
courier brings it. It is deleted by the commit in which its receiver takes it. So whatever follows from it happens once.
Proved by tests/actors/session/test_mail.py.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from ...storage.contract import MessageQuery
from ...storage.records import Json, JsonObject, MessageRecord, MessageSender
from ...supervisors.mail import Fate, arrive, refusal
from .arguments import plain
from .documents import Doc
from .errors import InboxFull, InvalidValue, OutboxFull
from .names import new_name
from .tx import BaseTx

MAX_INBOX = 1_000
"""How many messages may be queued for one task: live messages are kept in memory."""
MAX_MESSAGE_BYTES = 256 * 2**10
RECEIPTS_PAGE = 1_000


class MailLimits(msgspec.Struct, frozen=True):
    """A service: ``outgoing`` tells how many messages of one session may be on their way to one other (or to itself)."""

    outgoing: Callable[[], int]


def _always(value: JsonObject, ops: Sequence[object], deltas: int) -> bool:
    return True


OutboxDoc: Doc[Json] = Doc(
    "perdure.outbox", scope="session", initial=lambda: {"id": new_name()}, checkpoint_when=_always
)
"""The identity of a session as a sender: a session that is deleted and begun anew is another one."""
MarkDoc: Doc[Json] = Doc(
    "perdure.mail-mark",
    scope="session",
    family=True,
    initial=lambda seed: {"outbox": "", "upTo": 0},
    checkpoint_when=_always,
)
"""Of one sending session, by key: ``{outbox, upTo}``, its highest message id that has arrived here."""


def body_of(message: object) -> Json:
    """Give a message's body as strict JSON. Raises InvalidJson, and InvalidValue for more than 256 KiB of it."""
    body = plain(message)
    size = len(msgspec.json.encode(body))
    if size > MAX_MESSAGE_BYTES:
        raise InvalidValue(f"a message may have {MAX_MESSAGE_BYTES:,} bytes of JSON, and this one has {size:,}")
    return body


# --- sending


async def send(tx: BaseTx, session: str, task_id: int, body: Json) -> None:
    """Stage a message from a commit. What is staged is never lost. Raises OutboxFull when too much waits for its receiver."""
    sender = MessageSender(task_id=tx.by_task)
    record = MessageRecord(id=tx.mint(), status="queued", task_id=task_id, sender=sender, body=body)
    if session != tx.core.key:
        await tx.doc(OutboxDoc)
        _put_outgoing(tx, replace(record, session=session))
    elif tx.core.mail.has_backlog or None in tx.outgoing:  # nobody overtakes those that wait for room
        _put_outgoing(tx, record)
    elif (placed := _placed(record, await fate_of(tx, task_id))) is not None:
        tx.put_message(placed)
    else:
        _put_outgoing(tx, record)


def _put_outgoing(tx: BaseTx, record: MessageRecord) -> None:
    peer, limit = record.session, tx.core.services.get(MailLimits).outgoing()
    waiting = len(tx.core.mail.outgoing.get(peer, ())) + tx.outgoing.get(peer, 0)
    if waiting >= limit:
        raise OutboxFull(tx.core.key, tx.core.key if peer is None else peer, waiting)
    tx.put_message(replace(record, status="outgoing"))


def _placed(record: MessageRecord, fate: Fate) -> MessageRecord | None:
    """Give a message as it arrives; None when there is no room for it."""
    if isinstance(fate, str):
        return replace(record, status="dead", reason=fate)
    return replace(record, status="queued") if fate > 0 else None


async def fate_of(tx: BaseTx, task_id: int) -> Fate:
    """Tell what awaits a message to a task."""
    why = refusal(await tx.task(task_id))
    return MAX_INBOX - tx.core.forest.mail(task_id) if why is None else why


async def post(tx: BaseTx, task_id: int, body: Json, request_id: str | None) -> MessageRecord:
    """Stage a message from outside of all sessions; one whose request id was used before changes nothing. Give the first.

    Raises InboxFull.
    """
    known = None if request_id is None else await tx.message_by_request(task_id, request_id)
    if known is not None:
        return known
    fate = await fate_of(tx, task_id)
    if isinstance(fate, int) and fate <= 0:
        raise InboxFull(tx.core.key, "task", task_id, MAX_INBOX)
    record = MessageRecord(id=tx.mint(), status="queued", task_id=task_id, body=body, request_id=request_id)
    placed = _placed(record, fate)
    assert placed is not None
    return tx.put_message(placed)


# --- arriving


async def receive_from(tx: BaseTx, sender: str, outbox: str, messages: Sequence[MessageRecord]) -> int:
    """Stage what another session's outbox holds, in order; tell how many it need not keep. Deals with each once."""
    mark = await tx.doc(MarkDoc, key=sender)
    before = mark["upTo"] if mark["outbox"] == outbox else 0
    arrivals = arrive(messages, before, await _fates(tx, messages))
    for message in arrivals.queued:
        tx.put_message(_arrived(tx, sender, message))
    for message, reason in arrivals.dead:
        tx.put_message(replace(_arrived(tx, sender, message), status="dead", reason=reason))
    if arrivals.mark != before:
        mark.update({"outbox": outbox, "upTo": arrivals.mark})
    return arrivals.handled


def _arrived(tx: BaseTx, sender: str, message: MessageRecord) -> MessageRecord:
    """Give a message as it is in its receiver's session."""
    task = None if message.sender is None else message.sender.task_id
    origin = MessageSender(session=sender, task_id=task)
    return MessageRecord(id=tx.mint(), status="queued", task_id=message.task_id, sender=origin, body=message.body)


async def place_backlog(tx: BaseTx, messages: Sequence[MessageRecord]) -> int:
    """Stage the arrival of messages to this session itself that had to wait for room; tell how many have arrived."""
    arrivals = arrive(messages, 0, await _fates(tx, messages))
    for message in arrivals.queued:
        tx.put_message(replace(message, status="queued"))
    for message, reason in arrivals.dead:
        tx.put_message(replace(message, status="dead", reason=reason))
    return arrivals.handled


async def _fates(tx: BaseTx, messages: Iterable[MessageRecord]) -> dict[int, Fate]:
    return {task: await fate_of(tx, task) for task in dict.fromkeys(message.task_id for message in messages)}


# --- receiving


def take(tx: BaseTx, task_id: int, limit: int | None) -> list[MessageRecord]:
    """Stage the consumption of a task's oldest messages (None: all), which earlier commits have queued. Give them."""
    taken = [record for record in tx.core.mail.inbox(task_id) if not tx.changes_message(record.id)][:limit]
    for record in taken:
        if record.request_id is None:
            tx.delete_message(record)
        else:
            tx.core.mail.receipts.add(task_id)
            tx.put_message(replace(record, status="consumed", body=None))
    return taken


async def end_mail(tx: BaseTx, task_id: int) -> None:
    """Stage what the end of a task means for its mail: nobody will receive it, and receipts have served their time."""
    core = tx.core
    if core.forest.mail(task_id):
        staged = (row for row in list(tx.rows.values()) if isinstance(row, MessageRecord) and row.task_id == task_id)
        queued = [record for record in core.mail.inbox(task_id) if not tx.changes_message(record.id)]
        for record in (*queued, *(row for row in staged if row.status == "queued")):
            tx.put_message(replace(record, status="dead", reason="ended"))
    if task_id in core.mail.receipts or (task_id in core.recovered and await _has_old_receipts(tx)):
        await _delete_receipts(tx, task_id)


async def _has_old_receipts(tx: BaseTx) -> bool:
    mail = tx.core.mail
    if mail.old_receipts is None:
        found = await tx.core.storage.scan_messages(tx.core.key, MessageQuery(status="consumed"), 1)
        mail.old_receipts = bool(found.items)
    return mail.old_receipts


async def _delete_receipts(tx: BaseTx, task_id: int) -> None:
    for row in [one for one in tx.rows.values() if isinstance(one, MessageRecord) and one.status == "consumed"]:
        if row.task_id == task_id:
            tx.delete_message(row)
    await tx.core.drained()
    query, cursor, more = MessageQuery(task_id=task_id, status="consumed"), None, True
    while more:
        page = await tx.core.storage.scan_messages(tx.core.key, query, RECEIPTS_PAGE, cursor)
        for record in page.items:
            tx.delete_message(record)
        cursor, more = page.next, page.next is not None
    tx.core.mail.receipts.discard(task_id)
