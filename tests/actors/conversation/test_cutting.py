from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.conversation.context import derive
from perdure.actors.conversation.cutting import range_before, select_range
from perdure.actors.models import AssistantMessage, SystemMessage, ToolResultMessage, UserMessage, tool_calls

from .support import entry, omit, problems, replace, result, said, system, user


def long(tokens):
    """Text of so many estimated tokens."""
    return "x" * int(tokens * 3.5)


def cut_of(entries, keep):
    cut = select_range(derive(entries), keep)
    return None if cut is None else cut.first_kept


# --- the reference's rules


def test_the_cut_is_the_first_place_at_or_after_the_entry_that_fills_what_is_kept():
    """CO-02: a result of 30,000 tokens fills it, and the answer behind it is the first place for a cut."""
    entries = [
        entry(1, user("read it")),
        entry(2, said(("read", "c1"))),
        entry(3, result("c1", long(30_000))),
        entry(4, said("I have")),
        entry(5, user("and?")),
        entry(6, said("done")),
    ]
    assert cut_of(entries, 20_000) == 4


def test_without_a_place_behind_it_the_cut_is_the_newest_place():
    """CO-02: the newest round is kept with its results."""
    entries = [entry(1, user("a")), entry(2, said(("read", "c1"))), entry(3, result("c1", long(30_000)))]
    assert cut_of(entries, 20_000) == 2


def test_the_entry_that_fills_what_is_kept_is_kept_itself():
    """CO-02."""
    entries = [entry(number, user(long(100))) for number in range(1, 11)]
    assert cut_of(entries, 300) == 8
    assert cut_of(entries, 301) == 7


def test_a_cut_is_never_before_a_result_a_change_of_the_prompt_or_the_head_itself():
    """CO-03."""
    entries = [
        entry(1, user("a")),
        entry(2, user("summary"), head=1),
        entry(3, said(("read", "c1"))),
        entry(4, result("c1", long(10))),
        entry(5, system(a="1")),
        entry(6, user("b")),
    ]
    for keep in (1, 5, 12, 10_000):
        assert cut_of(entries, keep) in (None, 3, 6)
    assert [one.id for one in range_before(derive(entries), 3).entries] == [2, 1]


def test_a_user_entry_that_a_result_still_follows_is_no_place():
    """CO-03: else the result would lose its call."""
    entries = [entry(1, user("a")), entry(2, said(("read", "c1"))), entry(3, user("steer")), entry(4, result("c1"))]
    assert cut_of(entries, 1) == 2


def test_a_result_that_comes_much_later_keeps_everything_between_it_and_its_call_together():
    """CO-03, B131: the reference looks as far as the next answer; here late news keeps its call, too."""
    entries = [
        entry(1, user("a")),
        entry(2, said(("job", "c1"))),
        entry(3, user("b")),
        entry(4, said("c")),
        entry(5, user("d")),
        entry(6, result("c1", "late")),
        entry(7, said("e")),
    ]
    assert cut_of(entries, 1) == 7
    assert cut_of(entries, 4) == 7
    assert cut_of(entries[:6], 1) == 2


def test_there_is_nothing_to_compact_in_a_short_context_or_before_its_first_message():
    """CO-04."""
    entries = [entry(1, user("a")), entry(2, said("b"))]
    assert cut_of(entries, 1_000) is None
    assert cut_of([], 1) is None
    assert cut_of([entry(1, user(long(2_000)))], 1_000) is None
    assert cut_of([entry(1), entry(2, user(long(2_000)))], 1_000) is None
    assert cut_of([entry(1, user("old")), omit(2, 1), entry(3, user(long(2_000)))], 1_000) is None


def test_only_a_prompt_or_a_summary_before_the_cut_is_nothing_to_summarize():
    """CO-04: a summary is not summarized alone, nor the prompt at all."""
    assert cut_of([entry(1, system(a="1")), entry(2, user(long(2_000)))], 1_000) is None
    assert cut_of([entry(1, user("a")), entry(2, user("summary"), head=2), entry(3, user(long(2_000)))], 1_000) is None


def test_what_is_summarized_is_as_later_entries_have_edited_it():
    entries = [entry(1, user("old")), entry(2, user("b")), replace(3, 1, user("new")), entry(4, user(long(100)))]
    cut = select_range(derive(entries), 100)
    assert cut.messages == [user("new"), user("b")]


def test_the_summary_before_is_summarized_again_with_what_came_after_it():
    entries = [
        entry(1, user("a")),
        entry(2, user("b")),
        entry(3, user("summary"), head=2),
        entry(4, said("c")),
        entry(5, user(long(100))),
    ]
    cut = select_range(derive(entries), 100)
    assert [one.id for one in cut.entries] == [3, 2, 4]
    assert cut.messages == [user("summary"), user("b"), said("c")]
    assert cut.new_tokens() == 2


# --- any transcript


@st.composite
def transcripts(draw):
    """Histories with parallel calls, steers in rounds, results in any order or missing, and changes of the prompt."""
    entries = []
    number, calls = 0, 0
    for _ in range(draw(st.integers(1, 8))):
        parts = [user("u" * draw(st.integers(1, 60)))]
        asked = [("t", f"c{calls + n}") for n in range(draw(st.integers(0, 3)))]
        calls += len(asked)
        parts.append(said("a" * draw(st.integers(1, 60)), *asked))
        following = [result(call_id, "r" * draw(st.integers(1, 90))) for _, call_id in asked if draw(st.integers(0, 5))]
        following += draw(st.lists(st.sampled_from([user("steer"), system(a="2")]), max_size=2))
        parts += draw(st.permutations(following))
        for message in parts:
            number += 1
            entries.append(entry(number, message))
    return entries


def answers(view, first_kept):
    """The calls before and the results from a cut on that belong together."""
    before = {
        call.id
        for one, contribution in zip(view.entries, view.contributions, strict=True)
        for message in contribution
        if one.id < first_kept and isinstance(message, AssistantMessage)
        for call in tool_calls(message)
    }
    after = {
        message.tool_call_id
        for one, contribution in zip(view.entries, view.contributions, strict=True)
        for message in contribution
        if one.id >= first_kept and isinstance(message, ToolResultMessage)
    }
    return before & after


@given(transcripts(), st.lists(st.integers(1, 120), min_size=3, max_size=3))
def test_three_compactions_in_a_row_leave_valid_contexts_and_no_result_without_its_call(entries, keeps):
    """B119: wherever it cuts, also through what an earlier compaction has kept."""
    for keep in keeps:
        view = derive(entries)
        cut = select_range(view, keep)
        if cut is None:
            continue
        assert not answers(view, cut.first_kept)
        assert problems([one for one in cut.messages if not isinstance(one, SystemMessage)]) == []
        entries = [*entries, entry(entries[-1].id + 1, user("summary"), head=cut.first_kept)]
        after = derive(entries)
        assert problems(after.messages) == []
        assert isinstance(next(one for one in after.messages if not isinstance(one, SystemMessage)), UserMessage)
        said_before = [message for contribution in view.contributions for message in contribution]
        kept = [message for contribution in after.contributions[1:] for message in contribution]
        assert all(message in said_before for message in kept)


@given(transcripts(), st.integers(1, 200))
def test_a_range_is_found_again_by_its_first_kept_entry(entries, keep):
    view = derive(entries)
    cut = select_range(view, keep)
    if cut is not None:
        assert range_before(view, cut.first_kept) == cut
        kept = [one for one in view.entries if one not in cut.entries]
        assert cut.entries + kept == view.entries
