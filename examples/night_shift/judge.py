"""What the crashes have cost, and whether every promise was kept. All from what is stored, through the public API."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec
import perdure
from perdure.models import AssistantMessage, Message, ToolCall, ToolResultMessage, from_json, tool_calls

from .daemon import SESSION, Json, Options
from .ledger import Ticket

Transcripts: TypeAlias = dict[int, list[perdure.EntryRecord]]
Fate: TypeAlias = Literal["asked again", "runs again", "interrupted"]


# --- a crash


class Victim(msgspec.Struct, frozen=True):
    """A task that was running when the process died: what it was doing, and what must become of it."""

    task: int
    doing: str
    fate: Fate


class Autopsy(msgspec.Struct, frozen=True):
    """A store as a dead process has left it; SQLite took ``recovered_s`` to open it. Later lives write after ``last_id``."""

    last_id: int
    recovered_s: float
    victims: list[Victim]

    def __str__(self) -> str:
        return ", ".join(f"{names} {fate}" for fate, names in self.by_fate().items()) or "nothing was running"

    def by_fate(self) -> dict[str, str]:
        """The victims in words, such as ``1 grep, 3 subagent`` for those that run again."""
        doing = {fate: [one.doing for one in self.victims if one.fate == fate] for fate in get_args(Fate)}
        counted = {fate: Counter(names).items() for fate, names in doing.items() if names}
        return {fate: ", ".join(f"{count} {name}" for name, count in counts) for fate, counts in counted.items()}


class Crash(msgspec.Struct):
    """A kill: when it was, how far the work was, what it left.

    And the next life: how long it took to open the system, and from the kill until it was at work.
    """

    died: float
    entries: int
    found: Autopsy
    opened_s: float = 0
    back_s: float = 0


async def autopsy(options: Options) -> Autopsy:
    """Look at the store between two lives."""
    began = time.monotonic()
    storage = perdure.SqliteStorage(options.store)
    await storage.open()
    try:
        recovered_s = time.monotonic() - began
        session = await storage.session(SESSION)
        victims = [await _victim(storage, task) for task in await storage.live_tasks(SESSION) if _ran(task)]
        return Autopsy(session.last_id if session else 0, recovered_s, victims)
    finally:
        await storage.close()


def _ran(task: perdure.TaskRecord) -> bool:
    """Whether something was under way outside of the store: an answer that streamed, a tool that ran."""
    return _checkpoint(task).get("phase") in ("request", "execute")


async def _victim(storage: perdure.Storage, task: perdure.TaskRecord) -> Victim:
    checkpoint = _checkpoint(task)
    if checkpoint["phase"] == "request":
        return Victim(task.id, "request", "asked again")
    asked = await storage.entry(SESSION, task.input["assistant"])
    made = {call.id: call.name for call in calls(asked[:1] if asked else ())}
    return Victim(
        task.id, made[task.input["callId"]], "runs again" if checkpoint["replay"] == "safe" else "interrupted"
    )


def _checkpoint(task: perdure.TaskRecord) -> Json:
    checkpoint: Json = getattr(task.state, "checkpoint", {})
    return checkpoint


def wasted_tokens(crashes: Sequence[Crash], transcripts: Transcripts) -> list[int]:
    """For each crash, the tokens of the answers that it cut off. What was shown of them is kept, and they are asked again."""
    ids = [crash.found.last_id for crash in crashes]
    entries = [entry for transcript in transcripts.values() for entry in transcript]
    return [
        sum(tokens_cut_off(entry) for entry in entries if first < entry.id <= last)
        for first, last in pairwise([*ids, math.inf])
    ]


def tokens_cut_off(entry: perdure.EntryRecord) -> int:
    """The tokens of an answer that was cut off; 0 for every other entry."""
    message = _message(entry)
    return message.usage.output if isinstance(message, AssistantMessage) and _cut_off(message) else 0


def filed_before_the_crash(found: Autopsy, tickets: Iterable[Ticket]) -> int:
    """How many of the interrupted calls had filed their ticket, though nobody was told."""
    interrupted = {victim.task for victim in found.victims if victim.fate == "interrupted"}
    return sum(ticket.task in interrupted for ticket in tickets)


# --- the checks


class Shift(msgspec.Struct):
    """What came of a shift: its report, how many entries it took, its tickets, and the crashes on the way."""

    report: str
    entries: int
    tickets: list[Ticket]
    crashes: list[Crash]


class Check(NamedTuple):
    """A promise, and what speaks against its having been kept."""

    promise: str
    problems: list[str]


def checks(transcripts: Transcripts, shift: Shift, calm: Shift | None) -> list[Check]:
    """Judge a shift, if possible by comparison with an undisturbed one."""
    made = sum(len(calls(entries)) for entries in transcripts.values())
    victims = [victim for crash in shift.crashes for victim in crash.found.victims]
    unanswered = [problem for entries in transcripts.values() for problem in unanswered_calls(entries)]
    alone = [
        Check(f"{len(shift.tickets)} tickets are in the ledger, none of them twice", double_tickets(shift.tickets)),
        Check(f"{made} calls in {len(transcripts)} transcripts are followed by their results", unanswered),
        Check("what was cut off ran again only if its tool says that it may", broken_fates(victims, transcripts)),
    ]
    if calm is None:
        return alone
    return [
        Check("the report is that of an undisturbed shift", other_report(shift.report, calm.report)),
        Check("so are the findings that have tickets", other_findings(shift.tickets, calm.tickets)),
        *alone,
    ]


async def read_transcripts(options: Options) -> Transcripts:
    """Read every conversation of the session, whole and in order."""
    async with perdure.System.open(options.store) as system:
        session = await system.session(SESSION)
        async with session.commit() as tx:
            conversations = await tx.scan_conversations(perdure.ConversationQuery(), 100)
        return {one.id: await _entries(await session.conversation(one.id)) for one in conversations.items}


async def _entries(conversation: perdure.Conversation) -> list[perdure.EntryRecord]:
    entries: list[perdure.EntryRecord] = []
    page = await conversation.entries(order="ascending")
    entries += page.items
    while page.next is not None:
        page = await conversation.entries(cursor=page.next, order="ascending")
        entries += page.items
    return entries


def other_report(report: str, undisturbed: str) -> list[str]:
    """The report must be that of a run without crashes, to the letter."""
    lines = zip(report.split("\n"), undisturbed.split("\n"), strict=False)
    first = next((f"{ours!r} instead of {theirs!r}" for ours, theirs in lines if ours != theirs), "one is longer")
    return [] if report == undisturbed else [f"the reports differ: {first}"]


def double_tickets(tickets: Sequence[Ticket]) -> list[str]:
    """No call may have filed twice, and no finding may have two tickets."""
    calls = Counter(ticket.key for ticket in tickets)
    findings = Counter(ticket.finding for ticket in tickets)
    return [
        *(f"call {key} has filed {count} tickets" for key, count in calls.items() if count > 1),
        *(f"{' '.join(map(str, finding))} has {count} tickets" for finding, count in findings.items() if count > 1),
    ]


def other_findings(tickets: Sequence[Ticket], undisturbed: Sequence[Ticket]) -> list[str]:
    """Exactly the findings of a run without crashes must have tickets."""
    ours, theirs = ({ticket.finding for ticket in some} for some in (tickets, undisturbed))
    missing = [f"{' '.join(map(str, finding))} has no ticket" for finding in sorted(theirs - ours)]
    return missing + [f"{' '.join(map(str, finding))} should have none" for finding in sorted(ours - theirs)]


def unanswered_calls(entries: Iterable[perdure.EntryRecord]) -> list[str]:
    """Every call must be followed by exactly one result before the model speaks again, and every result have its call."""
    problems: list[str] = []
    unanswered: set[str] = set()
    for message in map(_message, entries):
        if isinstance(message, ToolResultMessage):
            if message.tool_call_id not in unanswered:
                problems.append(f"a result of {message.tool_name} answers no open call: {message.tool_call_id}")
            unanswered.discard(message.tool_call_id)
        elif isinstance(message, AssistantMessage) and not _cut_off(message):
            problems += [f"call {call} has no result" for call in sorted(unanswered)]
            unanswered = {call.id for call in tool_calls(message)}
    return problems + [f"call {call} has no result" for call in sorted(unanswered)]


def calls(entries: Iterable[perdure.EntryRecord]) -> list[ToolCall]:
    """The calls of a transcript, in order."""
    said = [message for message in map(_message, entries) if isinstance(message, AssistantMessage)]
    return [call for message in said if not _cut_off(message) for call in tool_calls(message)]


def broken_fates(victims: Iterable[Victim], transcripts: Transcripts) -> list[str]:
    """A call that a crash cut off must be answered as interrupted if its tool is unsafe, and else must not."""
    problems = []
    results = {entry.by_task_id: entry for transcript in transcripts.values() for entry in transcript}
    for victim in victims:
        data = results[victim.task].data if victim.task in results else None
        interrupted = any(diagnostic.get("code") == "interrupted" for diagnostic in (data or {}).get("diagnostics", ()))
        if interrupted != (victim.fate == "interrupted"):
            problems.append(f"{victim.doing} (task {victim.task}) should be {victim.fate}")
    return problems


def _message(entry: perdure.EntryRecord) -> Message | None:
    return from_json(entry.model[0]) if entry.model else None


def _cut_off(message: AssistantMessage) -> bool:
    """Whether a crash ended the message. It is kept because it was shown; the calls in it were never made."""
    return message.stop_reason == "aborted"
