"""Schedules: what a conversation is told, or has looked up, at a time, after a delay, or again and again.

    extensions=[perdure.schedules()]                                        # the task, and tools for agents
    await perdure.add_schedule(root, "Check the build.", cron="0 9 * * mon-fri", zone="Europe/Berlin", name="build")

A schedule is a background task of its conversation (see ``schedule_tasks``): stored, without memory while it waits, ended by
``cancel_schedule`` or ``conversation.abort(background=True)``. Proved by tests/actors/tools/test_schedules.py.
"""

from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from ...storage.contract import Cursor, TaskQuery
from ...storage.records import TaskRecord
from ..agent.registry import Extension, Registry
from ..agent.tool import Tool, tool
from ..agent.toolcontext import ToolContext
from ..conversation.handles import Conversation
from ..conversation.sessions import Session
from ..session.arguments import name as valid_name
from ..session.arguments import text as valid_text
from ..task.tx import RunTx, Tx
from .cron import CatchUp, Cron, InvalidSchedule, parse_time, show_time, zone_of
from .schedule_tasks import KIND, LookUp, Plan, Scheduled

MOST_SCHEDULES = 100
"""How many schedules one conversation may have."""
MOST_TEXT = 10_000
"""How many characters a schedule's text may have."""
LONGEST_DELAY_S = 10 * 365 * 86_400
LIVE: tuple[Literal["pending", "running", "waiting", "completing"], ...] = (
    "pending",
    "running",
    "waiting",
    "completing",
)
PAGE = 1_000


