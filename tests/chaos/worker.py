"""The process that test_kill9.py kills (see lives.py)."""

import time

import scenario
from lives import Diary, append_line, main, open_lines


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


if __name__ == "__main__":
    _ = [tool.spec for tool in scenario.extension(print, print).tools]  # loads what makes schemas, once for all lives
    main(Life)
