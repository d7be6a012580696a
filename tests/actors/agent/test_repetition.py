import itertools

import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.agent.repetition import repeated_rounds
from perdure.actors.models import ToolResultMessage, call
from structlog.testing import capture_logs

from ..conversation.support import go, problems, result, said, scene, user


def rounds(*names):
    """A run whose rounds call tools of these names, with their results."""
    messages = [user()]
    for index, name in enumerate(names):
        messages += [said((name, f"c{index}")), result(f"c{index}", f"ok {name}", name)]
    return messages


@pytest.mark.parametrize(
    ("names", "count"),
    [("", 0), ("a", 0), ("ab", 0), ("aa", 1), ("aaaa", 3), ("baaa", 2), ("abab", 2), ("cababab", 4), ("abcabc", 0)],
)
def test_rounds_that_repeat_the_last_one_or_the_two_last_in_turn_are_counted(names, count):
    assert repeated_rounds(rounds(*names), 100) == count


def test_a_round_with_another_result_or_after_a_user_is_new():
    same = rounds("a", "a", "a")
    changed = [*same[:-1], result("c2", "ready", "a")]
    assert repeated_rounds(changed, 100) == 0
    assert repeated_rounds([*same, user(), *rounds("a")[1:]], 100) == 0


@given(st.lists(st.sampled_from("ab"), max_size=12), st.integers(1, 5))
def test_no_more_is_looked_at_than_is_asked_for(names, limit):
    """P10."""
    assert min(repeated_rounds(rounds(*names), 100), limit) == min(repeated_rounds(rounds(*names), limit), limit)


def once_more(*names):
    """A model that makes the same calls again and again, whatever it is told."""
    left = itertools.cycle(names)
    return lambda request: call(next(left))


def looker(answers=None):
    @perdure.tool
    async def look() -> str:
        """Look."""
        return next(answers) if answers is not None else "nothing new"

    return look


@perdure.tool
async def wait() -> str:
    """Wait."""
    return "waited"


@pytest.mark.parametrize(("names", "requests"), [(["look"], 21), (["look", "wait"], 22)])
def test_a_run_whose_model_goes_in_circles_ends_at_the_limit_with_an_event(names, requests):
    """B079: every request contains the previous result; what is asked next is answered."""

    async def main():
        settings = perdure.Settings(max_repeated_rounds=20)
        async with scene(once_more(*names), tools=[looker(), wait], settings=settings) as s:
            with capture_logs() as logs:
                settled = await s.ask()
            assert settled.reason == "repetition"
            assert [one["rounds"] for one in logs if one["event"] == "run_repeats"] == [20]
            assert len(s.model.calls) == requests
            for request in s.model.calls[1:]:
                assert isinstance(request.messages[-1], ToolResultMessage)
                assert problems(request.messages) == []
            assert await s.root.live() == {}
            assert (await s.ask("again")).reason == "repetition"

    go(main)


def test_a_run_that_waits_for_something_to_change_may_go_on():
    """B079: looking again and again until it is there is no circle."""

    async def main():
        brain = lambda request: "there" if "ready" in str(request.messages[-1]) else call("look")
        answers = itertools.chain((f"{n} %" for n in range(60)), itertools.repeat("ready"))
        async with scene(brain, tools=[looker(answers)], settings=perdure.Settings(max_repeated_rounds=5)) as s:
            assert (await s.ask()).text == "there"

    go(main)


def test_the_limit_can_be_switched_off():
    async def main():
        left = itertools.chain(itertools.repeat(call("look"), 70), itertools.repeat("enough"))
        async with scene(
            lambda r: next(left), tools=[looker()], settings=perdure.Settings(max_repeated_rounds=None)
        ) as s:
            assert (await s.ask()).text == "enough"

    go(main)
