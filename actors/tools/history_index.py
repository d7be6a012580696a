"""What the conversations of a session have said, as passages that can be found by words: SQLite in a temporary file.

Full text search (FTS5) where SQLite has it, with the best match first; else, and where that finds nothing, as in languages that
put no spaces between words, parts of words. An index is made for one search and dropped with it: it cannot be out of date,
and nothing of a session is left behind when that is deleted. Knows nothing of sessions. Not for two threads at once.
Proved by tests/actors/tools/test_history_index.py.
"""

import re
import sqlite3
from collections.abc import Iterable

import msgspec

MOST_WORDS = 32
"""How many words of a question are looked for."""
SNIPPET_TOKENS = 48
SNIPPET_CHARACTERS = 300

TABLES = """
CREATE TABLE passages (entry INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX by_conversation ON passages (conversation, entry);
"""
FULL_TEXT = """
CREATE VIRTUAL TABLE words USING fts5(text, content='passages', content_rowid='entry', tokenize='unicode61 remove_diacritics 2')
"""
FIND_WORDS = """
SELECT p.conversation, p.entry, p.role, snippet(words, 0, '', '', '…', ?) FROM words
JOIN passages p ON p.entry = words.rowid WHERE words MATCH ? ORDER BY bm25(words), p.entry DESC LIMIT ?
"""
FIND_PARTS = """
SELECT conversation, entry, role, text FROM (SELECT *, hits(text, ?) AS hits FROM passages)
WHERE hits > 0 ORDER BY hits DESC, entry DESC LIMIT ?
"""
AROUND = """
SELECT * FROM (SELECT conversation, entry, role, text FROM passages
    WHERE conversation = ? AND entry <= ? ORDER BY entry DESC LIMIT ?)
UNION SELECT * FROM (SELECT conversation, entry, role, text FROM passages
    WHERE conversation = ? AND entry > ? ORDER BY entry LIMIT ?)
ORDER BY entry
"""


class Passage(msgspec.Struct, frozen=True):
    """What was said in an entry, or a part of it that was found. Entry ids are unique in a session."""

    conversation: int
    entry: int
    role: str
    text: str


class HistoryIndex:
    """Passages of one session. ``full_text=False`` does without FTS5."""

    def __init__(self, *, full_text: bool = True) -> None:
        self._db = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._db.executescript(TABLES)
        self._db.create_function("hits", 2, _hits, deterministic=True)
        self.full_text = full_text and self._has_full_text()

    def _has_full_text(self) -> bool:
        try:
            self._db.execute(FULL_TEXT)
        except sqlite3.OperationalError:
            return False
        return True

    def add(self, passages: Iterable[Passage]) -> None:
        """Add passages of entries that are not in the index."""
        rows = [(one.entry, one.conversation, one.role, one.text) for one in passages]
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO passages VALUES (?, ?, ?, ?)", rows)
            if self.full_text:
                words = ((entry, text) for entry, _, _, text in rows)
                self._db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", words)

    def find(self, question: str, limit: int) -> list[Passage]:
        """Find passages with some of the words of a question, best first; each with a snippet of its text."""
        words = list(dict.fromkeys(re.findall(r"\w+", question)))[:MOST_WORDS]
        if not words:
            return []
        found: list[Passage] = []
        if self.full_text:
            wanted = " OR ".join(f'"{word}"*' for word in words)
            found = self._passages(FIND_WORDS, (SNIPPET_TOKENS, wanted, limit))
        return found or self._parts(words, limit)

    def _parts(self, words: list[str], limit: int) -> list[Passage]:
        found = self._passages(FIND_PARTS, ("\n".join(words).casefold(), limit))
        return [msgspec.structs.replace(one, text=_excerpt(one.text, words)) for one in found]

    def around(self, conversation: int, entry: int, reach: int) -> list[Passage]:
        """Give an entry's passage and ``reach`` of its conversation on either side, oldest first."""
        return self._passages(AROUND, (conversation, entry, reach + 1, conversation, entry, reach))

    def _passages(self, query: str, values: tuple[object, ...]) -> list[Passage]:
        return [Passage(*row) for row in self._db.execute(query, values)]

    def close(self) -> None:
        """Drop everything."""
        self._db.close()


def _hits(text: str, words: str) -> int:
    """How many of the words, one on each line, are parts of a text."""
    folded = text.casefold()
    return sum(word in folded for word in words.split("\n"))


def _excerpt(text: str, words: list[str]) -> str:
    """Cut out the neighbourhood of the first word that is there."""
    folded = text.casefold()
    places = [place for word in words if (place := folded.find(word.casefold())) >= 0]
    begin = max(0, min(places, default=0) - SNIPPET_CHARACTERS // 3)
    cut = text[begin : begin + SNIPPET_CHARACTERS]
    return f"{'…' if begin else ''}{cut}{'…' if begin + len(cut) < len(text) else ''}"
