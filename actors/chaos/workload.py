"""What simulated systems work at: an office of a few sessions, whose hosts do a bit of everything that can be done.

What a host does is drawn beforehand, so that it may begin again in every life of the process: what it did is stored under
the names of its requests. Proved by tests/actors/chaos/test_workload.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from random import Random
from typing import Any

from ...storage.contract import SubmissionQuery
from ..agent.errors import CallNotWaiting, UnknownCall
from ..agent.registry import Extension
from ..agent.summaries import ROLE
from ..agent.tool import Tool
from ..agent.toolcontext import ToolContext
from ..conversation.choice import Agent
from ..conversation.errors import ConversationBusy
from ..conversation.handles import Conversation
from ..conversation.sessions import Session
from ..conversation.settings import CompactionPolicy, ProgressPolicy, RetryPolicy, Settings
from ..conversation.submissions import Settled, Submission
from ..models import Model, ModelRequest, ScriptedModel, SystemMessage, UserMessage, call, plain_text, text
from ..runtime import Clock
from ..session.documents import Doc
from ..session.errors import InvalidValue, SessionFailed
from ..system import System
from ..task.tx import Tx
from ..tools.subagent import subagent
from .scenario import Scenario
from .stored import Stored
from .tasks import Desk, Nap, Post

PATIENCE_S = 20.0
"""How long a host waits before it says something more."""
AGENT = Agent(model="office/clerk")
RECEIPTS: Doc[Any] = Doc("office.receipts", scope="session")
"""What requests have made, forks and tasks, by id."""


class Office(Scenario):
    """One to three sessions, each with one or two hosts, who work at the same time."""

    name = "office"
    settle_s = 30.0

    def __init__(self, dice: Random) -> None:
        super().__init__()
        self.sessions = [f"s{number}" for number in range(dice.choice((1, 1, 2)))]
        self.plans = [Plan(key, f"h{host}", dice) for key in self.sessions for host in range(dice.choice((1, 1, 2)))]
        self.pace = dice.choice((None, None, 500.0))
        self.idle_s = dice.choice((None, 0.05, 60.0))

    @property
    def settings(self) -> Settings:
        """Sessions that leave memory soon, and contexts that are full soon."""
        return Settings(
            progress=ProgressPolicy(partial_interval_ms=20, output_interval_ms=20),
            compaction=CompactionPolicy(reserve_tokens=2_000, background_tokens=1_000, keep_recent_tokens=50),
            retry=RetryPolicy(max_retries=2, base_delay_ms=100),
            idle_after_s=self.idle_s,
        )

    def models(self, clock: Clock) -> Iterable[Model]:
        """One model, which does as it is told."""
        return [ScriptedModel(brain, name="office/clerk", tokens_per_second=self.pace, token_chars=20, clock=clock)]

    def extensions(self) -> Iterable[Extension]:
        """A safe tool, an unsafe one, and subagents."""
        return [Extension(name="office", tools=TOOLS, tasks=[Desk, Post, Nap])]

    async def run(self, system: System) -> None:
        """Have all hosts do what they have planned."""
        await asyncio.gather(*(Host(self, system, plan).work() for plan in self.plans))

    def check(self, stored: Stored) -> None:
        """Nobody is left waiting."""
        for key, session in stored.items():
            failed = {one.conversation_id for one in session.submissions.values() if one.status == "unanswered"}
            for one in session.submissions.values():  # what is behind a run that failed waits for somebody to say more
                assert one.settled or one.conversation_id in failed, f"{key}: submission {one.id} was never settled"


def brain(request: ModelRequest) -> Any:
    """Do the calls that were asked for, ``look:place``; say something to everything else."""
    if isinstance(request.messages[0], SystemMessage) and request.messages[0].content == ROLE:
        return "what was done before"
    last = next(one for one in reversed(request.messages) if not isinstance(one, SystemMessage))
    said = plain_text(last.content)
    if isinstance(last, UserMessage):
        calls = [_call(*word.split(":")) for word in said.split() if ":" in word]
        if calls:
            return [text("I shall do that at once. "), *calls]
    return f"so much for: {said[:60]}"


def _call(name: str, place: str) -> Any:
    if name == "subagent":
        return call(name, task=f"look:{place} file:{place}")
    return call(name, place=place)


async def look(ctx: ToolContext, place: str) -> str:
    """Look at a place."""
    ctx.output("looking around\n")
    await ctx.sleep(0.03)
    return f"seen: {place}"


async def file(ctx: ToolContext, place: str) -> str:
    """File a ticket about a place."""
    await ctx.sleep(0.03)
    return f"filed: {place}"


async def pay(ctx: ToolContext, place: str) -> str:
    """Pay for something at a place."""
    return f"paid: {place}"


TOOLS = (
    Tool(look, replay="safe"),
    Tool(file, replay="unsafe"),
    Tool(pay, approval="always", approval_timeout_s=2.0),
    subagent(),
)
"""Made once, for their schemas take long."""
for _tool in TOOLS:
    assert _tool.spec


class Plan:
    """What one host will do in a session."""

    def __init__(self, session: str, name: str, dice: Random) -> None:
        self.session = session
        self.name = name
        kinds = list(ACTIONS)
        weights = [ACTIONS[kind] for kind in kinds]
        self.actions = [
            (kind, f"{name}-{number}", dice.getrandbits(64))
            for number, kind in enumerate(dice.choices(kinds, weights, k=dice.randint(1, 4)))
        ]


ACTIONS = {
    "ask": 6,
    "steer": 2,
    "reject": 1,
    "note": 1,
    "fork": 2,
    "compact": 1,
    "reset": 1,
    "abort": 1,
    "withdraw": 1,
    "mail": 1,
    "nap": 1,
    "stop": 1,
    "decide": 2,
    "rest": 2,
}
"""What a host may do, and how often, compared to the others."""


class Host:
    """Carries out a plan, from its beginning in every life."""

    def __init__(self, office: Office, system: System, plan: Plan) -> None:
        self.office = office
        self.system = system
        self.plan = plan
        self.sent: list[tuple[Conversation, Submission]] = []

    async def work(self) -> None:
        """Begin again whenever the session has failed."""
        while True:
            try:
                await self._work()
            except SessionFailed:
                continue
            return

    async def _work(self) -> None:
        self.sent = []
        self.session: Session = await self.system.session(self.plan.session)
        self.place = await self.session.root(agent=AGENT)
        for kind, request, seed in self.plan.actions:
            await getattr(self, f"_{kind}")(request, Random(seed))  # noqa: S311 - the same inputs in every life
        for conversation, submission in self.sent:
            settled = await self._settled(conversation, submission)
            self.office.heard(conversation, "settled", settled.record)
        await self.session.wait_for_idle()

    async def _settled(self, conversation: Conversation, submission: Submission) -> Settled:
        """Wait for the end of a submission. What is queued behind a run that failed waits for somebody to say more."""
        nudges = 0
        while True:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await submission.wait()
            except TimeoutError:
                nudges += 1
                await self._nudge(conversation, f"go-on {submission.id}-{nudges}")

    async def _nudge(self, conversation: Conversation, request: str) -> None:
        async with conversation.commit() as tx:
            ended = await tx.scan_submissions(SubmissionQuery(conversation_id=conversation.id, status="unanswered"), 1)
        assert ended.items, f"{conversation}: nothing went wrong, and the inbox is not looked at"
        await conversation.submit("go on", request_id=request)

    async def _send(self, request: str, said: str, when_busy: Any) -> None:
        submission = await self.place.submit(said, request_id=request, when_busy=when_busy)
        self.sent.append((self.place, submission))
        self.office.heard(self.place, "sent", await submission.status())

    async def _ask(self, request: str, dice: Random) -> None:
        what = dice.choices(("look", "file", "pay", "subagent"), (6, 6, 2, 3), k=dice.randint(0, 2))
        await self._send(request, " ".join([request, *(f"{one}:{request}" for one in what)]), "follow_up")
        if "pay" in what:
            await asyncio.sleep(dice.random() * 0.5)
            await self._decide(request, dice)

    async def _steer(self, request: str, dice: Random) -> None:
        await self._send(request, f"also {request}", "steer")

    async def _reject(self, request: str, dice: Random) -> None:
        try:
            await self._send(request, f"now {request}", "reject")
        except ConversationBusy:
            return

    async def _note(self, request: str, dice: Random) -> None:
        self.sent.append((self.place, await self.place.write("office.note", {"n": request}, request_id=request)))

    async def _fork(self, request: str, dice: Random) -> None:
        try:
            made = await self._once(request, lambda tx: tx.fork())
        except InvalidValue:  # nothing was said here yet
            return
        if dice.random() < 0.5:
            self.place = await self.session.conversation(made)

    async def _once(self, request: str, make: Callable[[Tx], Awaitable[Any]]) -> int:
        """Have something made, with a receipt in the same commit."""
        async with self.place.commit() as tx:
            receipts = await tx.doc(RECEIPTS)
            if request not in receipts:
                receipts[request] = (await make(tx)).id
            made: int = receipts[request]
        return made

    async def _mail(self, request: str, dice: Random) -> None:
        desk = await self._once(f"{request} desk", lambda tx: tx.create_task(Desk))
        other = await self.system.session(dice.choice(self.office.sessions))
        there = await other.root(agent=AGENT)
        sender = Host(self.office, self.system, self.plan)
        sender.place = there
        address = (self.session.key, desk)
        await sender._once(f"{self.session.key} {request} post", lambda tx: tx.create_task(Post, address))

    async def _nap(self, request: str, dice: Random) -> None:
        length, background = dice.randrange(200), dice.random() < 0.5
        await self._once(request, lambda tx: tx.create_task(Nap, length, background=background))

    async def _stop(self, request: str, dice: Random) -> None:
        tasks = await self.session.tasks()
        if tasks:
            await (await self.session.task(dice.choice(tasks).id)).abort()

    async def _decide(self, request: str, dice: Random) -> None:
        """Approve or deny whatever waits for that now; what comes later is denied when its time is over."""
        for slot in (await self.place.live()).get("tools", ()):
            if "approval" in slot:
                decide = self.place.approve if dice.random() < 0.7 else self.place.deny
                with suppress(CallNotWaiting, UnknownCall):  # somebody was faster
                    await decide(slot["callId"], slot["approval"]["hash"])

    async def _compact(self, request: str, dice: Random) -> None:
        await self.place.compact()

    async def _reset(self, request: str, dice: Random) -> None:
        self.sent.append((self.place, await self.place.reset("begin anew", request_id=request)))

    async def _abort(self, request: str, dice: Random) -> None:
        await self.place.abort(background=dice.random() < 0.3)

    async def _withdraw(self, request: str, dice: Random) -> None:
        if self.sent:
            await dice.choice(self.sent)[1].withdraw()

    async def _rest(self, request: str, dice: Random) -> None:
        await asyncio.sleep(dice.random() * 0.2)
