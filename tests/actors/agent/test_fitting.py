import perdure
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.agent.fitting import CHARS_PER_TOKEN, SHARE, fit_results, water_level
from perdure.actors.models import Image, ToolResultMessage, call, estimate_tokens, plain_text, text
from perdure.actors.models.growing import Growing

from ..conversation.support import answering, go, history, problems, result, said, scene, user

LENGTHS = st.lists(st.integers(0, 5_000), min_size=1, max_size=8)


def a_round(lengths, start=0):
    ids = [f"c{start + index}" for index in range(len(lengths))]
    return [said(*(("t", one) for one in ids)), *(result(one, "x" * n) for one, n in zip(ids, lengths, strict=True))]


@given(LENGTHS, st.integers(0, 20_000))
def test_a_level_keeps_all_within_the_limit_and_cuts_no_more_than_it_must(lengths, limit):
    level = water_level(lengths, limit)
    kept = sum(min(length, level) for length in lengths)
    assert kept <= max(limit, 0) or sum(lengths) <= limit
    if sum(lengths) > limit:
        assert sum(min(length, level + 1) for length in lengths) > limit


@given(LENGTHS, LENGTHS, st.integers(1, 5_000))
def test_results_within_their_share_are_left_alone_and_a_longer_request_begins_with_the_shorter(one, two, window):
    first = [user(), *a_round(one)]
    both = [*first, *a_round(two, start=10), user("and")]
    fitted = fit_results(both, window)
    assert fitted[: len(first)] == fit_results(first, window)
    assert problems(fitted) == []
    if sum(one) <= window * SHARE * CHARS_PER_TOKEN:
        assert fitted[: len(first)] == first
    for before, after in zip(both, fitted, strict=True):
        if isinstance(before, ToolResultMessage):
            assert len(plain_text(after.content)) <= len(plain_text(before.content))


def test_without_a_known_window_nothing_is_shortened():
    messages = [user(), *a_round([10**6])]
    assert fit_results(messages, 0) == messages


def test_the_beginning_and_the_end_stay_and_pictures_too():
    picture = Image(data="aGk=", mime_type="image/png")
    long = ToolResultMessage(tool_call_id="c0", tool_name="t", content=[text("a" * 5_000 + "z" * 5_000), picture])
    [_, _, fitted] = fit_results([user(), said(("t", "c0")), long], 1_000)
    said_now = fitted.content[0].text
    assert said_now.startswith("a" * 800)
    assert said_now.endswith("z" * 800)
    assert "8,250 characters left out" in said_now
    assert fitted.content[1] == picture


def test_eight_long_results_fit_into_a_window_that_they_would_overflow_together_and_are_stored_whole():
    """B103: a common budget shortens what is sent; the stored results stay whole."""

    async def main():
        @perdure.tool(limits=perdure.OutputLimits(max_bytes=200_000))
        async def read(page: int) -> str:
            """Read."""
            return f"{page}" * 100_000

        brain = answering([call("read", f"c{n}", page=n) for n in range(8)], "done", "and done")
        async with scene(brain, tools=[read]) as s:
            assert s.model.context_window == 200_000
            assert (await s.ask()).text == "done"
            assert (await s.ask("more")).text == "and done"
            sent = s.model.calls[1].messages
            assert estimate_tokens(sent) < 0.55 * s.model.context_window
            assert s.model.calls[2].messages[: len(sent)] == sent
            stored = [one.model[0] for one in await history(s.root) if one.kind == "pi.tool-result"]
            assert [len(one["content"][0]["text"]) for one in stored] == [100_000] * 8

    go(main)


def test_messages_that_fit_are_given_as_they_are_so_that_what_is_known_of_them_stays_known():
    """A request costs its new messages, not the transcript."""
    messages = Growing([user("x"), result("c1", "y" * 100), result("c2", "y" * 100)]).view()
    assert fit_results(messages, 200_000) is messages
    assert fit_results(messages, 0) is messages
    assert fit_results(messages, 80) is not messages
