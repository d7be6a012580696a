"""The process that test_kill9.py kills; mail_worker.py is another one like it.

It imports everything once and then forks a life for each order that it reads, a line of JSON, so that a life costs its
run and not an interpreter. It answers with the life's pid at its beginning, and with its exit status at its end.
"""

import asyncio
import json
import os
import sys
import time
import traceback

import scenario
import structlog


class Diary:
    """What a life has seen and done, each line on the disk before the life goes on."""

    def __init__(self, path):
        self._file = open_lines(path)

    def write(self, event, **facts):
        append_line(self._file, json.dumps({"event": event, **facts}))


def open_lines(path):
    """Open a file to append lines to it, without the one that the last life was killed over."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    held = os.pread(file, os.fstat(file).st_size, 0)
    os.ftruncate(file, held.rfind(b"\n") + 1)
    return file


def append_line(file, line):
    os.write(file, line.encode() + b"\n")
    os.fsync(file)


class Life:
    """One opening of the store, up to the answer or to its sudden end."""

    def __init__(self, order):
        self.order = order
        self.diary = Diary(order["diary"])
        self.ledger = open_lines(order["ledger"])
        self.watched = {}

    async def run(self):
        born = time.perf_counter()
        tools = scenario.extension(self._look, self._file_ticket, seconds=0.15)
        durability = self.order["durability"]
        async with scenario.open_system(
            self.order["store"], tools, tokens_per_second=200, durability=durability
        ) as system:
            self.diary.write("opened", ms=(time.perf_counter() - born) * 1_000)
            self.session = await system.session(scenario.KEY)
            await self._watch(await self.session.root(agent=scenario.AGENT))
            submission = await scenario.submit(system)
            self._note_submission(await submission.status())
            settled = await submission.wait()
            self._note_submission(settled.record, settled.answer and settled.answer.text)

    def _look(self, key):
        self.diary.write("looked", key=key)

    def _file_ticket(self, key):
        append_line(self.ledger, key)

    def _note_submission(self, record, answer=None):
        self.diary.write("submission", id=record.id, status=record.status, answer=answer)

    async def _watch(self, conversation):
        self.watched[conversation.id] = watch = await conversation.watch()
        await self._note_view(watch.value)
        watch.start(lambda view, ops: self._note_view(view))

    async def _note_view(self, view):
        """Write a view down; watch the conversations of subagents as soon as it names them."""
        self.diary.write("view", view=view)
        for slot in view["docs"]["pi.live"].get("tools", ()):
            child = (slot.get("details") or {}).get("conversationId")
            if child is not None and child not in self.watched:
                await self._watch(await self.session.conversation(child))


def live(life, order):
    try:
        asyncio.run(life(order).run())
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(life):
    """Fork a ``life(order)`` for each order; its coroutine ``run`` is what the life does."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            live(life, json.loads(line))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    _ = [tool.spec for tool in scenario.extension(print, print).tools]  # loads what makes schemas, once for all lives
    main(Life)
