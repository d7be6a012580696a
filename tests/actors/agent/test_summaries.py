import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.agent.summaries import (
    MAX_GIVEN,
    OPENING,
    CompactionPlan,
    Decline,
    Summary,
    blocks,
    newest_instruction,
    piece,
    request_messages,
    summary_model,
    summary_of,
    why_none,
)
from perdure.actors.conversation.context import derive
from perdure.actors.conversation.cutting import range_before
from perdure.actors.models import (
    AssistantMessage,
    Image,
    SystemMessage,
    Thinking,
    UserMessage,
    call,
    error_info,
    from_json,
    plain_text,
    text,
    to_json,
)
from perdure.storage.records import EntryRecord

from ..conversation.support import entry, result, said, system, user


def answer(*content, stop="stop", error=None):
    return AssistantMessage(content=list(content), stop_reason=stop, error=error)


# --- the record


def test_a_transcript_is_written_down_by_roles():
    """CO-08."""
    messages = [
        system(a="1"),
        user("do it"),
        AssistantMessage(content=[Thinking(thinking="hm"), text("I will"), call("look", "c1", at="<a>", n=[1])]),
        result("c1", "seen"),
        said("done"),
    ]
    assert blocks(messages) == [
        "[User]: do it",
        "[Assistant thinking]: hm",
        "[Assistant]: I will",
        '[Assistant tool calls]: look(at="<a>", n=[1])',
        "[Tool result]: seen",
        "[Assistant]: done",
    ]


def test_a_long_result_is_cut_with_a_count_of_the_rest():
    """CO-08."""
    [block] = blocks([result("c1", "r" * 5_000)])
    assert block == "[Tool result]: " + "r" * 2_000 + "\n[... 3,000 more characters]"


def test_a_picture_is_named_and_what_says_nothing_is_left_out():
    picture = Image(data="AAAA", mime_type="image/png")
    assert blocks([UserMessage(content=[text("see"), picture]), said(" ")]) == ["[User]: see\n(picture)"]


def test_a_piece_takes_whole_blocks_and_at_least_one():
    """B128."""
    record = ["a" * 100, "b" * 100, "c" * 100]
    assert piece(record, 0, 1_000) == ("\n\n".join(record), 3)
    assert piece(record, 0, 60) == ("\n\n".join(record[:2]), 2)
    assert piece(record, 2, 60) == ("c" * 100, 3)


def test_a_single_message_of_three_million_characters_is_shortened_in_its_middle():
    """B128."""
    said_, following = piece(["START" + "x" * 3_000_000 + "END", "next"], 0, 1_000)
    assert following == 1
    assert said_.startswith("START")
    assert said_.endswith("END")
    assert "characters left out" in said_
    assert len(said_) < 3_600


@given(st.lists(st.integers(1, 400).map(lambda n: "x" * n), min_size=1, max_size=30), st.integers(1, 200))
def test_pieces_cover_the_whole_record_in_order(record, tokens):
    """B128."""
    begin, covered = 0, 0
    while begin < len(record):
        _, following = piece(record, begin, tokens)
        assert following > begin
        covered += following - begin
        begin = following
    assert covered == len(record)


# --- the request


def test_the_summarizer_is_given_a_record_and_a_task_and_no_tools():
    """CO-08, CO-10: twice the same for the same history."""
    role, asked = request_messages("[User]: a", "", "the numbers")
    assert isinstance(role, SystemMessage)
    assert role.tools_added is None
    assert asked.content.startswith("<conversation>\n[User]: a\n</conversation>")
    assert asked.content.endswith("Additional focus: the numbers")
    assert request_messages("[User]: a", "", "the numbers") == [role, asked]
    assert "Additional focus" not in request_messages("x", "", None)[1].content


def test_the_notes_on_the_piece_before_are_handed_on():
    """B128."""
    assert "<notes>\nso far\n</notes>" in request_messages("x", "so far", None)[1].content


