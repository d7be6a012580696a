import asyncio
from itertools import pairwise

import msgspec
import perdure
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.actors.agent.prompt import changes, plan, wants_baseline
from perdure.actors.agent.registry import Registry
from perdure.actors.conversation.context import derive
from perdure.actors.models import (
    AssistantMessage,
    SystemMessage,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
    call,
    current_sections,
    current_system,
    current_tools,
    from_json,
)

from ..conversation.support import (
    MODEL,
    Faults,
    answering,
    echo,
    entry,
    go,
    history,
    kinds,
    problems,
    said,
    scene,
    user,
)
from .compacting import both, fill, heads, model_of, small


def spec(name, version=1):
    return ToolSpec(name=name, description=f"v{version}", parameters={"type": "object"})


def section(key, render, **options):
    return perdure.Section(key, render, **options)


def prompts(scene):
    """The system messages of the newest request."""
    return [m for m in scene.model.calls[-1].messages if isinstance(m, SystemMessage)]


# --- planning


def test_nothing_is_planned_when_nothing_is_wanted_or_nothing_has_changed():
    """PR-04."""
    assert plan([], {}, [], 1) == []
    first = plan([], {"a": "1"}, [spec("t")], 1)
    assert plan(first, {"a": "1"}, [spec("t")], 2) == []


def test_a_changed_value_is_a_patch_with_null_for_what_is_gone():
    """PR-08."""
    shown = plan([], {"a": "1", "b": "2", "c": "3"}, [], 1)
    assert plan(shown, {"a": "1", "b": "x"}, [], 2) == [SystemMessage(sections={"c": None, "b": "x"}, timestamp=2)]


def test_a_new_section_at_the_end_is_a_patch():
    """PR-08."""
    shown = plan([], {"a": "1"}, [], 1)
    assert plan(shown, {"a": "1", "b": "2"}, [], 2) == [SystemMessage(sections={"b": "2"}, timestamp=2)]


def test_another_order_takes_all_away_and_sets_all_again():
    """PR-08."""
    shown = plan([], {"a": "1", "b": "2"}, [], 1)
    for wanted in ({"b": "2", "a": "1"}, {"c": "3", "a": "1", "b": "2"}):
        assert [m.sections for m in plan(shown, wanted, [], 2)] == [{"a": None, "b": None}, wanted]


def test_tools_ride_on_the_last_message():
    """PR-10."""
    shown = plan([], {"a": "1", "b": "2"}, [spec("t")], 1)
    [first, second] = plan(shown, {"b": "2", "a": "1"}, [spec("t"), spec("u")], 2)
    assert (first.tools_added, second.tools_added) == (None, [spec("u")])


def test_a_changed_declaration_is_removed_and_added_in_one_message():
    """PR-10."""
    shown = plan([], {}, [spec("t"), spec("u")], 1)
    [change] = plan(shown, {}, [spec("t"), spec("u", 2)], 2)
    assert ([t.name for t in change.tools_removed], change.tools_added) == (["u"], [spec("u", 2)])
    assert change.sections is None


def test_a_head_that_keeps_no_prompt_gets_a_complete_one():
    """PR-09."""
    assert plan([UserMessage(content="summary")], {"a": "1"}, [spec("t")], 1) == plan([], {"a": "1"}, [spec("t")], 1)


KEYS = st.sampled_from(["a", "b", "c", "d"])
WANTED = st.tuples(
    st.lists(st.tuples(KEYS, st.sampled_from("123")), max_size=4, unique_by=lambda p: p[0]).map(dict),
    st.lists(st.builds(spec, KEYS, st.integers(1, 2)), max_size=4, unique_by=lambda s: s.name),
)


@settings(derandomize=True, deadline=None, max_examples=120)
@given(st.lists(WANTED, max_size=5))
def test_replaying_what_was_planned_gives_what_was_wanted_in_its_order(steps):
    messages: list = []
    for now, (sections, tools) in enumerate(steps):
        messages += plan(messages, sections, tools, now)
        assert list(current_sections(messages).items()) == list(sections.items())
        assert current_tools(messages) == tools
        assert current_system(messages) == "\n\n".join(sections.values())
        assert plan(messages, sections, tools, now + 1) == []


