import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.agent.thresholds import MIN_PIECE, context_size, due, keep_after_overflow, largest, limits
from perdure.actors.conversation.context import derive
from perdure.actors.models import AssistantMessage, Usage, text

from ..conversation.support import entry, said, system, user

POLICY = perdure.CompactionPolicy()


def words(tokens):
    return "x" * int(tokens * 3.5)


def counted(content, total):
    return AssistantMessage(content=[text(content)], usage=Usage(total_tokens=total))


# --- sizes


def test_the_policy_has_the_defaults_that_are_documented():
    """GE-05."""
    assert perdure.Settings().compaction == perdure.CompactionPolicy(
        enabled=True, reserve_tokens=16_384, background_tokens=32_768, keep_recent_tokens=20_000
    )


def test_in_a_large_window_the_sizes_are_those_that_are_set():
    """GE-29, CO-06."""
    sizes = limits(POLICY, 200_000, 64_000)
    assert (sizes.blocking, sizes.background) == (183_616, 150_848)
    assert (sizes.keep, sizes.summary) == (20_000, 13_107)


def test_the_summary_is_no_longer_than_the_model_can_write():
    """CO-06."""
    assert limits(POLICY, 200_000, 4_096).summary == 4_096
    assert limits(POLICY, 200_000, 0).summary == 13_107


def test_a_window_that_is_not_known_has_no_thresholds():
    """GE-29."""
    sizes = limits(POLICY, 0, 0)
    assert (sizes.blocking, sizes.background) == (None, None)
    assert due(POLICY, sizes, derive([entry(1, user(words(10**6)))]), []) is None


def test_no_allowance_means_no_background_compaction():
    """GE-29."""
    assert limits(perdure.CompactionPolicy(background_tokens=0), 200_000, 0).background is None


@given(st.integers(4_000, 2_000_000), st.integers(0, 200_000))
def test_in_any_window_one_compaction_is_enough(window, max_tokens):
    """B121: what is kept and its summary stay below the size at which it would be compacted again."""
    sizes = limits(POLICY, window, max_tokens)
    assert sizes.keep + sizes.summary < sizes.background <= sizes.blocking < window
    assert sizes.piece >= MIN_PIECE
    assert sizes.piece + sizes.summary < window


# --- how large a context is


def test_the_size_is_what_was_reported_last_with_what_came_later_and_is_planned():
    """CO-16."""
    view = derive([entry(1, user(words(500))), entry(2, counted("a", 7_000)), entry(3, user(words(100)))])
    assert context_size(view) == 7_100
    assert context_size(view, [system(a=words(50))]) == 7_150


def test_an_answer_from_before_the_head_says_nothing_about_what_is_left():
    """CO-16: it still counts what the summary has replaced; by entries, not by clocks."""
    entries = [entry(1, user("a")), entry(2, counted(words(100), 90_000)), entry(3, user(words(200)), head=2)]
    assert context_size(derive(entries)) == 300
    answered = [*entries, entry(4, user("b")), entry(5, counted("c", 1_234))]
    assert context_size(derive(answered)) == 1_234


def test_an_answer_without_usage_is_estimated_with_everything_else():
    """CO-16."""
    assert context_size(derive([entry(1, user(words(10))), entry(2, said(words(20)))])) == 30
    assert context_size(derive([])) == 0


# --- when


def grown(tokens, report=0):
    """A context of so many tokens in entries of 1,000, or with so many reported."""
    entries = [entry(number, user(words(1_000))) for number in range(1, tokens // 1_000 + 1)]
    return derive([*entries, entry(len(entries) + 1, counted("a", report))])


@pytest.mark.parametrize(
    ("tokens", "when"), [(150_000, None), (151_000, "background"), (183_000, "background"), (184_000, "blocking")]
)
def test_a_request_is_accompanied_or_preceded_by_a_compaction_above_the_thresholds(tokens, when):
    """GE-29."""
    assert due(POLICY, limits(POLICY, 200_000, 0), grown(tokens), []) == when


def test_a_policy_that_is_off_compacts_at_no_size():
    """GE-29."""
    off = perdure.CompactionPolicy(enabled=False)
    assert due(off, limits(off, 200_000, 0), grown(400_000), []) is None


def test_what_no_summary_could_make_smaller_is_not_compacted_again_and_again():
    """B121, B134, GE-29: a prompt that fills the window is not the fault of a short history."""
    sizes = limits(POLICY, 200_000, 0)
    view = derive([entry(1, user("a")), entry(2, user(words(20_000)))])
    assert due(POLICY, sizes, view, [system(a=words(180_000))]) is None
    longer = derive([entry(1, user(words(11_000))), entry(2, user(words(20_000)))])
    assert due(POLICY, sizes, longer, [system(a=words(180_000))]) is None
    assert due(POLICY, sizes, longer, [system(a=words(160_000))]) == "blocking"


def test_after_an_overflow_at_most_half_is_kept_whatever_the_estimate_was():
    """B128: a window that is not known, or a text whose tokens are short."""
    sizes = limits(POLICY, 0, 0)
    assert keep_after_overflow(grown(10_000), sizes) == 5_000
    assert keep_after_overflow(grown(100_000), sizes) == 20_000


def test_the_largest_entry_is_named():
    """B128."""
    assert largest(derive([entry(1, user("a")), entry(2, user(words(300))), entry(3, user("b"))])) == (2, 300)
