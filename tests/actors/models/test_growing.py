"""Views of a growing sequence never change; folds of them cost what is new, and are as if folded whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.models import (
    AssistantMessage,
    SystemMessage,
    ToolRef,
    ToolSpec,
    Usage,
    UserMessage,
    context_tokens,
    current_sections,
    current_system,
    current_tools,
    estimate_tokens,
    text,
)
from perdure.actors.models.growing import MAX_FOLDS, Branch, Growing, folded


class Log:
    """A fold that notes what it was given."""

    def __init__(self, seen=(), given=None):
        self.seen = list(seen)
        self.given = [] if given is None else given

    def add(self, item):
        self.seen.append(item)
        self.given.append(item)

    def fork(self):
        return Log(self.seen, self.given)


def test_a_view_stays_as_it_was_made():
    growing = Growing([1, 2])
    view, longer = growing.view(), growing.view([8, 9])
    growing.items.append(3)
    assert view == [1, 2]
    assert longer == [1, 2, 8, 9]
    assert growing.view() == [1, 2, 3]
    assert [view[0], view[-1], longer[-1], longer[1:3], longer[::-1]] == [1, 2, 9, [2, 8], [9, 8, 2, 1]]
    for beyond in (2, -3):
        with pytest.raises(IndexError):
            view[beyond]


def test_views_are_equal_to_what_holds_equal_items():
    view = Growing([1]).view([2])
    assert view == [1, 2] == view
    assert view == Growing([1, 2]).view()
    assert view != [1]
    assert view != [1, 3]
    assert view != "12"
    assert repr(view) == "[1, 2]"
    assert list(reversed(view)) == [2, 1]
    with pytest.raises(TypeError):
        hash(view)


def test_a_fold_goes_on_where_it_stood():
    growing, log = Growing("ab"), Log()
    assert folded(growing.view("x"), "key", lambda: log).seen == list("abx")
    growing.items.extend("cd")
    assert folded(growing.view("y"), "key", Log).seen == list("abcdy")
    assert log.given == list("abxcdy")  # each once, and the tails of views beside


def test_a_view_of_the_past_is_folded_by_itself_and_spoils_nothing():
    growing = Growing("ab")
    past = growing.view()
    growing.items.append("c")
    log = Log()
    folded(growing.view(), "key", lambda: log)
    assert folded(past, "key", Log).seen == list("ab")
    growing.items.append("d")
    assert folded(growing.view(), "key", Log).seen == list("abcd")
    assert log.given == list("abcd")


def test_a_fold_that_fails_is_made_anew():
    class Picky(Log):
        def add(self, item):
            if item == "bad":
                raise ValueError(item)
            super().add(item)

    growing = Growing(["a", "bad"])
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            folded(growing.view(), "key", Picky)
    assert folded(growing.view(), "key", Log).seen == ["a", "bad"]


def test_only_so_many_folds_are_kept():
    """P10."""
    growing, logs = Growing("ab"), [Log() for _ in range(MAX_FOLDS + 1)]
    for key, log in enumerate(logs):
        folded(growing.view(), key, lambda log=log: log)
    assert len(growing._folds) == MAX_FOLDS
    fresh = Log()
    folded(growing.view(), 0, lambda: fresh)
    assert fresh.given == list("ab")


def test_a_branch_goes_on_without_changing_what_it_left():
    trunk = Branch()
    trunk.append(1)
    fork = trunk.fork()
    fork.append(2)
    assert (trunk.whole(), fork.whole()) == ([1], [1, 2])
    fork.whole().append(3)
    assert fork.whole() == [1, 2]


messages = st.lists(
    st.one_of(
        st.builds(UserMessage, content=st.text(max_size=9), timestamp=st.integers(0, 9)),
        st.builds(
            AssistantMessage,
            content=st.lists(st.builds(text, st.text(max_size=9)), max_size=2),
            usage=st.builds(Usage, total_tokens=st.sampled_from([0, 100, 250])),
            stop_reason=st.sampled_from(["stop", "error", "length"]),
            timestamp=st.integers(0, 9),
        ),
        st.builds(
            SystemMessage,
            content=st.sampled_from(["", " ", "rule"]),
            sections=st.none() | st.dictionaries(st.sampled_from("ab"), st.none() | st.just("s"), max_size=2),
            tools_added=st.none() | st.just([ToolSpec(name="t", description="", parameters={})]),
            tools_removed=st.none() | st.just([ToolRef(name="t")]),
        ),
    ),
    max_size=12,
)


@given(messages=messages, cut=st.integers(0, 12))
def test_what_is_said_of_a_view_is_what_is_said_of_a_list(messages, cut):
    """P10: prompt, tools and weight are kept up to date, whatever was asked before."""
    growing = Growing()
    for at, message in enumerate(messages):
        growing.items.append(message)
        view, whole = growing.view(messages[at + 1 : cut]), [*messages[: at + 1], *messages[at + 1 : cut]]
        for ask in (current_tools, current_system, current_sections, context_tokens, estimate_tokens):
            assert ask(view) == ask(whole)
