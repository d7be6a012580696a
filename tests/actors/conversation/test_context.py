from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.actors.conversation.context import active_range, derive
from perdure.actors.models import AssistantMessage, Image, SystemMessage, ToolResultMessage, UserMessage, plain_text
from perdure.storage.records import ContextEdit, EntryRecord

from .support import entry, omit, problems, replace, result, said, system, user


def messages(*entries):
    return derive(entries).messages


def texts(*entries):
    return [plain_text(message.content) for message in messages(*entries)]


# --- what stays out


def test_unfinished_answers_stay_in_the_transcript_and_out_of_the_context():
    """CX-02."""
    entries = [
        entry(1, user()),
        *(entry(2 + i, said("part", stop=stop)) for i, stop in enumerate(("aborted", "error", "deferred", "pending"))),
    ]
    view = derive(entries)
    assert view.messages == [user()]
    assert view.entries == entries


def test_an_answer_that_ran_into_its_length_limit_stays():
    """CX-02."""
    assert messages(entry(1, user()), entry(2, said("long", stop="length")))[-1] == said("long", stop="length")


def test_the_calls_of_an_aborted_answer_are_gone_with_their_results():
    assert messages(entry(1, user()), entry(2, said(("t", "a"), stop="aborted")), entry(3, result("a"))) == [user()]


def test_an_entry_without_messages_contributes_nothing_and_is_listed():
    view = derive([entry(1, user()), entry(2)])
    assert view.messages == [user()]
    assert [len(one) for one in view.contributions] == [1, 0]


# --- heads


def test_a_self_head_begins_the_view():
    """CX-03."""
    marker = entry(2, user("handoff"), head=2)
    view = derive([entry(1, user("old")), marker, entry(3, said("new"))])
    assert view.head == marker
    assert view.entries[0] == marker
    assert [plain_text(message.content) for message in view.messages] == ["handoff", "new"]


def test_a_summary_goes_before_what_it_keeps_and_replaces_the_summary_before_it():
    """CX-04."""
    first, kept, second, tail = (
        entry(2, user("first summary"), head=2),
        entry(3, said("kept")),
        entry(4, user("second summary"), head=3),
        entry(5, user("tail")),
    )
    view = derive([entry(1, user("old")), first, kept, second, tail])
    assert view.entries == [second, kept, tail]


def test_a_summary_that_keeps_entries_from_before_an_older_marker_drops_the_marker():
    """CX-04."""
    older = entry(2, user("older"), head=2)
    newer = entry(4, user("newer"), head=1)
    assert derive([entry(1, user("one")), older, entry(3, user("three")), newer]).entries == [
        newer,
        entry(1, user("one")),
        entry(3, user("three")),
    ]


def test_a_head_between_a_call_and_its_results_leaves_entries_and_no_messages():
    """CX-09."""
    marker, late = entry(2, head=2), entry(3, result("a"))
    view = derive([entry(1, said(("t", "a"))), marker, late])
    assert view.messages == []
    assert view.entries == [marker, late]


def test_without_a_marker_everything_is_active():
    entries = [entry(1, user()), entry(2, said("x"))]
    assert active_range(entries, None) == entries


# --- edits


def test_the_newest_edit_of_an_entry_wins_and_edits_stay_listed():
    """CX-05."""
    entries = [
        entry(1, user("one")),
        entry(2, user("two")),
        replace(3, 1, user("changed")),
        omit(4, 1),
        omit(5, 2),
    ]
    view = derive(entries)
    assert view.messages == []
    assert len(view.entries) == 5


def test_an_edit_can_replace_an_omission():
    """CX-05."""
    assert texts(entry(1, user("one")), omit(2, 1), replace(3, 1, user("again"))) == ["again"]


def test_edits_before_the_active_range_no_longer_apply_and_new_ones_do():
    """CX-06."""
    kept = entry(1, user("kept"))
    edit, marker = replace(2, 1, user("edited")), entry(3, user("summary"), head=1)
    assert texts(kept, edit, marker) == ["summary", "edited"]  # the edit lies in the range that the head keeps
    late = entry(4, user("summary"), head=4)
    assert texts(kept, edit, late, entry(5, user("x"))) == ["summary", "x"]
    target = entry(2, user("target"))
    cut = [entry(1, edits=[ContextEdit(target=2, action="omit")]), target, entry(3, user("summary"), head=2)]
    assert texts(*cut) == ["summary", "target"]  # the edit lies before it
    assert texts(*cut, omit(4, 2)) == ["summary"]