# --- after heads


def written(entries, planned):
    """A transcript with planned changes written behind it."""
    for change in planned:
        told = [] if change.message is None else [change.message]
        entries = [*entries, entry(entries[-1].id + 1, *told, edits=change.edits or None, kind="pi.system")]
    return entries


STEPS = st.lists(st.tuples(WANTED, st.sampled_from(["turn", "head", "self", "nothing"])), max_size=7)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(STEPS, st.data())
def test_whatever_heads_cut_away_the_prompt_is_what_is_wanted_and_comes_first(steps, data):
    """PR-08, PR-09, PR-10: one complete prompt, once for each head, and nothing of an older one beside it."""
    entries = [entry(1, user())]
    for now, ((sections, tools), step) in enumerate(steps):
        following = entries[-1].id + 1
        if step == "turn":
            entries = [*entries, entry(following, said("a")), entry(following + 1, user())]
        elif step != "nothing":
            target = data.draw(st.sampled_from([one.id for one in derive(entries).entries if one.head is None] or [0]))
            cut = following if step == "self" or not target else target
            entries = [*entries, entry(following, user("summary"), head=cut, kind="pi.compaction")]
        view = derive(entries)
        entries = written(entries, changes(view, sections, tools, now))
        after = derive(entries)
        assert list(current_sections(after.messages).items()) == list(sections.items())
        assert current_tools(after.messages) == tools
        if view.head is not None and wants_baseline(view) and (sections or tools):
            answered = any(one.id > view.head.id for one in view.entries)
            assert isinstance(after.messages[0], SystemMessage) or answered
            assert sum(isinstance(message, SystemMessage) for message in after.messages) == 1
        assert changes(after, sections, tools, now) == []


def test_after_a_compaction_one_complete_prompt_takes_the_place_of_what_it_has_kept_of_older_ones():
    """PR-09: before what is kept; later changes are changes again, and requests grow at their end."""
    texts = {"a": "1", "b": "2"}
    sections = [section(key, lambda given, key=key: texts[key], tag=False) for key in texts]

    async def main():
        async with scene(**small(both(echo)), sections=sections) as s:
            await s.ask("one")
            await fill(s.root, *[400] * 3)
            texts["b"] = "3"
            await s.ask("two")
            done = await s.root.compact()
            assert [one.kind for one in (await s.root.context()).entries].count("pi.system") == 1
            await s.ask("three")
            baseline = (await history(s.root))[-2]
            assert (baseline.kind, [edit.action for edit in baseline.edits]) == ("pi.system", ["omit"])
            [prompt, *rest] = model_of(s).calls[-1].messages
            assert prompt.sections == {"a": "1", "b": "3"}
            assert not any(isinstance(message, SystemMessage) for message in rest)
            texts["a"] = "4"
            await s.ask("four")
            before, after = model_of(s).calls[-2:]
            assert after.messages[: len(before.messages)] == before.messages
            assert after.messages[-1] == SystemMessage(sections={"a": "4"}, timestamp=after.messages[-1].timestamp)
            assert len(heads(await history(s.root))) == 1
            assert done.status == "placed"

    go(main)


def test_a_prompt_that_is_wanted_no_longer_after_a_head_leaves_nothing_of_what_is_kept():
    """PR-09."""
    wanted = ["x"]

    async def main():
        section_ = section("a", lambda given: wanted[0])
        async with scene(**small(both(echo)), sections=[section_]) as s:
            await fill(s.root, *[400] * 4)
            await s.ask("one")
            await s.root.compact()
            wanted[0] = None
            await s.ask("two")
            assert not any(isinstance(message, SystemMessage) for message in model_of(s).calls[-1].messages)
            assert kinds(await history(s.root))[-3:] == ["user", "system", "assistant"]
            await s.ask("three")
            assert kinds(await history(s.root))[-2:] == ["user", "assistant"]

    go(main)


