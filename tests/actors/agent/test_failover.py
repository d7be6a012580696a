import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.agent.failover import first_left, is_followed
from perdure.actors.models import call, error_info, from_json

from ..conversation.support import answering, go, history, problems, scene, seen

BUSY = error_info("overloaded", "busy")
BROKE = error_info("billing", "no money")
SECOND = perdure.Agent(model="scripted/model", fallbacks=["scripted/gone", "other/second"])
NAMES = st.lists(st.sampled_from("abcd"), unique=True)


def second(*answers):
    return perdure.ScriptedModel(answering(*answers), name="other/second")


def answered_by(entries):
    messages = [from_json(one.model[0]) for one in entries if one.kind == "pi.assistant"]
    return [(f"{one.provider}/{one.model}", one.stop_reason) for one in messages]


def policy(retries):
    return perdure.Settings(retry=perdure.RetryPolicy(max_retries=retries, base_delay_ms=1_000))


# --- the choice


@given(NAMES, NAMES, st.sets(st.sampled_from("abcd")))
def test_the_first_model_that_is_there_and_has_not_failed_is_asked(models, failed, there):
    chosen = first_left(models, failed, there.__contains__)
    usable = [name for name in models if name in there]
    assert (chosen is None) == (not usable)
    if any(name not in failed for name in usable):
        assert chosen == next(name for name in usable if name not in failed)


@pytest.mark.parametrize("kind", ["auth", "billing", "rate_limit", "overloaded", "server", "transport", "unknown"])
def test_a_failure_of_the_provider_is_followed_by_another_model(kind):
    assert is_followed(["a", "b"], ["a"], error_info(kind, "x"), lambda _: True)
    assert not is_followed(["a", "b"], ["a", "b"], error_info(kind, "x"), lambda _: True)
    assert not is_followed(["a", "b"], ["a"], error_info(kind, "x"), lambda name: name == "a")


@pytest.mark.parametrize("kind", ["overflow", "refusal", "invalid_request", "aborted"])
def test_a_failure_of_the_conversation_is_not(kind):
    assert not is_followed(["a", "b"], ["a"], error_info(kind, "x"), lambda _: True)
    assert not is_followed(["a", "b"], ["a"], None, lambda _: True)


def test_a_model_that_its_provider_does_not_have_is_followed_by_another():
    assert is_followed(["a", "b"], ["a"], error_info("invalid_request", "x", status=404), lambda _: True)


# --- a run


@pytest.mark.parametrize(("failure", "tries"), [(BUSY, 3), (BROKE, 1)])
def test_a_run_goes_on_with_the_second_model_when_the_first_has_failed_it_for_good(failure, tries):
    """B148, B155: retries first, where they help; every attempt is in the transcript under its own model."""

    async def main():
        other = second("fine")
        clock = perdure.VirtualClock(autojump=True)
        async with scene(answering(failure), agent=SECOND, models=[other], settings=policy(2), clock=clock) as s:
            settled = await s.ask()
            assert settled.text == "fine"
            assert len(s.model.calls) == tries
            made = answered_by(await history(s.root))
            assert made == [("scripted/model", "error")] * tries + [("other/second", "stop")]
            assert set((await s.root.snapshot(perdure.UsageDoc))["models"]) == {"scripted/model", "other/second"}

    go(main)


def test_a_run_stays_with_the_model_that_it_has_gone_to_and_the_next_run_begins_with_the_first():
    """B148: a conversation whose model changes within its rounds stays valid to both."""

    async def main():
        @perdure.tool
        async def look() -> str:
            """Look."""
            return "seen"

        other = second([call("look", "c2")], "done")
        brain = answering([call("look", "c1")], BROKE, "back")
        async with scene(brain, agent=SECOND, models=[other], tools=[look]) as s:
            assert (await s.ask()).text == "done"
            assert len(other.calls) == 2
            assert (await s.ask()).text == "back"
            for request in (*s.model.calls, *other.calls):
                assert problems(request.messages) == []

    go(main)


def test_when_all_have_failed_the_run_ends_with_the_last_error():
    async def main():
        other = second(error_info("auth", "no key"))
        async with scene(answering(BROKE), agent=SECOND, models=[other]) as s:
            settled = await s.ask()
            assert (settled.reason, settled.record.detail) == ("model_error", "no key")
            assert await s.root.live() == {}

    go(main)


def test_a_first_model_that_is_not_installed_is_passed_over():
    async def main():
        agent = perdure.Agent(model="scripted/gone", fallbacks=["scripted/model"])
        async with scene(agent=agent) as s:
            assert (await s.ask("x")).text == "re: x"

    go(main)


def test_the_models_that_have_failed_a_run_are_stored_with_it(storage):
    """A restart in the second model's backoff does not begin again with the first."""

    async def main():
        clock, other = perdure.VirtualClock(), second(BUSY, "fine")
        async with scene(
            answering(BROKE), storage=storage, agent=SECOND, models=[other], settings=policy(2), clock=clock
        ) as s:
            submission = await s.root.submit("x")
            view = await seen(s.root, lambda v: "retry" in v["docs"]["pi.live"].get("generation", {}))
            assert view["docs"]["pi.live"]["run"]["failed"] == ["scripted/model"]
        other = second("fine")
        async with scene(answering("first"), storage=storage, models=[other], settings=policy(2), clock=clock) as s:
            clock.advance(60)
            assert (await (await s.session.submission(submission.id)).wait()).text == "fine"
            assert s.model.calls == []

    go(main)


@pytest.mark.parametrize("names", [["nonsense"], "other/second", [1]])
def test_what_names_no_models_is_refused(names):
    async def main():
        async with scene() as s:
            with pytest.raises(perdure.InvalidValue):
                await s.root.configure(perdure.Agent(fallbacks=names))
            assert "fallbacks" not in await s.root.snapshot(perdure.AgentDoc)

    go(main)
