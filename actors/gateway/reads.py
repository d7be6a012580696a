"""What a client can read without following it. Proved by tests/actors/gateway/test_reads.py."""

from typing import Annotated, Any, Literal

import msgspec

from ... import System
from .commands import Id, Key, known_session
from .refusals import Refused

Limit = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
CursorText = Annotated[str, msgspec.Meta(max_length=2_048, description="`next` of the page before, as it was given.")]


class Query(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all reads."""


class Sessions(Query, frozen=True, kw_only=True):
    """Page the sessions, in the order of their creation."""

    limit: Limit = 100
    cursor: CursorText | None = None


class Conversations(Query, frozen=True, kw_only=True):
    """Page a session's conversations, oldest first."""

    session: Key
    limit: Limit = 100
    cursor: CursorText | None = None


class Entries(Query, frozen=True, kw_only=True):
    """Page a conversation's whole history, newest first unless it is asked for otherwise."""

    session: Key
    conversation: Id
    limit: Limit = 100
    cursor: CursorText | None = None
    order: Literal["ascending", "descending"] = "descending"
    at: Id | None = None


class View(Query, frozen=True, kw_only=True):
    """Read a conversation's view: its active entries and built-in documents."""

    session: Key
    conversation: Id


class Submission(Query, frozen=True, kw_only=True):
    """Read what became of a submission."""

    session: Key
    submission: Id


class Usage(Query, frozen=True, kw_only=True):
    """Read what a session, or a conversation with all below it, has spent."""

    session: Key
    conversation: Id | None = None


class Tasks(Query, frozen=True, kw_only=True):
    """Read a session's live tasks, by decimal id."""

    session: Key


class Inspect(Query, frozen=True, kw_only=True):
    """Look at what is in memory: the actors as a tree, and of one session what each live task does or waits for."""

    session: Key


QUERIES: dict[str, type[Query]] = {
    kind.__name__.lower(): kind for kind in (Sessions, Conversations, Entries, View, Submission, Usage, Tasks, Inspect)
}


async def read(system: System, query: Query) -> Any:
    """Answer a query with what msgspec can write as JSON. Raises Refused, and whatever perdure does."""
    if isinstance(query, Sessions):
        return _page(await system.sessions(query.limit, _cursor(query.cursor)))
    session = await known_session(system, query.session)  # type: ignore[attr-defined]
    match query:
        case Conversations(limit=limit, cursor=cursor):
            return _page(await session.conversations(limit, _cursor(cursor)))
        case Entries(conversation=id, limit=limit, cursor=cursor, order=order, at=at):
            conversation = await session.conversation(id)
            return _page(await conversation.entries(limit, _cursor(cursor), order=order, at=at))
        case View(conversation=id):
            async with await (await session.conversation(id)).watch() as watch:
                return watch.value
        case Submission(submission=id):
            return await (await session.submission(id)).status()
        case Usage(conversation=None):
            return await session.usage()
        case Usage(conversation=id):
            return await (await session.conversation(id)).usage(subtree=True)
        case Tasks():
            return await session.task_graph()
        case _:
            return _inspected(system, query.session)  # type: ignore[attr-defined]


def _inspected(system: System, key: str) -> dict[str, Any]:
    seen = system.inspect()
    figures = seen.figures.get(key)
    return {
        "active": figures is not None,
        "tasks": seen.sessions.get(key, []),
        "standing": {str(task): standing for task, standing in seen.standing.get(key, {}).items()},
        "figures": figures,
        "actors": [pruned(actor, key) for actor in seen.actors],
        "nextDeadline": seen.next_deadline,
        "givenUp": seen.given_up.get(key),
    }


def pruned(actor: dict[str, Any], key: str) -> dict[str, Any]:
    """Give an actor's tree without the actors of other sessions."""
    below = [child for child in actor.get("children", []) if not _foreign(str(child.get("id", "")), key)]
    return actor | {"children": [pruned(child, key) for child in below]}


def _foreign(id: str, key: str) -> bool:
    return id.startswith("guard:") and id != f"guard:{key}"


def _page(page: Any) -> dict[str, Any]:
    following = None if page.next is None else msgspec.json.encode(page.next).decode()
    return {"items": list(page.items), "next": following}


def _cursor(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Refused("invalid_cursor", "a cursor is what `next` of a page was") from None
