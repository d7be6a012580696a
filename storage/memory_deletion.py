"""Deleting a conversation from a memory session: the reference for what goes and what forks keep.

Proved by tests/storage/test_conformance.py.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from . import codec
from .checks import reject, rewindable
from .records import ConversationScope, MessageRecord, TaskScope

if TYPE_CHECKING:
    from .memory_session import MemorySession, Undo


def delete_conversation(session: "MemorySession", id: int, undo: "Undo") -> None:
    """Delete a conversation; on StorageRejected the caller rolls back."""
    body = session.conversations.get(id)
    record = None if body is None else codec.decode_conversation(body)
    if record is None or record.deleted:
        reject(f"conversation {id} does not exist, or is deleted already")
    tasks = [task for task in map(codec.decode_task, session.tasks.values()) if task.conversation_id == id]
    if any(task.live for task in tasks):
        reject(f"conversation {id} has live tasks")
    ended = {task.id for task in tasks}
    _check_documents(session, id, ended)
    _drop_all(session, session.messages, _messages_of(session, ended), undo)
    _drop_all(session, session.submissions, _submissions_of(session, id), undo)
    _drop_all(session, session.tasks, ended, undo)
    _drop_all(session, session.documents, _documents_of(session, {TaskScope(task_id=task) for task in ended}), undo)
    _drop_requests(session.message_requests, ended, undo)
    _drop_requests(session.requests, {id}, undo)
    undo.put(session.conversations, id, codec.encode(msgspec.structs.replace(record, deleted=True)))
    _prune(session, id, undo)


def _check_documents(session: "MemorySession", id: int, tasks: set[int]) -> None:
    scopes = {ConversationScope(conversation_id=id), *(TaskScope(task_id=task) for task in tasks)}
    if any(session.documents[number].alive(None) for number in _documents_of(session, scopes)):
        reject(f"conversation {id} has live documents")


def _messages_of(session: "MemorySession", tasks: set[int]) -> list[int]:
    found = map(codec.decode_message, session.messages.values())
    return [message.id for message in found if message.task_id in tasks and _received(message)]


def _received(message: MessageRecord) -> bool:
    """Whether a message is in its receiver's session."""
    return message.session is None and message.status != "outgoing"


def _submissions_of(session: "MemorySession", id: int) -> list[int]:
    found = map(codec.decode_submission, session.submissions.values())
    return [submission.id for submission in found if submission.conversation_id == id]


def _documents_of(session: "MemorySession", scopes: Iterable[Any]) -> list[int]:
    wanted = set(scopes)
    return [number for number, row in session.documents.items() if row.record.scope in wanted]


def _drop_all(session: "MemorySession", table: dict[int, Any], ids: Iterable[int], undo: "Undo") -> None:
    for number in ids:
        undo.drop(table, number)
        undo.drop(session.types, number)


def _drop_requests(requests: dict[tuple[int, str], int], receivers: set[int], undo: "Undo") -> None:
    for request in [request for request in requests if request[0] in receivers]:
        undo.drop(requests, request)


def _prune(session: "MemorySession", id: int, undo: "Undo") -> None:
    """Drop what no fork of a deleted conversation shows; without forks all of it, and then look at its parent."""
    records = map(codec.decode_conversation, list(session.conversations.values()))
    forks = [record.parent.at for record in records if record.parent and record.parent.conversation_id == id]
    _drop_entries(session, id, max(forks, default=0), undo)
    documents = _documents_of(session, {ConversationScope(conversation_id=id)})
    kept = {number for number in documents if forks and rewindable(session.documents[number].record)}
    _drop_all(session, session.documents, [number for number in documents if number not in kept], undo)
    if forks:
        return
    parent = codec.decode_conversation(session.conversations[id]).parent
    _drop_all(session, session.conversations, [id], undo)
    above = None if parent is None else session.conversations.get(parent.conversation_id)
    if parent is not None and above is not None and codec.decode_conversation(above).deleted:
        _prune(session, parent.conversation_id, undo)


def _drop_entries(session: "MemorySession", conversation: int, keep: int, undo: "Undo") -> None:
    ids = session.entry_ids.get(conversation, [])
    first = bisect_right(ids, keep)
    _drop_all(session, session.entries, ids[first:], undo)
    if first < len(ids):
        undo.put(session.entry_ids, conversation, ids[:first])
