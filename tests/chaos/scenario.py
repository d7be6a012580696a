"""The run that the crash suites interrupt, and what must hold of it however it was interrupted.

An agent answers one input: it makes three calls at once, one of which is a subagent that makes two of its own. ``look``
may run again after a crash; ``file_ticket`` must not, and writes its idempotency key to a ledger outside the store.
"""

from collections import Counter

import msgspec
import perdure
from perdure.actors.models import (
    AssistantMessage,
    ToolResultMessage,
    UserMessage,
    call,
    from_json,
    plain_text,
    text,
    tool_calls,
)
from perdure.storage.records import ConversationScope

KEY = "customer-42"
REQUEST = "job-1"
PROMPT = "Audit the cellar"
CHILD_TASK = "Count the barrels"
AGENT = perdure.Agent(model="scripted/model")
SETTINGS = perdure.Settings(progress=perdure.ProgressPolicy(partial_interval_ms=25, output_interval_ms=25))
OPENING = "I shall look at it from every side, write down what is wrong, and have somebody count what is there."


# --- the agent


def brain(request, opening=OPENING):
    """The model: a pure function of the request."""
    asked = next(plain_text(m.content) for m in request.messages if isinstance(m, UserMessage))
    results = {m.tool_name: _gist(m) for m in request.messages if isinstance(m, ToolResultMessage)}
    if results:
        return _answer(asked, results)
    calls = [call("look", place=asked), call("file_ticket", place=asked)]
    if asked == PROMPT:
        calls.append(call("subagent", task=CHILD_TASK))
    return [text(opening), *calls]


def _gist(result):
    return "interrupted" if was_interrupted(result) else plain_text(result.content)


def was_interrupted(result):
    """Whether a result says that a crash came between its call's intent and its outcome."""
    return result.is_error and "was interrupted and may have partially run" in plain_text(result.content)


def _answer(asked, results):
    said = "; ".join(f"{name} -> {results[name]}" for name in sorted(results))
    return f"<{asked}: {said}>"


def expected_answer(interrupted=()):
    """The answer to ``PROMPT`` when the tickets about the places in ``interrupted`` may or may not have been filed."""

    def of(asked, **more):
        filed = "interrupted" if asked in interrupted else f"ticket: {asked}"
        return _answer(asked, {"look": f"seen: {asked}", "file_ticket": filed, **more})

    return of(PROMPT, subagent=of(CHILD_TASK))


def extension(looked, filed, *, seconds=0.06):
    """The tools. ``looked(key)`` is told of every execution of the safe one, ``filed(key)`` writes the ledger.

    Either then goes on working for some ``seconds``.
    """

    @perdure.tool(replay="safe")
    async def look(ctx: perdure.ToolContext, place: str) -> str:
        """Look at a place."""
        looked(ctx.idempotency_key)
        ctx.output("looking around\n")
        await ctx.sleep(seconds)
        return f"seen: {place}"

    @perdure.tool(replay="unsafe")
    async def file_ticket(ctx: perdure.ToolContext, place: str) -> str:
        """File a ticket about a place."""
        filed(ctx.idempotency_key)
        ctx.output("sent to the office\n")
        await ctx.sleep(seconds)
        return f"ticket: {place}"

    return perdure.Extension(name="audit", tools=[look, file_ticket, perdure.subagent()])


def open_system(store, tools, *, script=brain, tokens_per_second=None, clock=None, **options):
    """A system over ``store`` in which the agent is installed."""
    model = perdure.ScriptedModel(script, tokens_per_second=tokens_per_second, token_chars=10, clock=clock)
    return perdure.System.open(store, models=[model], extensions=[tools], settings=SETTINGS, clock=clock, **options)


async def submit(system, key=KEY):
    """Send the input, as often as one likes."""
    session = await system.session(key)
    root = await session.root(agent=AGENT)
    return await root.submit(PROMPT, request_id=REQUEST)


# --- what is stored


