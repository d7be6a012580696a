import asyncio
import re

import perdure
import pytest
from perdure.actors.models import ToolResultMessage, UserMessage, call, current_tools, plain_text
from perdure.actors.tools import search_history as module
from perdure.actors.tools.history_index import HistoryIndex

from ..conversation.support import MODEL, go, history, problems, scene, seen

CITED = re.compile(r"\[conversation (\d+), entry (\d+)\] user: ([^\n]*)")


class Library:
    """An agent that asks what it is told to, and a searcher that looks for it and repeats the first thing a user said."""

    def __init__(self):
        self.held = asyncio.Event()
        self.held.set()
        self.found = []

    async def brain(self, request):
        last = request.messages[-1]
        said = plain_text(last.content)
        if any(one.name == module.FIND for one in current_tools(request.messages)):
            return await self.searcher(last, said)
        if isinstance(last, UserMessage):
            return call("search_history", question=said[1:]) if said.startswith("?") else f"noted: {said}"
        return said

    async def searcher(self, last, said):
        await self.held.wait()
        if isinstance(last, UserMessage):
            return call(module.FIND, question=said)
        assert isinstance(last, ToolResultMessage)
        self.found.append(said)
        hit = CITED.search(said)
        return f"It was {hit[3]!r} [conversation {hit[1]}, entry {hit[2]}]" if hit else "nothing was said"

    def scene(self, **options):
        extensions = [perdure.search_history(), *options.pop("extensions", [])]
        return scene(self.brain, extensions=extensions, **options)


async def say(conversation, *texts):
    for text in texts:
        await (await conversation.submit(text)).wait()


async def other(s):
    return await s.session.create_conversation(agent=perdure.Agent(model=MODEL))


def test_what_was_said_in_one_conversation_is_found_and_cited_from_another(storage):
    async def main():
        async with Library().scene(storage=storage) as s:
            there = await other(s)
            await say(there, "good morning", "The ship is called Argo.", "thanks")
            [entry] = [one for one in await history(there) if "Argo" in str(one.model) and one.kind == "pi.user"]
            answer = (await s.ask("?what is the ship called")).text
            assert answer == f"It was 'The ship is called Argo.' [conversation {there.id}, entry {entry.id}]"
            result = await result_entry(s.root)
            details = result.model[0]["details"]
            assert details["citations"] == [{"conversationId": there.id, "entryId": entry.id}]
            child = await s.session.conversation(details["conversationId"])
            assert len(await history(child)) > 3
            assert problems((await s.root.context()).messages) == []

    go(main)


async def result_entry(conversation):
    """The newest result of a call."""
    found = [one for one in await history(conversation) if one.model and one.model[0]["role"] == "toolResult"]
    return found[-1]


def test_only_the_answer_reaches_the_asking_conversation():
    async def main():
        async with Library().scene() as s:
            there = await other(s)
            await say(there, "The ship is called Argo.", "It was built of oak in Pagasae.")
            await s.ask("?ship")
            assert "Pagasae" not in str(await history(s.root))

    go(main)


def test_a_search_finds_neither_its_own_conversation_nor_what_earlier_searches_found():
    async def main():
        library = Library()
        async with library.scene() as s:
            there, third = await other(s), await other(s)
            await say(there, "The ship is called Argo.")
            await say(s.root, "I wonder about the ship.", "?ship", "?ship")
            await say(third, "?ship")
            for found in library.found:
                assert set(CITED.findall(found)) <= set(CITED.findall(library.found[0])) | {
                    (str(s.root.id), entry, said) for _, entry, said in CITED.findall(found)
                }
                assert "It was" not in found.replace("assistant: It was", "")
            first, second, from_third = library.found
            assert f"conversation {s.root.id}," not in first
            assert first == second
            assert f"conversation {third.id}," not in from_third
            assert "I wonder about the ship." in from_third
            assert "result of" not in from_third

    go(main)


def test_a_fork_of_a_search_is_a_search():
    async def main():
        library = Library()
        async with library.scene() as s:
            await say(await other(s), "The ship is called Argo.")
            await s.ask("?ship")
            child = (await result_entry(s.root)).model[0]["details"]["conversationId"]
            fork = await (await s.session.conversation(child)).fork()
            await fork.write("note", model=[{"role": "user", "content": "ship ship ship", "timestamp": 0}])
            await s.ask("?ship")
            assert library.found[0] == library.found[1]

    go(main)


def test_what_a_fork_shares_with_the_asking_conversation_is_its_own():
    async def main():
        library = Library()
        async with library.scene() as s:
            await say(s.root, "The ship is called Argo.")
            fork = await s.root.fork()
            await say(fork, "The captain is Jason.")
            await say(s.root, "The ship has sunk.")
            await say(fork, "?ship captain")
            assert "Argo" not in library.found[0]
            assert "Jason" not in library.found[0]
            assert f"[conversation {s.root.id}, " in library.found[0]
            assert "sunk" in library.found[0]
            await say(s.root, "?captain")
            assert "Jason" in library.found[1]
            assert "Argo" not in library.found[1]

    go(main)