class Schedule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A schedule as it stands. ``next_at`` is when it comes due (ms since the epoch), ``fired`` how often it has.

    ``look_up`` has a subagent answer ``text``, and its answer written into the conversation; otherwise ``text`` is
    submitted to the conversation itself. Without ``cron`` it comes due once.
    """

    id: int
    conversation_id: int
    name: str
    text: str
    look_up: bool
    cron: str | None
    zone: str
    catch_up: CatchUp
    next_at: int
    fired: int

    def __str__(self) -> str:
        when = f"cron {self.cron!r}" if self.cron is not None else "once"
        return f"{self.name!r}, {when}, next at {show_time(self.next_at, self.zone)} ({self.zone}): {self.text}"


class NoSuchSchedule(InvalidSchedule, LookupError):
    """There is no schedule of this id or name that still comes due. Nothing was changed."""


# --- for applications


async def add_schedule(
    conversation: Conversation,
    text: str,
    *,
    after_s: float | None = None,
    at: str | int | None = None,
    cron: str | None = None,
    zone: str = "UTC",
    catch_up: CatchUp = "once",
    look_up: bool = False,
    name: str | None = None,
) -> Schedule:
    """Schedule ``text`` for a conversation: after seconds, at a time (ISO 8601, or ms since the epoch), or by cron text.

    ``catch_up`` says what becomes of due times at which nobody was awake: "skip" drops those that are more than a minute
    late, "once" acts on the newest, "all" on each, on the newest 100 if they are more (10 look-ups). Whatever the rule, a
    due time is acted on once. In ``zone``, a name of the time zone database, ``cron`` is read and a time without offset.
    With a ``name``, adding again is harmless: what is there by that name stays if it says the same (a delay goes on), and
    is replaced otherwise. Raises InvalidSchedule, UnknownRecord, SessionFailed.
    """
    async with conversation.commit() as tx:
        there = await _living(tx, conversation.id)
        plan = _plan(
            tx,
            there,
            text,
            after_s=after_s,
            at=at,
            cron=cron,
            zone=zone,
            catch_up=catch_up,
            look_up=look_up,
            name=name,
        )
        known = there.get(plan.name)
        if known is not None and _same(plan, _plan_of(known)):
            return _schedule(known)
        if known is not None:
            await tx.abort_task(known.id)
        return await _create(tx, conversation.id, plan, there)


async def list_schedules(of: Session | Conversation) -> list[Schedule]:
    """List the schedules of a conversation, or of all conversations of a session, that still come due, oldest first."""
    conversation = of.id if isinstance(of, Conversation) else None
    async with of.commit() as tx:
        return [_schedule(record) async for record in _scan(tx, conversation)]


async def cancel_schedule(of: Session | Conversation, schedule: Schedule | int | str) -> None:
    """Remove a schedule by itself, its id, or in its conversation by its name; a look-up of it that runs is ended, too.

    Raises NoSuchSchedule.
    """
    wanted = schedule.id if isinstance(schedule, Schedule) else schedule
    conversation = of.id if isinstance(of, Conversation) else None
    async with of.commit() as tx:
        await _cancel(tx, conversation, wanted)


def schedules(*, zone: str = "UTC") -> Extension:
    """Make the extension that carries schedules out and lets agents schedule, list and cancel for their own conversation.

    ``zone`` is the time zone for whatever does not name one. Raises InvalidSchedule.
    """
    zone_of(zone)
    return Extension(name="schedules", tools=_tools(zone), tasks=[Scheduled, LookUp])


# --- for agents


def _tools(default_zone: str) -> list[Tool]:
    return [_schedule_tool(default_zone), _list_tool(default_zone), _cancel_tool()]


def _schedule_tool(default_zone: str) -> Tool:
    @tool(replay="safe")
    async def schedule(
        ctx: ToolContext,
        text: str,
        *,
        name: str | None = None,
        after_s: float | None = None,
        at: str | None = None,
        cron: str | None = None,
        zone: str | None = None,
        catch_up: CatchUp = "once",
        look_up: bool = False,
    ) -> str:
        """Schedule something for yourself, once (give after_s or at) or again and again (give cron). It survives restarts.

        When it comes due, the text is given to you as input; or, with look_up, to a subagent, whose answer you get.

        Args:
            text: What you, or the subagent, will be told, with everything needed to act on it.
            name: A short name to list and cancel it by.
            after_s: Seconds from now.
            at: A time in ISO 8601, such as 2026-12-24T18:00.
            cron: Cron text with five fields: minute, hour, day, month, weekday.
            zone: The time zone of at and cron, such as Europe/Berlin.
            catch_up: What to do about due times that were missed: skip them, act once, or on all of them.
            look_up: Whether a subagent looks it up, instead of you.
        """
        async with ctx.commit() as tx:
            memo = await _made_before(tx, ctx)
            if memo is not None:
                return memo
            there = await _living(tx, ctx.conversation_id)
            plan = _plan(
                tx,
                there,
                text,
                after_s=after_s,
                at=at,
                cron=cron,
                zone=zone or default_zone,
                catch_up=catch_up,
                look_up=look_up,
                name=name,
            )
            if plan.name in there:
                raise InvalidSchedule(f"there is a schedule {plan.name!r} already; cancel it, or choose another name")
            made = await _create(tx, ctx.conversation_id, plan, there)
            said = f"Scheduled {made}. It is {show_time(ctx.now(), made.zone)} now."
            tx.memo(KIND, said)
            return said

    return schedule


def _list_tool(default_zone: str) -> Tool:
    @tool(name="list_schedules", replay="safe")
    async def listed(ctx: ToolContext) -> str:
        """List what is scheduled for you, and tell what time it is."""
        async with ctx.commit() as tx:
            found = [_schedule(record) async for record in _scan(tx, ctx.conversation_id)]
        lines = [f"It is {show_time(ctx.now(), default_zone)} ({default_zone})."]
        return "\n".join([*lines, *(f"- {one}" for one in found)] if found else [*lines, "Nothing is scheduled."])

    return listed


def _cancel_tool() -> Tool:
    @tool(name="cancel_schedule", replay="safe")
    async def cancel(ctx: ToolContext, name: str) -> str:
        """Cancel something that is scheduled for you.

        Args:
            name: Its name.
        """
        async with ctx.commit() as tx:
            await _cancel(tx, ctx.conversation_id, name)
        return f"The schedule {name!r} is cancelled."

    return cancel


async def _made_before(tx: RunTx, ctx: ToolContext) -> str | None:
    """What an execution of this call that was interrupted has scheduled already."""
    call = await tx.task(ctx.task_id)
    said = None if call is None else (call.memos or {}).get(KIND)
    return said if isinstance(said, str) else None


# --- in a commit


def _plan(
    tx: Tx,
    there: dict[str, TaskRecord],
    text: str,
    *,
    after_s: float | None,
    at: str | int | None,
    cron: str | None,
    zone: str,
    catch_up: CatchUp,
    look_up: bool,
    name: str | None,
) -> Plan:
    """Check what was asked for. Raises InvalidSchedule."""
    if catch_up not in ("skip", "once", "all"):
        raise InvalidSchedule(f'expected catch_up to be "skip", "once" or "all", got: {catch_up!r}')
    zone_of(zone)
    return Plan(
        name=_unused(there) if name is None else _name(name),
        text=_text(text),
        look_up=bool(look_up),
        cron=cron,
        zone=zone,
        catch_up=catch_up,
        at=_first(tx.core.clock.now(), after_s, at, cron, zone),
        fixed=at is not None,
    )


def _text(said: Any) -> str:
    if not isinstance(said, str) or not 0 < len(said.strip()) <= MOST_TEXT:
        raise InvalidSchedule(f"say in 1 to {MOST_TEXT:,} characters what is to happen")
    return valid_text("a schedule's text", said)


def _name(said: Any) -> str:
    if not isinstance(said, str) or not said.strip() or len(said) > 100:
        raise InvalidSchedule(f"expected a name of 1 to 100 characters, got: {said!r}")
    return valid_name("a schedule's name", said)


def _first(now: int, after_s: float | None, at: str | int | None, cron: str | None, zone: str) -> int:
    """Give the first due time. Raises InvalidSchedule."""
    if [after_s, at, cron].count(None) != 2:
        raise InvalidSchedule("say when: give exactly one of after_s, at and cron")
    if cron is not None:
        due = Cron(cron, zone).after(now)
        if due is None:
            raise InvalidSchedule(f"cron text {cron!r} never comes due")
        return due
    if after_s is not None:
        if not isinstance(after_s, int | float) or not 0 <= after_s <= LONGEST_DELAY_S:
            raise InvalidSchedule(f"expected after_s to be 0 to {LONGEST_DELAY_S:,} seconds, got: {after_s!r}")
        return now + round(after_s * 1_000)
    when = parse_time(at, zone) if isinstance(at, str) else at
    if not isinstance(when, int) or not now <= when <= now + LONGEST_DELAY_S * 1_000:
        raise InvalidSchedule(f"expected a time from now, {show_time(now, zone)}, to ten years ahead, got: {at!r}")
    return when


def _unused(there: dict[str, TaskRecord]) -> str:
    return next(name for number in range(1, len(there) + 2) if (name := f"schedule {number}") not in there)


async def _create(tx: Tx, conversation_id: int, plan: Plan, there: dict[str, TaskRecord]) -> Schedule:
    if len(there) >= MOST_SCHEDULES:
        raise InvalidSchedule(f"{MOST_SCHEDULES} things are scheduled for this conversation already; cancel some")
    if not any(Scheduled in one.tasks for one in tx.core.services.get(Registry).installed()):
        raise InvalidSchedule("nobody would carry it out: open the system with extensions=[perdure.schedules(), ...]")
    made = await tx.create_task(Scheduled, plan, conversation_id=conversation_id, background=True)
    record = await tx.task(made.id)
    assert record is not None
    return _schedule(record)


async def _living(tx: Tx, conversation_id: int) -> dict[str, TaskRecord]:
    """Give a conversation's schedules by name."""
    return {record.input["name"]: record async for record in _scan(tx, conversation_id)}