def test_a_section_that_fails_right_after_a_head_keeps_the_text_from_before_it():
    """PR-11: a compaction costs no part of the prompt."""
    failing = []

    def render(given):
        if failing:
            raise RuntimeError("its file is gone")
        return "the rules"

    async def main():
        async with scene(**small(both(echo)), sections=[section("a", render), section("b", "x")]) as s:
            await s.ask("one")
            await fill(s.root, *[400] * 4)
            await s.root.compact()
            failing.append(True)
            await s.ask("two")
            assert current_system(model_of(s).calls[-1].messages) == "<a>\nthe rules\n</a>\n\n<b>\nx\n</b>"
            await (await s.root.reset()).wait()
            await s.ask("three")
            assert "the rules" in current_system(model_of(s).calls[-1].messages)

    go(main)


def test_an_agent_is_resolved_once_for_each_phase(monkeypatch):
    """PR-15: what is installed in the middle of a phase is seen by the next one."""
    resolved = []
    resolve = Registry.resolve

    def counting(self, *given):
        resolved.append(1)
        return resolve(self, *given)

    async def main():
        monkeypatch.setattr(Registry, "resolve", counting)
        async with scene() as s:
            await s.ask("x")
            assert len(resolved) == 2  # prepare, request

    go(main)


# --- sections


def test_a_section_is_wrapped_in_its_tag_unless_it_says_no_and_none_is_left_out():
    """PR-01."""

    async def main():
        sections = [
            section("cwd", "/repo"),
            section("bare", lambda given: "bare text", tag=False),
            section("absent", lambda given: None),
        ]
        async with scene(sections=sections) as s:
            await s.ask()
            [prompt] = prompts(s)
            assert prompt.sections == {"cwd": "<cwd>\n/repo\n</cwd>", "bare": "bare text"}
            assert s.model.calls[0].messages[0] is not None

    go(main)


def test_without_sections_and_tools_there_is_no_system_entry():
    """PR-04."""

    async def main():
        async with scene() as s:
            await s.ask()
            assert kinds(await history(s.root)) == ["user", "assistant"]

    go(main)


def test_sections_read_documents_so_two_conversations_get_their_own_prompts():
    """PR-02."""
    notes: perdure.Doc = perdure.Doc("test.notes", initial=lambda: {"text": "none"})

    async def read(given):
        note = await given.snapshot(notes, given.conversation_id)
        return f"{given.session}: {note['text'] if note else 'nothing'} for {given.agent.model}"

    async def main():
        async with scene(sections=[section("notes", read)]) as s:
            other = await s.session.create_conversation(agent=perdure.Agent(model=MODEL))
            async with s.root.commit() as tx:
                (await tx.doc(notes, s.root.id))["text"] = "mine"
            await s.ask()
            assert "s: mine for scripted/model" in prompts(s)[0].sections["notes"]
            await (await other.submit("x")).wait()
            assert "s: nothing for" in prompts(s)[0].sections["notes"]

    go(main)


def test_instructions_are_the_last_section():
    async def main():
        agent = perdure.Agent(model=MODEL, instructions="be brief")
        async with scene(sections=[section("cwd", "/repo")], agent=agent) as s:
            await s.ask()
            assert list(prompts(s)[0].sections) == ["cwd", "instructions"]

    go(main)


def raising(given):
    raise RuntimeError("no weather today")


def a_number(given):
    return 5


@pytest.mark.parametrize("render", [raising, a_number])
def test_a_section_that_fails_is_left_out_and_the_run_still_answers(render):
    """PR-03."""

    async def main():
        async with scene(sections=[section("weather", render, tag=False)]) as s:
            assert (await s.ask("x")).answer.text == "re: x"
            assert kinds(await history(s.root)) == ["user", "assistant"]
            assert (await s.ask("y")).status == "done"

    go(main)


def test_a_section_that_fails_later_keeps_its_shown_text():
    """PR-11."""

    async def main():
        renders = ["sunny"]
        async with scene(sections=[section("weather", lambda given: renders.pop())]) as s:
            await s.ask()
            before = prompts(s)
            await s.ask()
            assert prompts(s) == before

    go(main)


