"""A conversation's history as text."""

import re

import msgspec
import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from perdure.actors.conversation.export import PAGE, exported
from perdure.actors.conversation.markdown import fenced, markdown
from perdure.actors.models import AssistantMessage, Image, Thinking, UserMessage, call, text, to_json
from perdure.storage.records import EntryRecord

from .support import calling, entry, go, history, result, scene, user


async def export(conversation, *format):
    """An export, in one piece."""
    return "".join([piece async for piece in conversation.export(*format)])


def test_json_lines_are_a_header_and_every_entry_as_it_is_stored(storage):
    """Of a fork of a fork, more than a page long."""

    async def main():
        async with scene(storage=storage) as s:
            await s.ask("one")
            fork = await s.root.fork()
            async with fork.commit() as tx:
                for number in range(PAGE + 5):
                    await tx.append("note", data={"number": number})
            second = await fork.fork()
            await (await second.submit("two")).wait()
            header, *lines = (await export(second)).splitlines()
            assert msgspec.json.decode("[" + ",".join(lines) + "]", type=list[EntryRecord]) == await history(second)
            head = msgspec.json.decode(header)
            assert (head["format"], head["version"], head["session"]) == ("perdure.conversation", 1, "s")
            assert head["conversation"]["id"] == second.id
            assert [one["id"] for one in head["ancestry"]] == [fork.id, s.root.id]
            assert len(lines) > PAGE

    go(main)


def test_an_export_is_what_there_was_when_it_began(storage):
    """It is read page by page, while the conversation goes on."""

    async def main():
        async with scene(storage=storage) as s:
            await s.ask("one")
            before = await history(s.root)
            pieces = s.root.export()
            await anext(pieces)
            await s.ask("two")
            assert [msgspec.json.decode(one, type=EntryRecord) async for one in pieces] == before

    go(main)


class Counting:
    """A store that counts the pages of entries that are read."""

    def __init__(self, inner):
        self.inner, self.pages = inner, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def scan_entries(self, session, query, limit, cursor=None):
        page = await self.inner.scan_entries(session, query, limit, cursor)
        self.pages.append(len(page.items))
        return page


def test_an_export_holds_one_page_however_long_the_history_is():
    """P10: a page is read when the one before has been taken."""

    async def main():
        async with scene(storage=perdure.MemoryStorage()) as s:
            async with s.root.commit() as tx:
                for number in range(3 * PAGE):
                    await tx.append("note", data=number)
            store = Counting((await s.session._core()).storage)
            taken = 0
            async for _ in exported(store, "s", s.root.id, "markdown"):
                assert sum(store.pages[1:]) <= taken + PAGE
                taken += 1
            assert taken > 3 * PAGE
            assert len(store.pages) >= 4
            assert max(store.pages) == PAGE

    go(main)


def test_what_cannot_be_exported_is_refused(storage):
    """P11."""

    async def main():
        async with scene(storage=storage) as s:
            with pytest.raises(perdure.InvalidValue, match="pdf"):
                await export(s.root, "pdf")
            with pytest.raises(perdure.UnknownRecord):
                await export(perdure.Conversation(s.system.services, "s", 77))

    go(main)


def test_markdown_tells_who_said_what_with_calls_and_results():
    async def main():
        @perdure.tool(replay="safe")
        async def look(at: str) -> str:
            """Look at something."""
            return f"seen {at}"

        async with scene(calling(call("look", at="the door")), tools=[look]) as s:
            await s.ask("go and look")
            said = await export(s.root, "markdown")
        titles = re.findall(r"^## (\w[\w ]*)", said, re.MULTILINE)
        assert [one.strip() for one in titles if "System" not in one] == [
            "User",
            "Assistant",
            "Tool result of",
            "Assistant",
        ]
        assert said.startswith("# Conversation 1 of session `s`\n")
        for part in ("go and look", "Calls `look`", '"at": "the door"', "Tool result of `look`", "seen the door"):
            assert part in said

    go(main)


def test_thinking_is_folded_a_picture_is_named_and_a_summary_says_what_it_replaces():
    picture = Image(data="AAAA", mime_type="image/png")
    answer = AssistantMessage(content=[Thinking(thinking="hm\n\n</details>"), text("well")])
    said = markdown(entry(3, UserMessage(content=[text("see"), picture]), answer, result("c")))
    assert "*(image `image/png`, 3 bytes)*" in said
    assert "<details><summary>Thinking</summary>\n\n```text\nhm\n" in said
    summary = markdown(entry(9, user("in short"), head=4, kind="pi.compaction"))
    assert summary.startswith("\n## Summary (entry 9)\n")
    assert "everything before entry 4" in summary


@given(st.text(st.sampled_from("`~ \n\r>#<-a")))
def test_no_content_breaks_its_fence(content):
    """Whatever was said, a Markdown parser finds one block of code with exactly that, and what follows is as it was."""
    after = MarkdownIt().parse(fenced(content) + "\n## Next\n")
    assert [one.type for one in after] == ["fence", "heading_open", "inline", "heading_close"]
    normal = re.sub("\r\n?", "\n", content)
    assert after[0].content == (normal if normal.endswith("\n") else normal + "\n")


@given(st.text(st.sampled_from("`*[<\n ab\x1b")))
def test_no_name_breaks_its_heading(name):
    """Names come from outside, too."""
    message = to_json(result("c", name=name))
    parsed = MarkdownIt().parse(markdown(EntryRecord(id=2, conversation_id=1, kind="x", model=[message])))
    assert [one.type for one in parsed if one.type != "inline"] == ["heading_open", "heading_close", "fence"]
    assert {one.type for one in parsed[1].children} == {"text", "code_inline"}
