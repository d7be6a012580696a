"""What a search of history costs: making its index, and each question, in a session of many conversations.

    python tests/bench/bench_search.py [conversations]

The index is made once for each search, by its first question, and dropped with it. "longest hold" is the longest time in which
nothing else could run on the loop meanwhile.
"""

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

import perdure
from perdure.actors.models import UserMessage, call, current_tools, plain_text
from perdure.actors.tools import search_history as module
from perdure.actors.tools.history_index import HistoryIndex

CONVERSATIONS, ENTRIES = 1_000, 100
WORDS = [f"w{number:04}" for number in range(5_000)]
LENGTH = 30
"""Words in an entry."""


def brain(request):
    last = request.messages[-1]
    if any(one.name == module.FIND for one in current_tools(request.messages)):
        questions = {plain_text(m.content) for m in request.messages if isinstance(m, UserMessage)}
        return call(module.FIND, question=questions.pop()) if isinstance(last, UserMessage) else "found"
    return call("search_history", question="w0042 w1234") if isinstance(last, UserMessage) else "done"


async def fill(session, conversations):
    rng = random.Random(9)
    for _ in range(conversations):
        async with session.commit() as tx:
            record = await tx.create_conversation()
            for _ in range(ENTRIES):
                said = {"role": "user", "content": " ".join(rng.choices(WORDS, k=LENGTH)), "timestamp": 0}
                await tx.append("note", model=[said], conversation_id=record.id)


async def main() -> None:
    conversations = int(sys.argv[1]) if len(sys.argv) > 1 else CONVERSATIONS
    costs: dict[str, float] = {}
    longest = 0.0

    async def timed(ctx, make=module.make_index):
        began, busy = time.perf_counter(), time.process_time()
        index = await make(ctx)
        costs["index made"] = time.perf_counter() - began
        costs["  of the processor"] = time.process_time() - busy
        return index

    def find(self, question, limit, find=HistoryIndex.find):
        began = time.perf_counter()
        found = find(self, question, limit)
        costs[f"{len(found)} passages found"] = time.perf_counter() - began
        return found

    async def watch_loop():
        nonlocal longest
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began)

    module.make_index = timed
    HistoryIndex.find = find
    with tempfile.TemporaryDirectory() as folder:
        options = {"models": [perdure.ScriptedModel(brain)], "extensions": [perdure.search_history()]}
        async with perdure.System.open(Path(folder) / "s.db", durability="process", **options) as system:
            session = await system.session("s")
            root = await session.root(agent=perdure.Agent(model="scripted/model"))
            await fill(session, conversations)
            watcher = asyncio.ensure_future(watch_loop())
            await (await root.submit("search")).wait()
            watcher.cancel()
    print(f"{conversations:,} conversations, {conversations * ENTRIES:,} entries of {LENGTH} words:")
    for what, seconds in costs.items():
        print(f"  {what:24} {seconds * 1_000:9.1f} ms")
    print(f"  {'longest hold of the loop':24} {longest * 1_000:9.1f} ms")


asyncio.run(main())