def test_another_sessions_conversations_are_not_searched():
    async def main():
        library = Library()
        async with library.scene() as s:
            strange = await (await s.system.session("strange")).root(agent=perdure.Agent(model=MODEL))
            await say(strange, "The ship is called Argo.")
            assert (await s.ask("?ship")).text == "nothing was said"

    go(main)


class Keeper(perdure.Task[None, None], name="test.keeper"):
    """Owns a conversation in which something was said."""

    class Begin(perdure.Phase):
        pass

    async def begin(self, run, state):
        async with run.commit() as tx:
            child = await tx.create_conversation(owner=run.id)
            model = [{"role": "user", "content": "the cargo is a fleece", "timestamp": 0}]
            await tx.append("note", model=model, conversation_id=child.id)
            tx.complete()


def test_a_subagents_conversation_is_searched_too():
    async def main():
        library = Library()
        async with library.scene(extensions=[perdure.Extension(name="k", tasks=[Keeper])]) as s:
            async with s.root.commit() as tx:
                task = await tx.create_task(Keeper)
            await task.settled()
            await s.ask("?cargo")
            assert "fleece" in library.found[0]

    go(main)


def test_citations_that_are_not_there_are_pointed_out():
    async def main():
        class Liar(Library):
            async def searcher(self, last, said):
                return "It sank [conversation 1, entry 99999] and [conversation 77777777777777777777, entry 3]."

        async with Liar().scene() as s:
            answer = (await s.ask("?ship")).text
            assert "cites conversation 1, entry 99999, which is not there" in answer
            assert (await result_entry(s.root)).model[0]["details"]["citations"] == []

    go(main)


def test_the_searchers_tools_are_offered_to_nobody_else():
    async def main():
        library, asked = Library(), []

        async def brain(request):
            asked.append({one.name for one in current_tools(request.messages)})
            return await library.brain(request)

        async with scene(
            brain, extensions=[perdure.search_history(), perdure.Extension(name="x", tools=[perdure.subagent()])]
        ) as s:
            await say(await other(s), "The ship is called Argo.")
            await s.ask("?ship")
            assert asked[0] == {"search_history", "subagent"}
            assert asked[2] == {module.FIND, module.READ}

    go(main)


def test_a_searcher_reads_around_what_it_has_found():
    async def main():
        library = Library()

        async def searcher(last, said):
            if isinstance(last, UserMessage):
                return call(module.FIND, question=said)
            hit = CITED.search(said)
            if last.tool_name == module.FIND:
                return [
                    call(module.READ, "a", conversation=int(hit[1]), entry=int(hit[2])),
                    call(module.READ, "b", conversation=1, entry=int(hit[2])),
                ]
            return said

        library.searcher = searcher
        async with library.scene() as s:
            await say(await other(s), "First.", "The ship is called Argo.", "Last.")
            answer = (await s.ask("?ship")).text
            assert "there is no entry" in answer
            child = await s.session.conversation((await result_entry(s.root)).model[0]["details"]["conversationId"])
            read = str(await history(child))
            assert "First." in read
            assert "Last." in read

    go(main)


@pytest.mark.parametrize("who", ["session:s", "storage", "sessions"])
def test_whoever_is_killed_a_search_goes_on_in_the_same_conversation(who):
    """P6, B040: a safe call that runs again finds its subagent and asks once."""

    async def main():
        library = Library()
        async with library.scene() as s:
            await say(await other(s), "The ship is called Argo.")
            library.held.clear()
            waiting = await s.root.submit("?ship")
            await seen(s.root, lambda v: v["docs"]["pi.live"].get("tools"))
            before = (await s.session.conversations()).items
            while len(before) < 3:
                before = (await s.session.conversations()).items
                await asyncio.sleep(0)
            assert s.system.kill(who)
            library.held.set()
            while True:
                try:
                    assert "Argo" in (await waiting.wait()).text
                    break
                except perdure.SessionFailed:
                    await asyncio.sleep(0)
            assert len((await s.session.conversations()).items) == len(before)
            child = await s.session.conversation((await result_entry(s.root)).model[0]["details"]["conversationId"])
            assert len([one for one in await history(child) if one.kind == "pi.user"]) == 1

    go(main)


def test_an_abort_ends_the_search_and_drops_its_index(monkeypatch):
    async def main():
        closed = []
        monkeypatch.setattr(
            module.HistoryIndex, "close", lambda self, c=HistoryIndex.close: (closed.append(1), c(self))
        )
        library, reached = Library(), asyncio.Event()

        async def searcher(last, said):
            if isinstance(last, UserMessage):
                return call(module.FIND, question=said)
            reached.set()
            return await asyncio.Event().wait()

        library.searcher = searcher
        async with library.scene() as s:
            await say(await other(s), "The ship is called Argo.")
            await s.root.submit("?ship")
            await reached.wait()
            assert closed == []
            await s.root.abort()
            assert closed == [1]
            assert await s.session.tasks() == []

    go(main)


def test_without_full_text_search_parts_of_words_are_searched(monkeypatch):
    async def main():
        monkeypatch.setattr(module, "HistoryIndex", lambda: HistoryIndex(full_text=False))
        async with Library().scene() as s:
            await say(await other(s), "The ship is called Argo.")
            assert "Argo" in (await s.ask("?ship")).text

    go(main)
