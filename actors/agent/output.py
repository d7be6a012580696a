"""Bounded text output of a running tool: an exact slice of whole lines from its beginning or its end.

Proved by tests/actors/agent/test_output.py.
"""

import codecs
import re
from threading import Lock
from typing import Any, Literal

import msgspec

from ...chord import InvalidJson, copy_json, valid_text
from ...storage.records import Json
from ..models.repair import TextJoiner

_CONTROL = {code: None for code in (*range(32), 127) if chr(code) not in "\t\n"}
"""Control characters would reach terminals and prompts; tab and newline are text."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class OutputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a tool's text is kept: ``max_bytes`` of UTF-8 and ``max_lines``, from its head or its tail."""

    max_bytes: int = 50 * 1024
    max_lines: int = 2_000
    retain: Literal["head", "tail"] = "head"


class Bounded(msgspec.Struct, frozen=True):
    """What was kept of a text, and how much was not."""

    text: str
    dropped_bytes: int = 0
    dropped_lines: int = 0

    @property
    def truncated(self) -> bool:
        """Whether anything was dropped."""
        return self.dropped_bytes > 0


def clean(text: str) -> str:
    """Make text from outside storable and showable: valid Unicode without control characters."""
    return valid_text(text).translate(_CONTROL)


def storable(value: Any) -> Json:
    """Make a value from outside storable: strict JSON, valid Unicode. Raises InvalidJson, TypeError when it has no such form."""
    try:
        return copy_json(_repaired(msgspec.to_builtins(value, str_keys=True)))
    except RecursionError:
        raise InvalidJson("expected strict JSON, got a cycle or more nesting than can be stored") from None


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, list | tuple):
        return [_repaired(item) for item in value]
    if isinstance(value, dict):
        return {_repaired(key): _repaired(item) for key, item in value.items()}
    return value


def bound(text: str, limits: OutputLimits) -> Bounded:
    """Keep whole lines within limits; a single line that is too long is cut between characters."""
    lines = _LINE.findall(text)
    if len(lines) <= limits.max_lines and len(text) * 4 <= limits.max_bytes:
        return Bounded(text)
    kept = _whole_lines(lines, limits)
    if not kept and lines:
        edge = lines[0] if limits.retain == "head" else lines[-1]
        kept = [_cut(edge, limits)]
    result = "".join(kept)
    dropped = len(text.encode()) - len(result.encode())
    return Bounded(result, dropped, text.count("\n") - result.count("\n") if dropped else 0)


def _whole_lines(lines: list[str], limits: OutputLimits) -> list[str]:
    ordered = lines if limits.retain == "head" else lines[::-1]
    kept: list[str] = []
    size = 0
    for line in ordered[: limits.max_lines]:
        size += len(line.encode())
        if size > limits.max_bytes:
            break
        kept.append(line)
    return kept if limits.retain == "head" else kept[::-1]


def _cut(line: str, limits: OutputLimits) -> str:
    data = line.encode()
    data = data[: limits.max_bytes] if limits.retain == "head" else data[-limits.max_bytes :]
    return data.decode("utf-8", "ignore")


class Output:
    """Takes a stream of text or UTF-8 bytes and keeps a bounded part; accepting a chunk costs the chunk. Any thread."""

    def __init__(self, limits: OutputLimits) -> None:
        self._limits = limits
        self._lock = Lock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._joiner = TextJoiner()
        self._kept = Bounded("")
        self._chunks: list[str] = []
        self._buffered = 0
        self._head_full = False
        self._used = False

    def write(self, chunk: str | bytes) -> None:
        """Append a chunk. Characters may be split across chunks of one kind."""
        with self._lock:
            self._used = True
            if isinstance(chunk, str):
                self._buffer(self._decoder.decode(b"", final=True) + chunk)
            else:
                self._buffer(self._decoder.decode(chunk))
            if self._buffered > self._limits.max_bytes * 4:
                self._digest(self._joiner.feed(self._take()))

    @property
    def limits(self) -> OutputLimits:
        """How much is kept."""
        return self._limits

    def skip(self, dropped_bytes: int, dropped_lines: int) -> None:
        """Count output that was left out before it came here, in front of what comes next."""
        with self._lock:
            self._used = True
            self._digest(self._joiner.feed(self._take()))
            kept = self._kept
            dropped = kept.dropped_bytes + len(kept.text.encode()) + dropped_bytes
            self._kept = Bounded("", dropped, kept.dropped_lines + kept.text.count("\n") + dropped_lines)

    def bounded(self) -> Bounded:
        """Give what is kept so far."""
        with self._lock:
            self._digest(self._joiner.feed(self._take()))
            return self._kept

    def finish(self) -> Bounded:
        """Give what is kept at the end: a character that never became whole counts as broken."""
        with self._lock:
            if not self._used:
                return self._kept
            self._buffer(self._decoder.decode(b"", final=True))
            self._digest(self._joiner.feed(self._take()) + self._joiner.end())
            return self._kept

    def _buffer(self, text: str) -> None:
        self._chunks.append(text)
        self._buffered += len(text)

    def _take(self) -> str:
        text = "".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        return text

    def _digest(self, text: str) -> None:
        new = text.translate(_CONTROL)
        self._kept = self._drop(new) if self._head_full else self._merge(new)

    def _merge(self, new: str) -> Bounded:
        merged = bound(self._kept.text + new, self._limits)
        self._head_full = merged.truncated and self._limits.retain == "head"
        return Bounded(
            merged.text,
            self._kept.dropped_bytes + merged.dropped_bytes,
            self._kept.dropped_lines + merged.dropped_lines,
        )

    def _drop(self, new: str) -> Bounded:
        kept = self._kept
        return Bounded(kept.text, kept.dropped_bytes + len(new.encode()), kept.dropped_lines + new.count("\n"))
