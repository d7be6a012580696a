"""What the auditors look for, and which hits are worth a ticket. Pure: a hit is all there is to judge by."""

import re
from collections.abc import Callable
from typing import NamedTuple

from .tree import Hit

MOST = 5
"""Tickets for one rule from one auditor: more than a morning can read help nobody."""


class Rule(NamedTuple):
    """A kind of problem: how to find candidates, and how to tell which of them are real."""

    name: str
    problem: str
    pattern: str
    worth: Callable[[Hit], bool]
    after: int = 0

    def findings(self, hits: list[Hit]) -> list[Hit]:
        """The hits worth a ticket, as many as one auditor may file."""
        return [hit for hit in hits if self.worth(hit)][:MOST]


def _in_code(pattern: str) -> Callable[[Hit], bool]:
    """Whether the match is neither in a comment nor in a string, as far as one line tells."""

    def worth(hit: Hit) -> bool:
        match = re.search(pattern, hit.text)
        before = hit.text[: match.start()] if match else "#"
        return "#" not in before and before.count('"') % 2 == 0 and before.count("'") % 2 == 0

    return worth


def _swallows(hit: Hit) -> bool:
    return hit.after[:1] in (("pass",), ("continue",))


def _worries(hit: Hit) -> bool:
    return (
        re.search(r"(?i)\b(thread|threadsafe|race|atomic|unsafe|danger\w*|leak|bug|wrong|broken)\b", hit.text)
        is not None
    )


SHELL = r"\bos\.(?:system|popen)\((?!\))"
PICKLE = r"\bpickle\.loads?\((?!\))"
EVAL = r"(?<![\w.])eval\((?=\w)"
MKTEMP = r"(?<!def )\bmktemp\("

RULES = (
    Rule("shell", "hands a string to a shell", SHELL, _in_code(SHELL)),
    Rule("pickle", "executes whatever a pickle says", PICKLE, _in_code(PICKLE)),
    Rule("eval", "evaluates text as code", EVAL, _in_code(EVAL)),
    Rule("mktemp", "names a temporary file that somebody else may create first", MKTEMP, _in_code(MKTEMP)),
    Rule("silent", "swallows every error, Ctrl-C included", r"^[ \t]*except[ \t]*:", _swallows, after=1),
    Rule("worry", "says itself that it is wrong", r"\b(?:TODO|FIXME|XXX)\b", _worries),
)