class Stored(msgspec.Struct):
    """What a store holds of the session: records by id, transcripts and ``pi.live`` by conversation."""

    conversations: dict[int, perdure.ConversationRecord]
    live: dict[int, dict]
    entries: dict[int, list[perdure.EntryRecord]]
    tasks: dict[int, perdure.TaskRecord]
    submissions: dict[int, perdure.SubmissionRecord]


async def read_stored(storage, key=KEY):
    """Read an open store. All of the scenario's records fit into one page."""
    conversations = (await storage.scan_conversations(key, perdure.ConversationQuery(), 1_000)).items
    entries, live = {}, {}
    for one in conversations:
        query = perdure.EntryQuery(conversation_id=one.id, order="ascending")
        entries[one.id] = (await storage.scan_entries(key, query, 1_000)).items
        document = await storage.find_document(key, "pi.live", ConversationScope(conversation_id=one.id))
        live[one.id] = (await storage.document(key, document.id)).value
    tasks = (await storage.scan_tasks(key, perdure.TaskQuery(), 1_000)).items
    submissions = (await storage.scan_submissions(key, perdure.SubmissionQuery(), 1_000)).items
    return Stored(_by_id(conversations), live, entries, _by_id(tasks), _by_id(submissions))


def _by_id(records):
    return {record.id: record for record in records}


def messages(entries):
    """The messages of a transcript."""
    return [from_json(value) for entry in entries for value in entry.model or ()]


# --- what must hold


def check_finished(stored, ledger, key=KEY):
    """Whatever happened on the way: all of the work is done, once. Returns how many tickets were interrupted."""
    live = [task.id for task in stored.tasks.values() if task.live]
    assert not live, f"tasks {live} are still alive"
    assert [one.status for one in stored.submissions.values()] == ["done", "done"]
    for entries in stored.entries.values():
        check_calls(messages(entries))
        assert sum(isinstance(message, UserMessage) for message in messages(entries)) == 1
    interrupted = check_tickets(stored, ledger, key)
    root = next(one for one in stored.submissions.values() if one.request_id == REQUEST)
    said = messages(entry for entry in stored.entries[1] if entry.id == root.answer)
    assert [plain_text(message.content) for message in said] == [expected_answer(interrupted)]
    return len(interrupted)


def check_calls(transcript):
    """Every call of an answer that counts is followed by exactly one result before the next answer, and vice versa."""
    open_calls = Counter()
    for message in transcript:
        if isinstance(message, ToolResultMessage):
            assert open_calls[message.tool_call_id] == 1, f"a result without a call, or a second one: {message}"
            del open_calls[message.tool_call_id]
        elif isinstance(message, AssistantMessage) and message.stop_reason not in ("aborted", "error"):
            assert not open_calls, f"no result for {list(open_calls)}"
            open_calls.update(one.id for one in tool_calls(message))
    assert not open_calls, f"no result for {list(open_calls)}"


def check_tickets(stored, ledger, key=KEY):
    """Each ticket is in the ledger at most once, and exactly once when its result says so. Returns interrupted places."""
    filed, results = Counter(ledger), ticket_results(stored)
    assert set(filed) <= {f"{key}:{task}" for task in results}, "the ledger has a key of no call"
    assert all(count == 1 for count in filed.values()), f"filed more than once: {filed}"
    for task, (_, result) in results.items():
        assert was_interrupted(result) or filed[f"{key}:{task}"] == 1, f"task {task} says it filed, the ledger does not"
    return {place for place, result in results.values() if was_interrupted(result)}


def ticket_results(stored):
    """The place and the result message of every call of ``file_ticket``, by task."""
    entries = {entry.id: entry for some in stored.entries.values() for entry in some}
    results = {entry.by_task_id: entry for entry in entries.values() if entry.kind == "pi.tool-result"}
    found = {}
    for task in stored.tasks.values():
        if task.kind == "pi.tool":
            asked = messages([entries[task.input["assistant"]]])[0]
            made = next(one for one in tool_calls(asked) if one.id == task.input["callId"])
            if made.name == "file_ticket":
                found[task.id] = made.arguments["place"], messages([results[task.id]])[0]
    return found
