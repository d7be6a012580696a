"""The scripted model: plays the director and the auditors.

It has no memory. Every answer is a function of the request, that is of the transcript so far, which is all that a real
model has too: what it does next follows from the results that are really there.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from perdure.models import (
    Answer,
    AssistantMessage,
    Message,
    ModelRequest,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    call,
    current_tools,
    plain_text,
    tool_calls,
)

from .rules import RULES, Rule
from .tree import Hit, hits_from_text

AUDITORS = 3
BATCH = 4
"""Tickets filed in one turn, in parallel."""

Exchange: TypeAlias = tuple[ToolCall, ToolResultMessage]


def answer(request: ModelRequest) -> Answer:
    """Answer as the director, who can delegate, or else as an auditor."""
    done = list(exchanges(request.messages))
    directs = any(tool.name == "subagent" for tool in current_tools(request.messages))
    return direct(done) if directs else audit(task(request.messages), done)


# --- the transcript


def exchanges(messages: Iterable[Message]) -> Iterator[Exchange]:
    """The calls made so far and what came back, in order."""
    calls = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls.update({one.id: one for one in tool_calls(message)})
        elif isinstance(message, ToolResultMessage):
            yield calls[message.tool_call_id], message


def task(messages: Iterable[Message]) -> str:
    """What the conversation was begun with."""
    return plain_text(next(message.content for message in messages if isinstance(message, UserMessage)))


def result(done: Iterable[Exchange], tool: str, **arguments: object) -> str | None:
    """What a call came back with, None if it was not made. A tool that failed is beyond this script."""
    for made, came in done:
        if made.name == tool and arguments.items() <= made.arguments.items():
            said = plain_text(came.content)
            if came.is_error:
                raise RuntimeError(said)
            return said
    return None


def interrupted(came: ToolResultMessage) -> bool:
    """Whether nobody knows what a call has done: the process died under it."""
    return came.is_error and "interrupted" in plain_text(came.content)


# --- the director


def direct(done: Sequence[Exchange]) -> Answer:
    """Look at the tree, hand its parts out, merge what comes back."""
    listing = result(done, "list_files")
    if listing is None:
        return ["First I need to see the tree.", call("list_files")]
    parts = split(listing, AUDITORS)
    if not parts:
        return listing
    tasks = [assignment(number, len(parts), *part) for number, part in enumerate(parts, 1)]
    answers = [said for task in tasks if (said := result(done, "subagent", task=task)) is not None]
    if len(answers) < len(tasks):
        return [
            f"I split the tree into {len(parts)} parts of about equal size.",
            *(call("subagent", task=t) for t in tasks),
        ]
    return merge(listing, "\n".join(answers))


def split(listing: str, parts: int) -> list[tuple[str, str]]:
    """Cut a listing into ranges of about the same number of bytes, each given by its first and last name."""
    sizes = [(name, int(size)) for name, size in re.findall(r"^(.+): \d+ files, (\d+) bytes$", listing, re.MULTILINE)]
    total = sum(size for _, size in sizes) or 1
    ranges: list[list[str]] = [[] for _ in range(parts)]
    before = 0
    for name, size in sizes:
        ranges[before * parts // total].append(name)
        before += size
    return [(names[0], names[-1]) for names in ranges if names]


def assignment(number: int, parts: int, first: str, last: str) -> str:
    """The task of one auditor."""
    return f'Audit part {number} of {parts}: from "{first}" to "{last}".'


def merge(listing: str, answers: str) -> str:
    """One report out of all that the auditors found."""
    files = sum(int(count) for count in re.findall(r": (\d+) files, ", listing))
    lines = [f"Audit of {files} files"]
    total = 0
    for rule in RULES:
        found = re.findall(rf"^{rule.name}: (\d+) of (\d+)(?: at (.+))?$", answers, re.MULTILINE)
        filed, hits = (sum(int(counts[i]) for counts in found) for i in range(2))
        places = ", ".join(places for *_, places in found if places)
        lines.append(
            f"- {rule.name}, {rule.problem}: {filed} tickets from {hits} hits" + (f": {places}" if places else "")
        )
        total += filed
    return "\n".join([*lines, f"{total} tickets in all."])


# --- an auditor


def audit(task: str, done: Sequence[Exchange]) -> Answer:
    """Search for one problem after the other, file what is worth it, report."""
    match = re.search(r'from "(.+)" to "(.+)"', task)
    assert match, task
    part = {"first": match[1], "last": match[2]}
    if result(done, "list_files", **part) is None:
        return [f"I begin with what there is from {match[1]} to {match[2]}.", call("list_files", **part)]
    report = []
    for rule in RULES:
        found = result(done, "grep", pattern=rule.pattern, **part)
        if found is None:
            arguments = {"pattern": rule.pattern, **part, "after": rule.after}
            return [f"Next: code that {rule.problem}.", call("grep", **arguments)]
        hits = hits_from_text(found)
        findings = rule.findings(hits)
        steps = [step for finding in findings if (step := next_step(rule, finding, done))]
        if steps:
            return [f"Of {len(hits)} hits for {rule.name} {len(findings)} are worth a ticket.", *steps[:BATCH]]
        places = ", ".join(f"{finding.path}:{finding.line}" for finding in findings)
        report.append(f"{rule.name}: {len(findings)} of {len(hits)}" + (f" at {places}" if places else ""))
    return "\n".join(report)


def next_step(rule: Rule, finding: Hit, done: Sequence[Exchange]) -> ToolCall | None:
    """What is left to do about a finding: file it; look whether an interrupted call has filed it; or nothing."""
    about = {"rule": rule.name, "path": finding.path, "line": finding.line}
    file = call("file_ticket", **about, text=finding.text)
    tried = [(made, came) for made, came in done if about.items() <= made.arguments.items()]
    if not tried:
        return file
    made, came = tried[-1]
    if made.name == "file_ticket" and interrupted(came):
        return call("find_ticket", **about)
    if came.is_error:
        raise RuntimeError(plain_text(came.content))
    return file if plain_text(came.content) == "There is no such ticket." else None
