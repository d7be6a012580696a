"""Who is here: in memory only, by session, as one JSON value that can be watched.

    {"people": {"p3": {"name": "Ada", "conversations": [1, 7], "status": "typing"}}}

Proved by tests/actors/gateway/test_presence.py.
"""

from collections import Counter
from typing import Any

from ... import Watch
from ...chord import Feed, apply_immutable


class Presence:
    """The people of all sessions. A session that nobody looks at is not remembered."""

    def __init__(self) -> None:
        self._rooms: dict[str, Feed] = {}
        self._places: dict[tuple[str, str], Counter[int | None]] = {}

    def __len__(self) -> int:
        return len(self._rooms)

    def enter(self, session: str, person: str, name: str, conversation: int | None) -> None:
        """Count one more thing that a person looks at: a conversation, or the session itself (None)."""
        room = self._rooms.setdefault(session, Feed({"people": {}}))
        places = self._places.setdefault((session, person), Counter())
        places[conversation] += 1
        if person not in room.value["people"]:
            self._change(session, ["s", ["people", person], {"name": name, "conversations": _named(places)}])
        else:
            self._tell(session, person)

    def leave(self, session: str, person: str, conversation: int | None) -> None:
        """Count one thing less; who looks at nothing any more is gone."""
        places = self._places[session, person]
        places[conversation] -= 1
        if places[conversation] <= 0:
            del places[conversation]
        if places:
            self._tell(session, person)
            return
        del self._places[session, person]
        self._change(session, ["d", ["people", person]])
        if not self._rooms[session].value["people"]:
            self._rooms.pop(session).end("closed")

    def say(self, session: str, person: str, status: str | None) -> bool:
        """Show something beside a person's name, or nothing; False when they are not there."""
        there = (session, person) in self._places
        if there and status is None:
            self._change(session, ["d", ["people", person, "status"]])
        elif there:
            self._change(session, ["s", ["people", person, "status"], status])
        return there

    def watch(self, session: str) -> Watch:
        """Watch who is in a session that somebody is in."""
        return self._rooms[session].watch()

    def _tell(self, session: str, person: str) -> None:
        now = _named(self._places[session, person])
        if self._rooms[session].value["people"][person]["conversations"] != now:
            self._change(session, ["s", ["people", person, "conversations"], now])

    def _change(self, session: str, op: list[Any]) -> None:
        room = self._rooms[session]
        room.publish(apply_immutable(room.value, [op]), [op])


def _named(places: Counter[int | None]) -> list[int]:
    return sorted(place for place in places if place is not None)