def test_text_that_is_no_unicode_is_repaired():
    """B104."""

    async def main():
        async with scene(sections=[section("name", "a\ud800b")]) as s:
            await s.ask()
            assert prompts(s)[0].sections["name"] == "<name>\na\ufffdb\n</name>"

    go(main)


# --- in a conversation


def test_only_changes_are_sent_and_requests_grow_at_their_end():
    async def main():
        state = {"text": "one"}
        sections = [section("s", lambda given: state["text"]), section("fixed", "always")]

        @perdure.tool
        def t() -> None:
            """Do."""

        async with scene(sections=sections, tools=[t]) as s:
            await s.ask("1")
            await s.ask("2")
            state["text"] = "two"
            await s.ask("3")
            requests = [request.messages for request in s.model.calls]
            for shorter, longer in pairwise(requests):
                assert longer[: len(shorter)] == shorter
            assert [m.sections for m in prompts(s)] == [
                {"s": "<s>\none\n</s>", "fixed": "<fixed>\nalways\n</fixed>"},
                {"s": "<s>\ntwo\n</s>"},
            ]
            assert problems(requests[-1]) == []

    go(main)


def test_the_planned_entries_and_the_move_to_the_request_are_one_commit_and_its_cutoff_the_newest_of_them():
    """PR-07."""

    async def main():
        storage = Faults(perdure.MemoryStorage())
        asked = asyncio.Event()

        async def brain(request):
            asked.set()
            await asyncio.Event().wait()

        async with scene(brain, sections=[section("a", "1")], storage=storage) as s:
            await s.root.submit("x")
            await asked.wait()
            batches = [batch for group in storage.groups for batch in group]
            [planning] = [b for b in batches if any(getattr(w, "kind", None) == "pi.system" for w in b.writes)]
            [entry] = [w for w in planning.writes if getattr(w, "kind", None) == "pi.system"]
            [task] = [w for w in planning.writes if getattr(w, "kind", None) == "pi.generation"]
            assert task.state.checkpoint["phase"] == "request"
            assert task.state.checkpoint["cutoff"] == entry.id

    go(main)


def test_a_generation_in_an_empty_conversation_is_an_error():
    """PR-07."""
    from perdure.actors.agent.generation import Generation

    async def main():
        async with scene() as s:
            async with s.root.commit() as tx:
                task = await tx.create_task(Generation)
            record = await task.settled()
            assert isinstance(record.state.outcome, perdure.Faulted)
            assert (await s.ask("x")).status == "done"

    go(main)


def test_after_a_head_the_complete_prompt_is_sent_again_and_comes_first():
    """PR-09."""

    async def main():
        async with scene(sections=[section("a", "1")]) as s:
            await s.ask("one")
            async with s.root.commit() as tx:
                summary = msgspec.to_builtins(UserMessage(content="summary"))
                await tx.append("pi.compaction", model=[summary], head="self")
            await s.ask("two")
            messages = s.model.calls[-1].messages
            assert [type(m) for m in messages] == [SystemMessage, UserMessage, UserMessage]
            assert messages[0].sections == {"a": "<a>\n1\n</a>"}

    go(main)


def test_a_change_of_tools_in_mid_run_reaches_the_next_request():
    """B086."""

    async def main():
        @perdure.tool
        def extra() -> str:
            """Do more."""
            return "more"

        @perdure.tool
        async def grow(ctx: perdure.ToolContext) -> str:
            """Install more."""
            ctx.service(perdure.Registry).install(perdure.Extension(name="more", tools=[extra]))
            return "grown"

        async with scene(answering(call("grow"), call("extra"), echo), tools=[grow]) as s:
            assert (await s.ask()).answer.text == "re: more"
            entries = await history(s.root)
            assert kinds(entries) == [
                "user",
                "system",
                "assistant",
                "tool-result",
                "system",
                "assistant",
                "tool-result",
                "assistant",
            ]
            assert [t.name for t in from_json(entries[4].model[0]).tools_added] == ["extra"]
            last = s.model.calls[-1].messages
            assert problems(last) == []
            assert [type(m) for m in last[-4:-1]] == [ToolResultMessage, SystemMessage, AssistantMessage]

    go(main)
