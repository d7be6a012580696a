"""A night in an office of many sessions, which a process works through until it is killed, and what must hold then.

Each session's host sends jobs, steers, follow-ups and writes, forks the conversation, works in the fork, compacts and
resets. Every job makes safe and unsafe calls and some have a subagent that makes its own. The host may begin again from its
beginning in every life: what it did is stored under the ids of its requests.
"""

import asyncio
from collections import Counter

import perdure
from perdure.actors.models import SystemMessage, ToolResultMessage, UserMessage, call, from_json, plain_text, text

from ..actors.agent.compacting import summarizes
from . import scenario

SESSIONS = 24
JOBS = 2
KEYS = [f"customer-{number}" for number in range(SESSIONS)]
AGENT = perdure.Agent(model="scripted/model")
SETTINGS = perdure.Settings(
    progress=perdure.ProgressPolicy(partial_interval_ms=20, output_interval_ms=20),
    compaction=perdure.CompactionPolicy(reserve_tokens=2_000, background_tokens=1_000, keep_recent_tokens=50),
)


# --- the agent


def brain(request):
    """The model: a pure function of the request."""
    if summarizes(request):
        return "what was done before"
    last = next(one for one in reversed(request.messages) if not isinstance(one, SystemMessage))
    said = plain_text(last.content)
    if isinstance(last, UserMessage) and said.startswith(("audit ", "count ")):
        order, place = said.split()
        calls = [call("look", place=place), call("file_ticket", place=place)]
        if order == "audit" and sum(map(ord, place)) % 2:
            calls.append(call("subagent", task=f"count {place}"))
        return [text(f"I shall look at {place} from every side. "), *calls]
    return f"so much for: {said}"


def make_storage(backend, path):
    """A storage that loses nothing of a killed process."""
    return perdure.SqliteStorage(path, durability="process") if backend == "sqlite" else perdure.JsonlStorage(path)


def open_system(storage, looked, filed):
    """A system on which the office works."""
    tools = scenario.extension(looked, filed, seconds=0.01)
    model = perdure.ScriptedModel(brain, tokens_per_second=2_000, token_chars=10)
    return perdure.System.open(storage, models=[model], extensions=[tools], settings=SETTINGS)


# --- the hosts


class Host:
    """Whoever works on one session; ``said(facts)`` is told of what it was told, as soon as it was."""

    def __init__(self, system, key, said):
        self.system = system
        self.key = key
        self.said = said

    async def work(self):
        self.session = await self.system.session(self.key)
        root = await self.session.root(agent=AGENT)
        forks = []
        for job in range(JOBS):
            audit = await self._send(root, f"audit {self.key}-{job}")
            steer = await self._send(root, f"also-{job}", when_busy="steer")
            more = await self._send(root, f"next-{job}")
            note = await self._note(root, f"note-{job}")
            fork = await self._fork(root, f"fork-{job}", at=audit)
            forks.append(fork)
            await self._send(fork, f"audit {self.key}-fork-{job}")
            for one in (steer, more, note):
                await self._settled(one)
            if job == 0:
                self._tell("compacted", status=(await root.compact(request_id="compact")).status)
        await self._settled(await root.reset("begin anew", request_id="reset"))
        for conversation in [root, *forks]:
            await conversation.wait_for_idle(background=True)

    def _tell(self, what, **facts):
        self.said({"what": what, "session": self.key, **facts})

    async def _send(self, conversation, said, **options):
        sent = await conversation.submit(said, request_id=said, **options)
        self._tell("sent", id=sent.id, request=said)
        return sent

    async def _note(self, conversation, request):
        sent = await conversation.write("office.note", {"n": request}, request_id=request)
        self._tell("sent", id=sent.id, request=request)
        return sent

    async def _settled(self, submission):
        settled = await submission.wait()
        answer = settled.answer and settled.answer.text
        self._tell("settled", id=submission.id, status=settled.status, answer=answer)

    async def _fork(self, root, request, at):
        """Fork at an input, once it is settled."""
        await self._settled(at)
        fork = await root.fork((await at.status()).entry, request_id=request)
        self._tell("forked", request=request, id=fork.id)
        return fork


async def work(system, said):
    """Have all hosts work to their end."""
    async with asyncio.TaskGroup() as hosts:
        for key in KEYS:
            hosts.create_task(Host(system, key, said).work())


# --- what must hold


async def read_all(storage):
    """What an open store has of each session that had begun, by key."""
    begun = {record.key for record in (await storage.sessions(2 * SESSIONS)).items}
    return {key: await scenario.read_stored(storage, key) for key in KEYS if key in begun}


def check(stored, diary):
    """After any kill: whatever was told to anybody is stored, nothing is doubled, every transcript can be sent."""
    for facts in diary:
        if "session" in facts:
            _check_told(stored[facts["session"]], facts)
    for one in stored.values():
        requests = Counter((record.conversation_id, record.request_id) for record in one.submissions.values())
        assert all(count == 1 for (_, request), count in requests.items() if request is not None), "admitted twice"
        for conversation in one.conversations.values():
            _check_transcript(one, conversation)
    _check_once([facts["key"] for facts in diary if facts["what"] == "filed"])


def _check_told(stored, facts):
    match facts["what"]:
        case "sent":
            assert stored.submissions[facts["id"]].request_id == facts["request"], "an admitted request is lost"
        case "settled":
            record = stored.submissions[facts["id"]]
            assert record.status == facts["status"], "a settled submission changed"
            if facts["answer"] is not None:
                answer = next(one for one in _entries(stored) if one.id == record.answer)
                assert facts["answer"] == plain_text(from_json(answer.model[0]).content)
        case "forked":
            assert stored.conversations[facts["id"]].parent is not None, "a fork is lost"


def _entries(stored):
    return [entry for entries in stored.entries.values() for entry in entries]


def _check_transcript(stored, conversation):
    """Each input and each result is there at most once, and nobody works in a place that belongs to nobody."""
    entries = stored.entries[conversation.id]
    own = [one for one in entries if one.conversation_id == conversation.id]
    said = scenario.messages(own)
    _check_once([plain_text(message.content) for message in said if isinstance(message, UserMessage)])
    _check_once([message.tool_call_id for message in said if isinstance(message, ToolResultMessage)])
    for task in stored.tasks.values():
        if task.live and task.owner is not None:
            owner = stored.tasks[task.owner]
            assert owner.live, f"task {task.id} outlived its owner"


def _check_once(seen):
    assert not [one for one, count in Counter(seen).items() if count > 1], "something was done twice"


def check_finished(stored, diary):
    """At the end: all work is done; returns how many unsafe calls were interrupted."""
    filed = [facts["key"] for facts in diary if facts["what"] == "filed"]
    interrupted = 0
    for key in KEYS:
        one = stored[key]
        assert not [task.id for task in one.tasks.values() if task.live], "tasks are still alive"
        assert {record.status for record in one.submissions.values()} == {"done"}
        named = Counter(record.request_id for record in one.submissions.values())
        assert all(named[request] == 1 for request in requests(key)), "a request was never admitted"
        assert sum(record.parent is not None for record in one.conversations.values()) == JOBS
        interrupted += len(scenario.check_tickets(one, [name for name in filed if name.startswith(f"{key}:")], key))
    return interrupted


def requests(key):
    """The requests of a session's host."""
    of_jobs = [f"{kind}-{job}" for job in range(JOBS) for kind in ("also", "next", "note")]
    audits = [f"audit {key}-{fork}{job}" for job in range(JOBS) for fork in ("", "fork-")]
    return [*of_jobs, *audits, "reset"]