# --- calls and results


def test_results_follow_their_calls_in_call_order():
    arranged = messages(
        entry(1, user()), entry(2, said(("t", "a"), ("t", "b"))), entry(3, result("b", "B")), entry(4, result("a", "A"))
    )
    assert arranged[2:] == [result("a", "A"), result("b", "B")]


def test_a_missing_result_is_an_error_with_the_tools_name():
    """CX-08."""
    asked = AssistantMessage(content=said(("grep", "a")).content, stop_reason="toolUse", timestamp=77)
    [_, _, missing] = messages(entry(1, user()), entry(2, asked))
    assert isinstance(missing, ToolResultMessage)
    assert (missing.tool_call_id, missing.tool_name, missing.is_error) == ("a", "grep", True)
    assert missing.details == {"reason": "missing_result"}
    assert missing.timestamp == 77  # nothing about it depends on when it is derived


def test_a_result_without_its_call_is_dropped():
    assert messages(entry(1, user()), entry(2, result("nobody"))) == [user()]


def test_of_two_results_of_one_call_the_first_counts():
    arranged = messages(entry(1, user()), entry(2, said(("t", "a"))), entry(3, result("a", "1")), entry(4, result("a")))
    assert arranged[2:] == [result("a", "1")]


def test_a_result_that_comes_too_late_is_told_as_news_and_changes_nothing_that_was_sent():
    sent = [entry(1, user()), entry(2, said(("grep", "a"))), entry(3, user("so?")), entry(4, said("no idea"))]
    before, after = messages(*sent), messages(*sent, entry(5, result("a", "found it", "grep")))
    assert after[: len(before)] == before
    [news] = after[len(before) :]
    assert isinstance(news, UserMessage)
    assert "found it" in plain_text(news.content)
    assert "grep" in plain_text(news.content)


def test_a_late_result_that_comes_in_another_round_is_told_behind_that_rounds_results():
    """Nothing that a tool said is lost, and nothing comes between calls and results."""
    sent = [
        entry(1, user()),
        entry(2, said(("grep", "a"))),
        entry(3, user("so?")),
        entry(4, said(("t", "b"), ("t", "c"))),
    ]
    late = [entry(5, result("b")), entry(6, result("a", "found it", "grep")), entry(7, result("c"))]
    arranged = messages(*sent, *late)
    assert arranged[5:7] == [result("b"), result("c")]
    assert "found it" in plain_text(arranged[7].content)
    open_round = messages(*sent, *late[:2])
    assert open_round[5] == result("b")
    assert open_round[7:] == arranged[7:]


def test_a_late_result_is_told_once_and_with_its_pictures():
    picture = Image(data="aGk=", mime_type="image/png")
    late = ToolResultMessage(tool_call_id="a", tool_name="t", content=[picture])
    sent = [entry(1, user()), entry(2, said(("t", "a"))), entry(3, user("so?")), entry(4, late)]
    [*_, news] = messages(*sent, entry(5, result("a", "again")))
    assert news.content[1:] == [picture]
    assert plain_text(news.content).endswith("(no text)")


def test_equal_ids_in_one_message_keep_their_own_results():
    """B095: as in old transcripts; new answers get ids of their own."""
    asked = entry(2, said(("t", "x"), ("t", "x")))
    arranged = messages(entry(1, user()), asked, entry(3, result("x", "first")), entry(4, result("x", "second")))
    assert arranged[2:] == [result("x", "first"), result("x", "second")]
    assert messages(entry(1, user()), asked, entry(3, result("x", "first")))[3].details == {"reason": "missing_result"}


def test_an_id_that_a_later_message_uses_again_belongs_to_the_later_call():
    """B095."""
    arranged = messages(
        entry(1, user()),
        entry(2, said(("t", "x"))),
        entry(3, result("x", "first")),
        entry(4, said(("t", "x"))),
        entry(5, result("x", "second")),
    )
    assert arranged[2] == result("x", "first")
    assert arranged[4] == result("x", "second")


