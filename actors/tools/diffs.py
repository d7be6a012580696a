"""A unified diff of an edit, from the places that it changed: nothing is searched for. Pure.

Proved by tests/actors/tools/test_diffs.py.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import msgspec

CONTEXT = 3
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Change(msgspec.Struct, frozen=True):
    """``text[start:end]`` becomes ``replacement``."""

    start: int
    end: int
    replacement: str


class _Hunk(msgspec.Struct):
    """``old`` lines from number ``at`` (0-based) become ``new`` ones."""

    at: int
    old: list[str]
    new: list[str]

    @property
    def after(self) -> int:
        return self.at + len(self.old)


def apply(text: str, changes: Sequence[Change]) -> str:
    """Make changes, which are in order and do not overlap."""
    parts, position = [], 0
    for change in changes:
        parts += [text[position : change.start], change.replacement]
        position = change.end
    return "".join([*parts, text[position:]])


def unified(text: str, changes: Sequence[Change]) -> str:
    """Give the changes as hunks of a unified diff with up to three lines around each."""
    lines = _LINE.findall(text)
    hunks = _hunks(lines, changes)
    ends = [*(hunk.at for hunk in hunks[1:]), len(lines)]
    shown: list[str] = []
    shift = previous = 0
    for hunk, end in zip(hunks, ends, strict=False):
        before = lines[max(previous, hunk.at - CONTEXT) : hunk.at]
        after = lines[hunk.after : min(end, hunk.after + CONTEXT)]
        shown += _render(hunk, shift, before, after)
        shift += len(hunk.new) - len(hunk.old)
        previous = hunk.after + len(after)
    return "".join(shown)


def first_line(text: str, changes: Sequence[Change]) -> int:
    """Give the number, from 1, of the first line that a change touches."""
    return text.count("\n", 0, changes[0].start) + 1


def _hunks(lines: list[str], changes: Sequence[Change]) -> list[_Hunk]:
    """Whole lines for each change; changes of one line, or of neighbours, are one hunk."""
    starts = [0, *accumulate(len(line) for line in lines)]
    groups: list[tuple[int, int, list[Change]]] = []
    for change in changes:
        first, last = bisect_right(starts, change.start) - 1, bisect_right(starts, change.end) - 1
        if groups and first <= groups[-1][1] + 1:
            groups[-1][2].append(change)
            groups[-1] = (groups[-1][0], max(last, groups[-1][1]), groups[-1][2])
        else:
            groups.append((first, last, [change]))
    hunks = [_hunk(lines, starts, *group) for group in groups]
    return [hunk for hunk in hunks if hunk.old or hunk.new]


def _hunk(lines: list[str], starts: list[int], first: int, last: int, changes: list[Change]) -> _Hunk:
    base = starts[first]
    moved = [Change(one.start - base, one.end - base, one.replacement) for one in changes]
    new = _LINE.findall(apply("".join(lines[first : last + 1]), moved))
    return _trimmed(first, lines[first : last + 1], new)


def _trimmed(at: int, old: list[str], new: list[str]) -> _Hunk:
    """Take away what is equal at both ends."""
    shortest = min(len(old), len(new))
    head = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    left = shortest - head
    tail = next((i for i in range(left) if old[-1 - i] != new[-1 - i]), left)
    return _Hunk(at + head, old[head : len(old) - tail], new[head : len(new) - tail])


def _render(hunk: _Hunk, shift: int, before: list[str], after: list[str]) -> list[str]:
    around = len(before) + len(after)
    start = hunk.at - len(before)
    old, new = _span(start, len(hunk.old) + around), _span(start + shift, len(hunk.new) + around)
    parts = ((" ", before), ("-", hunk.old), ("+", hunk.new), (" ", after))
    return [f"@@ -{old} +{new} @@\n", *(_line(mark, line) for mark, block in parts for line in block)]


def _span(start: int, count: int) -> str:
    return f"{start + 1 if count else start},{count}"


def _line(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