async def _scan(tx: Tx, conversation_id: int | None) -> AsyncIterator[TaskRecord]:
    """Give the schedules that still come due, oldest first."""
    records = [
        record
        for status in LIVE
        async for record in _pages(tx, TaskQuery(conversation_id=conversation_id, kind=KIND, status=status))
    ]
    for record in sorted(records, key=lambda one: one.id):
        if not record.abort_requested and "at" in _checkpoint(record):
            yield record


async def _pages(tx: Tx, query: TaskQuery) -> AsyncIterator[TaskRecord]:
    cursor: Cursor | None = None
    while True:
        page = await tx.scan_tasks(query, PAGE, cursor)
        for record in page.items:
            yield record
        cursor = page.next
        if cursor is None:
            return


async def _cancel(tx: Tx, conversation_id: int | None, wanted: int | str) -> None:
    found = [record async for record in _scan(tx, conversation_id) if wanted in (record.id, record.input["name"])]
    if len(found) != 1:
        raise NoSuchSchedule(f"there is no schedule {wanted!r}" if not found else f"several are called {wanted!r}")
    await tx.abort_task(found[0].id)


def _same(plan: Plan, known: Plan) -> bool:
    """Whether both say the same; the time of a delay is nobody's word."""
    at = plan.at if plan.fixed else known.at
    return msgspec.structs.replace(plan, at=at) == known


def _plan_of(record: TaskRecord) -> Plan:
    return msgspec.convert(record.input, Plan)


def _checkpoint(record: TaskRecord) -> dict[str, Any]:
    """The stored phase; one that is about to end has none."""
    return getattr(record.state, "checkpoint", {})


def _schedule(record: TaskRecord) -> Schedule:
    plan, phase = _plan_of(record), _checkpoint(record)
    return Schedule(
        id=record.id,
        conversation_id=record.conversation_id,
        name=plan.name,
        text=plan.text,
        look_up=plan.look_up,
        cron=plan.cron,
        zone=plan.zone,
        catch_up=plan.catch_up,
        next_at=phase["at"],
        fired=phase.get("fired", 0),
    )
