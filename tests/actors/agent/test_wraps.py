import asyncio

import msgspec
import perdure
import pytest
from perdure.actors.models import call, current_system
from perdure.actors.task.definition import Definitions
from structlog.testing import capture_logs

from ..conversation.support import calling, go, history, kinds, scene


def adder(log):
    @perdure.tool
    async def add(ctx: perdure.ToolContext, amount: int) -> str:
        """Add."""
        log.append(amount)
        return f"added {amount}"

    return add


ADD = calling(call("add", "c1", amount=5))


async def twice(ctx, arguments, *, run):
    return f"{await run(arguments)} and {await run({'amount': arguments['amount'] + 1})} by {ctx.call_id}"


async def loudly(ctx, arguments, *, run):
    return (await run(arguments)).upper()


def wrapping(name, **options):
    return perdure.Extension(name=name, wraps=[perdure.Wrap(**options)])


def test_wraps_of_a_tool_apply_in_order_whoever_brings_it_and_its_declaration_stays():
    """PR-13."""

    async def main():
        log = []
        kit = [
            wrapping("a", tool="add", by=lambda tool: tool.around(twice)),
            wrapping("b", tool="add", by=lambda tool: tool.around(loudly)),
        ]
        async with scene(ADD, tools=[adder(log)], extensions=kit) as s:
            assert (await s.ask()).text == "ADDED 5 AND ADDED 6 BY C1"
            assert log == [5, 6]
            [offered] = s.model.calls[0].messages[0].tools_added
            assert offered == adder([]).spec

    go(main)


def test_what_a_wrap_hands_on_is_validated_again():
    async def main():
        async def badly(ctx, arguments, *, run):
            return await run({"amount": "x"})

        log = []
        kit = [wrapping("a", tool="add", by=lambda tool: tool.around(badly))]
        async with scene(ADD, tools=[adder(log)], extensions=kit) as s:
            assert "Validation failed for tool add" in (await s.ask()).text
            assert log == []

    go(main)


def test_a_wrapped_tool_leaves_the_one_it_was_made_from_alone():
    log = []
    plain = adder(log)
    assert plain.around(loudly) is not plain
    assert asyncio.run(plain(None, 1)) == "added 1"
    assert plain._around == ()


def renamed(tool):
    other = tool.around(loudly)
    other.name = "other"
    return other


@pytest.mark.parametrize("by", [lambda tool: 1 / 0, lambda tool: None, renamed])
def test_a_wrap_that_fails_or_renames_takes_its_tool_away(by):
    """PR-13."""

    async def main():
        log = []
        async with scene(ADD, tools=[adder(log)], extensions=[wrapping("a", tool="add", by=by)]) as s:
            with capture_logs() as logs:
                assert "Tool add is not available" in (await s.ask()).text
            assert "wrap_failed" in [one["event"] for one in logs]
            assert log == []

    go(main)


def test_a_wrap_of_a_section_changes_its_text_and_one_that_fails_takes_it_away():
    """PR-03, PR-13: it is reported, no system entry is written, and the run still answers."""

    async def main():
        section = perdure.Section("cwd", "/repo")
        shout = lambda one: msgspec.structs.replace(one, render=one.render.upper())
        async with scene(sections=[section], extensions=[wrapping("a", section="cwd", by=shout)]) as s:
            await s.ask()
            assert current_system(s.model.calls[0].messages) == "<cwd>\n/REPO\n</cwd>"
        async with scene(sections=[section], extensions=[wrapping("a", section="cwd", by=lambda one: 1 / 0)]) as s:
            with capture_logs() as logs:
                assert (await s.ask("x")).text == "re: x"
            assert "wrap_failed" in [one["event"] for one in logs]
            assert kinds(await history(s.root)) == ["user", "assistant"]

    go(main)


def test_a_wrap_of_what_is_not_there_or_of_an_extension_that_is_not_chosen_does_nothing():
    async def main():
        kit = [
            wrapping("a", tool="add", by=lambda tool: tool.around(loudly)),
            wrapping("b", tool="gone", by=lambda t: 1 / 0),
        ]
        async with scene(ADD, tools=[adder([])], extensions=kit) as s:
            await s.root.configure(perdure.Agent(extensions=["kit", "b"]))
            assert (await s.ask()).text == "added 5"

    go(main)


NOTHING = [
    "x",
    perdure.Wrap(by=print),
    perdure.Wrap(tool="a", section="b", by=print),
    perdure.Wrap(tool="a", by=1),
]


@pytest.mark.parametrize("wrap", NOTHING)
def test_a_wrap_that_says_nothing_is_refused(wrap):
    """PR-14."""
    registry = perdure.Registry(Definitions())
    with pytest.raises(perdure.ExtensionInvalid, match="wrap"):
        registry.install(perdure.Extension(name="x", wraps=[wrap]))
    assert registry.installed() == []


def test_what_an_install_gives_uninstalls_it_unless_another_has_taken_its_place():
    """PR-05: the registration handle disposes."""
    registry = perdure.Registry(Definitions())
    first = registry.install(perdure.Extension(name="a"))
    second = registry.install(perdure.Extension(name="a", tools=[adder([])]))
    first()
    assert len(registry.installed()) == 1
    second()
    second()
    assert registry.installed() == []
