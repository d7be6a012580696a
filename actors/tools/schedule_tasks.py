"""What carries a schedule out: a background task that sleeps in storage until the next due time, and the look-ups it starts.

Acting on a due time and storing the next one are one commit, so none is acted on twice, and none is lost, whatever dies in
between. Built on what any extension could use. Proved by tests/actors/tools/test_schedules.py and test_schedule_crashes.py.
"""

from typing import Any

import msgspec

from ...storage.records import JsonObject
from ..agent.registry import Registry
from ..conversation.builtin import AgentDoc, LiveDoc
from ..conversation.choice import Agent, configure
from ..conversation.errors import InboxFull
from ..conversation.inbox import submit_input, submit_write
from ..conversation.settings import Settings
from ..conversation.writes import write_draft
from ..models import UserMessage, to_json
from ..session.errors import OwnershipRefused
from ..session.tx import Entry
from ..task.definition import Phase, Task
from ..task.run import Run
from ..task.tx import RunTx
from .answers import answer_said
from .cron import CatchUp, Cron, Firing, firings, show_time

KIND = "perdure.schedule"
TOOLS = ("schedule", "list_schedules", "cancel_schedule")
MOST_CAUGHT_UP = 100
"""How many missed due times the rule "all" acts on: the newest."""
MOST_LOOK_UPS = 10
"""How many look-ups of one schedule run at once; also how many missed ones the rule "all" starts."""
RETRY_MS = 30_000
"""How long a due time waits whose conversation has a full inbox, or whose look-ups are too many."""
MOST_SAID = 50_000
"""How many characters of a look-up's answer are handed on."""

LookedUp: Entry[JsonObject] = Entry("perdure.lookup")
"""The entry with a look-up's answer. Its data: the schedule's ``name``, and the ``conversationId`` that has it all."""


class Plan(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A schedule: what to do (``text``, as an input or a look-up), and when: once, or by ``cron`` text in ``zone``.

    ``at`` is the one due time, or the first one (ms since the epoch); ``fixed`` says whether it was named as a time.
    """

    name: str
    text: str
    look_up: bool
    cron: str | None
    zone: str
    catch_up: CatchUp
    at: int
    fixed: bool


def missed_and_next(plan: Plan, at: int, now: int) -> tuple[list[Firing], int | None]:
    """Decide what to act on, and when to wake next, where ``at`` was due next and it is ``now``. Pure."""
    if plan.cron is None:
        return firings([at], now, plan.catch_up), None
    cron = Cron(plan.cron, plan.zone)
    limit = MOST_LOOK_UPS if plan.look_up else MOST_CAUGHT_UP
    ticks = [at, *cron.newest(at, now, limit)][-limit:]
    return firings(ticks, now, plan.catch_up), cron.after(max(at, now))


class Scheduled(Task[Plan, None], name=KIND, version=1):
    """Wait for the next due time and act on it."""

    class Tick(Phase):
        """``at`` is the next due time; ``fired`` counts those that were acted on."""

        at: int
        fired: int = 0

    def initial(self, plan: Plan) -> Phase:
        """Wait for the first due time."""
        return self.Tick(at=plan.at)

    async def tick(self, run: Run[Plan], state: Tick) -> None:
        """Act on what has come due, and wait for what is next, in one commit."""
        now = run.now()
        if now < state.at:
            await run.wait(until=state.at, then=state)
        elif run.input.look_up and len(await run.owned_tasks()) >= MOST_LOOK_UPS:
            await run.wait(until=now + RETRY_MS, then=state)
        else:
            await self._act(run, state, now)

    async def _act(self, run: Run[Plan], state: Tick, now: int) -> None:
        due, following = missed_and_next(run.input, state.at, now)
        try:
            async with run.commit() as tx:
                for firing in due:
                    await _fire(tx, run, firing)
                if following is None:
                    tx.complete()
                else:
                    await tx.wait(then=self.Tick(at=following, fired=state.fired + len(due)), until=following)
        except InboxFull:
            await run.wait(until=now + RETRY_MS, then=state)
        except OwnershipRefused:
            await run.fail("whoever owned this conversation has ended: nobody would read an answer")


async def _fire(tx: RunTx, run: Run[Plan], firing: Firing) -> None:
    plan = run.input
    if plan.look_up:
        await tx.create_task(LookUp, LookUpInput(name=plan.name, text=plan.text, due=_due(plan, firing)), owner=run.id)
    else:
        said = f"[Scheduled: {plan.name}, {_due(plan, firing)}]\n{plan.text}"
        request = f"schedule:{run.id}:{firing.tick}"
        await submit_input(tx, run.conversation_id, said, when_busy="follow_up", request_id=request)


def _due(plan: Plan, firing: Firing) -> str:
    missed = f"; {firing.missed} due before it were missed" if firing.missed else ""
    return f"due {show_time(firing.tick, plan.zone)}{missed}"


# --- look-ups


class LookUpInput(msgspec.Struct, frozen=True, rename="camel"):
    """What to look up, for which schedule, and when that was due, in words."""

    name: str
    text: str
    due: str


class LookUp(Task[LookUpInput, None], name="perdure.lookup", version=1):
    """Have a subagent look something up, in a conversation of its own, and write its answer into this one."""

    class Begin(Phase):
        """There is no conversation yet."""

    class Watch(Phase):
        """``asked`` is the submission that the subagent is to answer."""

        conversation: int
        asked: int

    async def begin(self, run: Run[LookUpInput], state: Begin) -> None:
        """Make the conversation, a copy of this one's agent that schedules nothing, and ask."""
        choice = await run.snapshot(AgentDoc, run.conversation_id) or {}
        offered = run.service(Registry).resolve(choice, run.service(Settings)).tools
        async with run.commit() as tx:
            child = await tx.create_conversation(owner=run.id)
            await configure(tx, child.id, Agent(tools=[tool.name for tool in offered if tool.name not in TOOLS]))
            asked = await submit_input(tx, child.id, run.input.text, when_busy="follow_up", request_id=None)
            tx.goto(self.Watch(conversation=child.id, asked=asked.id))

    async def watch(self, run: Run[LookUpInput], state: Watch) -> None:
        """Write the answer down, or wait for it."""
        try:
            async with run.commit() as tx:
                record = await tx.submission(state.asked)
                assert record is not None
                if record.settled:
                    await _write(tx, run, state, await answer_said(tx, record))
                    tx.complete()
                    return
                live = await tx.doc(LiveDoc, state.conversation)
                if "run" in live:
                    await tx.wait([live["run"]["taskId"]], then=state)
                else:  # a budget has paused it
                    await tx.wait(until=run.now() + RETRY_MS, then=state)
        except InboxFull:
            await run.wait(until=run.now() + RETRY_MS, then=state)


async def _write(tx: RunTx, run: Run[LookUpInput], state: LookUp.Watch, answer: str) -> None:
    given = run.input
    said = f"[Looked up as scheduled: {given.name}, {given.due}]\n{answer[:MOST_SAID]}"
    data: dict[str, Any] = {"name": given.name, "conversationId": state.conversation}
    model = [to_json(UserMessage(content=said, timestamp=run.now()))]
    limit = run.service(Settings).max_submission_bytes
    draft = write_draft(tx, LookedUp, data, model=model, limit=limit)
    await submit_write(tx, run.conversation_id, draft, request_id=f"lookup:{run.id}")