# --- the answer

CALLS = answer(text("notes"), call("look", "c1"), stop="toolUse")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (answer(text("notes"), stop="length"), "cut off"),
        (CALLS, "called a tool"),
        (answer(text("notes"), call("look", "c1")), "called a tool"),
        (answer(), "is empty"),
        (answer(text("")), "is empty"),
        (answer(text(" \n")), "is empty"),
        (answer(Thinking(thinking="hm")), "is empty"),
        (answer(text("notes"), stop="error", error=error_info("server", "down")), "down"),
        (answer(text("notes"), stop="aborted"), "aborted"),
    ],
)
def test_only_a_clean_stop_with_text_and_no_call_is_a_summary(message, why):
    """CO-09, B133."""
    assert summary_of(message) is None
    assert why in why_none(message)


def test_a_summary_is_the_text_of_a_clean_stop():
    """CO-09."""
    assert summary_of(answer(Thinking(thinking="hm"), text(" notes\n"))) == "notes"


# --- the entry


def test_the_summary_is_a_users_message_in_tags():
    [model] = summary_model("notes", None, [], 7)
    message = from_json(model)
    assert (plain_text(message.content), message.timestamp) == (f"{OPENING}\n\n<summary>\nnotes\n</summary>", 7)


def test_running_work_is_listed_as_data_and_the_instruction_follows_word_for_word():
    """B130, B131."""
    summary, instruction = map(from_json, summary_model("notes", user("do it"), [{"taskId": 9, "kind": "x"}], 7))
    assert '<running>\n{"taskId": 9, "kind": "x"}\n</running>' in plain_text(summary.content)
    assert instruction == user("do it")


def instruction(entries, first_kept, tokens=10_000):
    view = derive(entries)
    cut = range_before(view, first_kept)
    return newest_instruction(cut, view.entries[len(cut.entries) :], tokens)


def test_the_newest_instruction_is_carried_on_unless_a_kept_one_follows():
    """B130."""
    entries = [
        entry(1, user("first"), kind="pi.user"),
        entry(2, user("second"), kind="pi.user"),
        entry(3, user("news")),
        entry(4, said("a")),
        entry(5, said("b")),
    ]
    assert instruction(entries, 5) == (2, user("second"))
    assert instruction([*entries, entry(6, user("third"), kind="pi.user")], 5) is None
    assert instruction(entries[2:], 5) is None


def test_an_instruction_is_carried_through_any_number_of_compactions():
    """B130."""
    marker = EntryRecord(
        id=4,
        conversation_id=1,
        kind="pi.compaction",
        model=[to_json(user("summary")), to_json(user("the task"))],
        data={"reason": "threshold", "instruction": 1},
        head=3,
    )
    entries = [entry(1, user("the task"), kind="pi.user"), entry(2, said("a")), entry(3, said("b")), marker]
    entries += [entry(5, said("c")), entry(6, said("d"))]
    assert instruction(entries, 6) == (1, user("the task"))


def test_an_instruction_without_end_is_shortened():
    """B128."""
    _, message = instruction([entry(1, user("x" * 100_000), kind="pi.user"), entry(2, said("a"))], 2, tokens=100)
    assert len(message.content) < 420


# --- what hooks say


def plan():
    return CompactionPlan(reason="manual", entries=[], messages=[], first_kept=1)


def test_a_hooks_summary_is_made_fit_to_be_stored():
    assert plan().decided(Summary(" half \ud83d pair ")) == Summary("half \ufffd pair")
    assert plan().decided(Decline()) == Decline()


@pytest.mark.parametrize("given_", ["text", Summary(""), Summary(" "), Summary("x" * (MAX_GIVEN + 1)), Summary(None)])
def test_what_a_hook_may_not_say_is_refused(given_):
    """B133."""
    with pytest.raises((TypeError, ValueError)):
        plan().decided(given_)
