"""Compaction: a conversation that outgrows its window is summarized, beside its work and before it, and once by hand."""

from typing import Any

from ...agent.summaries import ROLE
from ...conversation.settings import CompactionPolicy, ProgressPolicy, Settings
from ...models import ModelRequest, SystemMessage
from ...system import System
from ..stored import Stored
from .common import KEY, AgentScenario, asked, check_done, users

PAGES = (2, 1, 2, 1, 1, 1)
"""Their lengths: the third does not fit any more, a later one comes near to that."""
PAGE = "It was a long day, and there is much to tell of it. " * 60


class Compaction(AgentScenario):
    """Turns that are each a good part of the window, then a compaction that somebody asks for."""

    name = "compaction"
    context_window = 5_000

    @property
    def settings(self) -> Settings:
        """Small windows."""
        policy = CompactionPolicy(reserve_tokens=1_000, background_tokens=500, keep_recent_tokens=400)
        return Settings(progress=ProgressPolicy(partial_interval_ms=25), compaction=policy)

    def brain(self, request: ModelRequest) -> Any:
        """Summarize, or answer."""
        first = request.messages[0]
        if isinstance(first, SystemMessage) and first.content == ROLE:
            return "what was said before"
        return f"noted: {asked(request)[:8]}"

    async def run(self, system: System) -> None:
        """Tell everything, page by page."""
        root = await self.root(system)
        for turn, length in enumerate(PAGES):
            await self.ask(root, f"page {turn}: {PAGE * length}", f"page {turn}")
        await root.compact()

    def check(self, stored: Stored) -> None:
        """Every page is stored once, and the context begins with a summary."""
        check_done(stored)
        session = stored[KEY]
        said = [one[:6] for one in users(session)]
        assert said == [f"page {turn}" for turn in range(len(PAGES))], said
        heads = [entry for entry in session.entries[1] if entry.kind == "pi.compaction"]
        assert heads, "nothing was compacted"
        known = {entry.id for entry in session.entries[1]}
        assert all(one.head in known for one in heads), "a summary keeps nothing"
        live = session.of_conversation("pi.live", 1)
        assert live == {}, f"still shown: {live}"
