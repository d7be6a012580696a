"""Somebody who watches a system through all of its crashes, and the proof that what was seen had been stored before."""

import asyncio
from contextlib import asynccontextmanager

import perdure
from perdure.actors.chaos.views import view_states
from perdure.storage.faulty import FaultyStorage

from .scenario import KEY


class FaultyStore(FaultyStorage):
    """A storage that fails when it is told to, until it is healed."""

    def heal(self):
        """Fail no more: the run is over, and what follows are the questions of the test."""


class Observer:
    """Sees every publication and every view of one session, over all incarnations of its actors.

    ``storage`` is a FaultyStore: its groups say what is stored at any moment.
    """

    def __init__(self, storage, key=KEY):
        self.storage = storage
        self.key = key
        self.publications = 0
        self.views = {}
        """The views that were shown of each conversation, in order."""
        self.mistakes = []
        """What left the session before it was stored."""
        self._followers = {}

    @asynccontextmanager
    async def watching(self, system):
        """Watch until the end of the block, which raises if anything was published before it was stored."""
        follower = asyncio.ensure_future(self._follow_publications(system))
        try:
            yield self
            await asyncio.sleep(0)
        finally:
            for one in (follower, *self._followers.values()):
                one.cancel()
            await asyncio.gather(follower, *self._followers.values(), return_exceptions=True)
        assert not self.mistakes, self.mistakes[0]

    def stored(self):
        """The session's stored batches by sequence."""
        batches = [batch for group in self.storage.groups for batch in group if batch.session == self.key]
        assert [batch.seq for batch in batches] == list(range(1, len(batches) + 1))
        return batches

    async def _follow_publications(self, system):
        while True:
            ended = asyncio.Event()
            try:
                core = await system.core(self.key)
                core.subscribe(self._published(system), ended.set)
                await self._follow_known(system, core)
            except perdure.SessionFailed:
                continue
            except perdure.SessionClosed:
                return
            await ended.wait()

    async def _follow_known(self, system, core):
        page = await core.storage.scan_conversations(self.key, perdure.ConversationQuery(), 1_000)
        for record in page.items:
            self._follow_conversation(system, record.id)

    def _published(self, system):
        def published(publication):
            self.publications += 1
            batch = next((one for one in self.stored() if one.seq == publication.seq), None)
            if batch is None or any(record not in batch.writes for record in _records(publication)):
                self.mistakes.append(f"published, but not stored: {publication}")
            for record in publication.conversations:
                self._follow_conversation(system, record.id)

        return published

    def _follow_conversation(self, system, conversation):
        if conversation not in self._followers:
            self._followers[conversation] = asyncio.ensure_future(self._follow_views(system, conversation))

    async def _follow_views(self, system, conversation):
        shown = self.views.setdefault(conversation, [])
        while True:
            try:
                watch = await (await (await system.session(self.key)).conversation(conversation)).watch()
            except perdure.SessionFailed:
                continue
            except perdure.SessionClosed:
                return
            shown.append(watch.value)
            async for value, _ops in watch:
                shown.append(value)

    def check_views(self):
        """Every view was a stored state of its conversation, none went back behind an earlier one, nothing shown is lost."""
        for conversation, shown in self.views.items():
            states = list(view_states(self.stored(), conversation))
            at = 0
            for view in shown:
                while at < len(states) and states[at] != view:
                    at += 1
                assert at < len(states), f"conversation {conversation} was shown in a state that was never stored"
                _check_partial(view, states[-1]["entries"])


def _check_partial(view, entries):
    """What was streamed became, or was the beginning of, the entry that came next."""
    partial = view["docs"]["pi.live"].get("generation", {}).get("message")
    if partial is not None:
        following = entries[len(view["entries"])]["model"][0]
        assert _said(following).startswith(_said(partial)), "what was streamed is lost"


def _said(message):
    return "".join(block.get("text", "") for block in message["content"])


def _records(publication):
    return [*publication.conversations, *publication.entries, *publication.tasks, *publication.submissions]