def test_a_change_of_prompt_in_a_round_waits_for_the_rounds_end():
    arranged = messages(
        entry(1, user()), entry(2, said(("t", "a"))), entry(3, system(rule="new")), entry(4, result("a"))
    )
    assert arranged[2:] == [result("a"), system(rule="new")]


# --- the prompt's place


def test_a_system_message_that_only_users_precede_goes_first():
    """CX-11."""
    entries = [entry(1, user("a")), entry(2, user("b")), entry(3, system(rule="r")), entry(4, said("x"))]
    view = derive(entries)
    assert view.messages == [system(rule="r"), user("a"), user("b"), said("x")]
    assert view.entries == entries


def test_a_system_message_after_an_answer_stays_where_it_is():
    """CX-11."""
    arranged = messages(entry(1, user()), entry(2, said("x")), entry(3, system(rule="r")))
    assert arranged[-1] == system(rule="r")


def test_what_is_dropped_does_not_keep_the_prompt_from_going_first():
    """CX-11: a result whose call a head has cut away is no message."""
    arranged = messages(entry(1, user("summary"), head=1), entry(2, result("cut away")), entry(3, system(rule="r")))
    assert arranged == [system(rule="r"), user("summary")]


# --- for every history

EXAMPLES = settings(derandomize=True, deadline=None, max_examples=80)
IDS = st.sampled_from(["a", "b", "c"])
STOPS = st.sampled_from(["stop", "stop", "length", "aborted", "error", "deferred", "pending"])


@st.composite
def answers(draw):
    calls = draw(st.lists(IDS, max_size=3, unique=True))
    blocks = [*draw(st.lists(st.just("text"), max_size=1)), *(("t", one) for one in calls)]
    return said(*blocks, stop=draw(STOPS)) if blocks else said("nothing", stop=draw(STOPS))


MESSAGES = st.one_of(
    st.builds(user, st.sampled_from(["hi", "well"])),
    answers(),
    answers(),
    st.builds(result, IDS),
    st.builds(result, IDS),
    st.builds(lambda: system(rule="r")),
)


@st.composite
def histories(draw, *, edits: bool = True, heads: bool = True):
    entries: list[EntryRecord] = []
    for at in range(1, draw(st.integers(0, 14)) + 1):
        said_here = draw(st.lists(MESSAGES, max_size=2))
        targets = st.integers(1, at)
        edit = None
        if edits and draw(st.integers(0, 5)) == 0:
            new = draw(st.lists(MESSAGES, max_size=2))
            edit = [replace(0, draw(targets), *new).edits[0] if new else omit(0, draw(targets)).edits[0]]
        head = draw(targets) if heads and draw(st.integers(0, 7)) == 0 else None
        entries.append(entry(at, *said_here, head=head, edits=edit))
    return entries


@EXAMPLES
@given(histories())
def test_every_history_gives_a_context_that_a_strict_provider_accepts(entries):
    """B055, B089, and the first property of conversations in the design: no provider can refuse it."""
    assert problems(derive(entries).messages) == []


@EXAMPLES
@given(histories())
def test_a_context_follows_from_the_active_range_alone(entries):
    """CX-12: what is kept in memory is the active range, and it is enough."""
    view = derive(entries)
    assert derive(view.entries).messages == view.messages


@EXAMPLES
@given(histories(edits=False, heads=False))
def test_what_was_answered_once_is_a_prefix_for_good(entries):
    """The second property: between heads and edits a longer transcript's request begins with the shorter one's."""
    for at, one in enumerate(entries):
        answered = [m for m in derive([one]).messages[:1] if isinstance(m, AssistantMessage)]
        if answered and one.model is not None and one.model[0]["role"] == "assistant":
            request = derive(entries[:at]).messages
            assert derive(entries).messages[: len(request)] == request


@EXAMPLES
@given(histories())
def test_deriving_twice_gives_equal_contexts(entries):
    assert derive(entries) == derive(list(entries))


def test_the_judge_finds_what_is_wrong():
    assert problems([said(("t", "a")), user()])
    assert problems([said(("t", "a"), ("t", "b")), result("b"), result("a")])
    assert problems([user(), result("a")])
    assert problems([user(), SystemMessage(content="late")])
    assert problems([user(), said("x", stop="aborted")])
    assert problems([user(), said(("t", "a")), result("a"), user()]) == []
