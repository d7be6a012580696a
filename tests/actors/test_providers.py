"""One agent over every provider's protocol: faults through the real SDKs, changes of provider, and no secrets kept."""

import itertools
import traceback

import perdure
import pytest
from msgspec.structs import replace
from perdure.actors import models
from perdure.actors.models import DeferredHandle, ToolCall, UserMessage, answer_text, call, from_json, text
from perdure.actors.models.testing import ProtocolServer, Reply, error_reply
from structlog.testing import capture_logs

from .conversation.support import go, history, problems, scene, seen
from .models.test_conformance import DIALECTS, FAULTS, PLACES, faulty, impatience


@pytest.fixture(params=DIALECTS, ids=str)
def dialect(request):
    return DIALECTS[request.param]


@perdure.tool(replay="safe")
async def write(content: str) -> str:
    """Write."""
    return f"wrote {content}"


def reply(dialect, *blocks, stop="stop"):
    return Reply(steps=dialect.steps(*blocks, stop=stop))


def fine(dialect):
    return reply(dialect, text("Fine."))


def retrying(retries=2, deadline_s=None):
    return perdure.Settings(
        request_timeout_ms=None if deadline_s is None else round(deadline_s * 1_000),
        retry=perdure.RetryPolicy(max_retries=retries, base_delay_ms=60_000),
        progress=perdure.ProgressPolicy(partial_interval_ms=0),
    )


class Talk:
    """What is left of one question put to an agent on a provider's protocol."""


async def ask(dialect, *replies, retries=2, kill=False, deadline_s=None, **options):
    """Ask one question; with ``kill``, the session dies while the first retry waits."""
    talk, clock = Talk(), perdure.VirtualClock(autojump=True)
    async with ProtocolServer(*replies) as server:
        model = dialect.model(server.url, **options)
        agent = perdure.Agent(model=model.name)
        async with scene(
            models=[model], agent=agent, tools=[write], clock=clock, settings=retrying(retries, deadline_s)
        ) as s:
            async with await s.root.watch() as watch:
                submission = await s.root.submit("Hi")
                if kill:
                    await seen(s.root, lambda view: "retry" in view["docs"]["pi.live"].get("generation", {}))
                    assert s.system.kill("session:s")
                talk.settled = await persist(submission.wait)
                talk.shown = await shown_texts(watch) if not kill else []
            talk.entries = await history(s.root)
            talk.usage = (await s.root.snapshot(perdure.UsageDoc))["models"].get(model.name, {})
            talk.live = await s.root.live()
            talk.context = (await s.root.context()).messages
        await model.aclose()
    talk.requests = [one.body for one in server.requests]
    return talk


async def persist(act):
    while True:
        try:
            return await act()
        except perdure.SessionFailed:
            continue


async def shown_texts(watch):
    """The texts of the partials that a watcher was shown, as far as they have been delivered."""
    texts = []
    async for value, _ in watch:
        live = value["docs"]["pi.live"]
        message = live.get("generation", {}).get("message")
        if message is not None:
            texts.append(answer_text(from_json(message)))
        if not live:
            return texts
    return texts


def assistants(entries):
    return [from_json(one.model[0]) for one in entries if one.kind == "pi.assistant"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "slow drip"])
def test_whatever_breaks_off_is_kept_counted_and_tried_again(dialect, place, fault):
    """B142, B143, B154, B157: the run ends with the answer, history stays valid, and no tool ran of what was cut off."""

    go(lambda: broken_off(dialect, place, fault, **impatience(fault)))


@pytest.mark.parametrize("place", PLACES)
def test_an_answer_that_drips_for_ever_is_broken_off_at_its_deadline_and_tried_again(dialect, place):
    go(lambda: ask(dialect, fine(dialect)))  # an SDK's first use takes seconds, which no deadline is to count
    go(lambda: broken_off(dialect, place, "slow drip", deadline_s=4.0))


async def broken_off(dialect, place, fault, **options):
    make, kind = FAULTS[fault]
    talk = await ask(dialect, faulty(dialect, place, make(dialect)), fine(dialect), **options)
    assert talk.settled.text == "Fine."
    failed, answered = assistants(talk.entries)
    assert (failed.stop_reason, failed.error.kind, answered.stop_reason) == ("error", kind, "stop")
    assert [one.kind for one in talk.entries] == ["pi.user", "pi.system", "pi.assistant", "pi.assistant"]
    for said in talk.shown:
        assert answer_text(failed).startswith(said) or answer_text(answered).startswith(said)
    if place != "before the first byte":
        assert answer_text(failed).startswith("Before it. BEAC")
        assert failed.usage.output > 0
    assert talk.usage["totalTokens"] == failed.usage.total_tokens + answered.usage.total_tokens
    assert dialect.problems(talk.requests[1]) == []
    assert len(talk.requests) == 2
    assert problems(talk.context) == []
    assert talk.live == {}


@pytest.mark.parametrize("place", PLACES)
def test_a_refusal_ends_the_run_and_is_not_asked_for_again(dialect, place):
    """What had been said stays, no call of it is run, and the history stays valid."""

    async def main():
        talk = await ask(dialect, faulty(dialect, place, dialect.refusal()), fine(dialect))
        assert talk.settled.reason == "model_error"
        [refused] = assistants(talk.entries)
        assert (refused.stop_reason, refused.error.kind, refused.error.retryable) == ("error", "refusal", False)
        for said in talk.shown:
            assert answer_text(refused).startswith(said)
        if place != "before the first byte":
            assert answer_text(refused).startswith("Before it. BEAC")
            assert talk.usage["totalTokens"] == refused.usage.total_tokens > 0
        assert [one.kind for one in talk.entries] == ["pi.user", "pi.system", "pi.assistant"]
        assert len(talk.requests) == 1
        assert problems(talk.context) == []
        assert talk.live == {}

    go(main)


REFUSED = {
    "overloaded": (529, "overloaded_error", True),
    "rate limit": (429, "rate_limit_error", True),
    "server": (500, "api_error", True),
    "auth": (401, "authentication_error", False),
    "invalid": (400, "invalid_request_error", False),
    "page": (502, None, True),
}


@pytest.mark.parametrize("refusal", REFUSED)
def test_a_request_that_is_refused_is_tried_again_where_that_helps(dialect, refusal):
    """B155, B077: bounded, and never where somebody has to change something."""

    async def main():
        status, kind, retryable = REFUSED[refusal]
        body = "<html>oops</html>" if kind is None else dialect.error_body(kind, "No.")
        refused = error_reply(status, body, retry_after="90")
        talk = await ask(dialect, refused, fine(dialect))
        assert talk.settled.status == ("done" if retryable else "unanswered")
        assert len(talk.requests) == (2 if retryable else 1)
        talk = await ask(dialect, refused, refused, refused)
        assert talk.settled.reason == "model_error"
        assert len(talk.requests) == (3 if retryable else 1)
        assert talk.live == {}

    go(main)


def test_a_retry_that_a_provider_asked_for_survives_a_death_in_its_wait(dialect):
    async def main():
        broken = faulty(dialect, "in the text", FAULTS["cut"][0](dialect))
        talk = await ask(dialect, broken, fine(dialect), kill=True)
        assert talk.settled.text == "Fine."
        assert len(talk.requests) == 2
        assert [one.stop_reason for one in assistants(talk.entries)] == ["error", "stop"]

    go(main)


def test_an_empty_answer_is_an_answer_and_the_next_request_is_valid(dialect):
    async def main():
        async with ProtocolServer(reply(dialect), fine(dialect)) as server:
            model = dialect.model(server.url)
            async with scene(models=[model], agent=perdure.Agent(model=model.name)) as s:
                assert (await s.ask("Hi")).text == ""
                assert (await s.ask("Well?")).text == "Fine."
            await model.aclose()
            assert dialect.problems(server.requests[1].body) == []

    go(main)


# --- one program on every provider


class Turns:
    """A provider that answers every question by a call, with a thought before it, and every result by a text."""

    def __init__(self, dialect, name):
        self.dialect = dialect
        self.name = name
        self.faults = []
        self.count = itertools.count()

    def script(self, request):
        self.faults += self.dialect.problems(request.body)
        number = next(self.count)
        if number % 2:
            return reply(self.dialect, text(f"{self.name} is done."))
        thought = self.dialect.thinking("hmm")
        wanted = ToolCall(id=f"call_{self.name}_{number}", name="write", arguments={"content": self.name})
        return reply(self.dialect, thought, text("I write."), wanted, stop="toolUse")


async def switching(order, tmp_path):
    """Run one program over the providers in an order, another one at every turn; gives what each has heard and said."""
    turns = {name: Turns(dialect, name) for name, dialect in DIALECTS.items()}
    scripted = perdure.ScriptedModel(
        lambda r: (
            [text("I write."), call("write", content="scripted")]
            if isinstance(r.messages[-1], UserMessage)
            else "scripted is done."
        )
    )
    servers = {name: ProtocolServer(script=one.script) for name, one in turns.items()}
    made = {"scripted": scripted}
    for name, server in servers.items():
        await server.__aenter__()
        made[name] = DIALECTS[name].model(server.url)
    kit = perdure.Extension(name="kit", tools=[write], sections=[perdure.Section("role", "You write.")])
    answers = []
    async with perdure.System.open(tmp_path / "s.db", models=made.values(), extensions=[kit]) as system:
        root = await (await system.session("s")).root()
        for name in order:
            await root.configure(perdure.Agent(model=made[name].name, thinking_level="high"))
            answers.append((await (await root.submit(f"Write with {name}.")).wait()).text)
        faults = problems((await root.context()).messages)
    for name, server in servers.items():
        await made[name].aclose()
        await server.__aexit__(None, None, None)
    return answers, faults + [fault for one in turns.values() for fault in one.faults]


@pytest.mark.parametrize("name", ["scripted", *DIALECTS])
def test_the_same_program_runs_unchanged_on_every_provider(name, tmp_path):
    async def main():
        answers, faults = await switching([name] * 3, tmp_path)
        assert answers == [f"{name} is done."] * 3
        assert faults == []

    go(main)


@pytest.mark.parametrize("order", list(itertools.permutations([*DIALECTS, "scripted"], 3))[::4], ids="-".join)
def test_a_conversation_that_changes_its_provider_at_every_turn_stays_valid_to_all(order, tmp_path):
    """B148, B149, B151, B152."""

    async def main():
        order_of_turns = [*order, *reversed(order), *order]
        answers, faults = await switching(order_of_turns, tmp_path)
        assert answers == [f"{name} is done." for name in order_of_turns]
        assert faults == []

    go(main)


def test_a_run_that_fails_over_to_another_provider_in_its_middle_stays_valid_to_both(dialect):
    """B148."""

    async def main():
        others = [one for one in DIALECTS.values() if one is not dialect]
        first = [
            reply(
                dialect,
                dialect.thinking("hmm"),
                ToolCall(id="a.b", name="write", arguments={"content": "x"}),
                stop="toolUse",
            )
        ]
        broke = error_reply(401, dialect.error_body("authentication_error", "No."))
        for other in others:
            async with ProtocolServer(*first, broke, fine(dialect)) as one, ProtocolServer(fine(other)) as two:
                made = [dialect.model(one.url), other.model(two.url)]
                agent = perdure.Agent(model=made[0].name, fallbacks=[made[1].name])
                async with scene(models=made, agent=agent, tools=[write]) as s:
                    assert (await s.ask("Hi")).answer.message.model == made[1].id
                    assert (await s.ask("And?")).answer.message.model == made[0].id
                for model in made:
                    await model.aclose()
                assert [fault for request in one.requests for fault in dialect.problems(request.body)] == []
                assert [fault for request in two.requests for fault in other.problems(request.body)] == []

    go(main)


# --- secrets

PLANTED = "sk-planted-0123456789"


def test_a_planted_key_is_found_nowhere(dialect, tmp_path, monkeypatch):
    """B184, B185: not in the store, the logs or the transcript, though the server repeats it."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, PLANTED)

    async def main():
        told = f"Incorrect API key provided: {PLANTED}; header {PLANTED}-h."
        body = dialect.error_body("authentication_error", told)
        async with ProtocolServer(error_reply(401, body), fine(dialect)) as server:
            make = type(dialect).model.__globals__["models"]
            at = f"{server.url}/v1"
            headers = {"x-team": f"{PLANTED}-h"}
            model = {
                "anthropic": lambda: make.anthropic("claude-opus-5-5", base_url=server.url, headers=headers),
                "chat": lambda: make.openai_chat("gpt", base_url=at, headers=headers),
                "responses": lambda: make.openai("gpt-6-sol", base_url=at, headers=headers),
            }[next(name for name, one in DIALECTS.items() if one is dialect)]()
            with capture_logs() as logs:
                async with scene(
                    storage=perdure.SqliteStorage(tmp_path / "s.db"),
                    models=[model],
                    agent=perdure.Agent(model=model.name),
                ) as s:
                    settled = await s.ask("Hi")
                    assert settled.reason == "model_error"
                    assert settled.record.detail.startswith("Incorrect API key provided: [hidden]")
                    assert (await s.ask("Hi")).text == "Fine."
                    transcript = str(await history(s.root))
            await model.aclose()
            assert PLANTED in str(server.requests[0].headers)
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
        assert PLANTED.encode() not in stored
        assert PLANTED not in transcript
        assert PLANTED not in str(logs)

    go(main)


def test_a_key_in_a_header_is_hidden_also_where_the_server_repeats_it_without_its_scheme(dialect, tmp_path):
    """B184: of a provider's headers, and of those that a hook adds to a request."""

    def add(ctx, request):
        return replace(request, headers={"x-proxy": f"{PLANTED}-proxy"})

    async def main():
        body = dialect.error_body("authentication_error", f"bad keys: {PLANTED}-bearer, {PLANTED}-proxy")
        async with ProtocolServer(error_reply(401, body)) as server:
            model = with_header(dialect, server.url, {"authorization": f"Bearer {PLANTED}-bearer"})
            hooked = perdure.Extension(name="proxy", hooks=perdure.Hooks(before_request=add))
            async with scene(models=[model], agent=perdure.Agent(model=model.name), extensions=[hooked]) as s:
                settled = await s.ask("Hi")
                assert "bad keys: [hidden], [hidden]" in settled.record.detail
                assert PLANTED not in str(await history(s.root))
            await model.aclose()
            assert server.requests[0].headers["x-proxy"] == f"{PLANTED}-proxy"

    go(main)


def with_header(dialect, url, headers):
    make, name = models, next(name for name, one in DIALECTS.items() if one is dialect)
    if name == "anthropic":
        return make.anthropic("claude-opus-5-5", api_key="none", base_url=url, headers=headers)
    factory = make.openai_chat if name == "chat" else make.openai
    return factory("gpt-6-sol", api_key="none", base_url=f"{url}/v1", headers=headers)


def test_what_a_server_says_of_a_cancel_that_failed_is_logged_without_the_key():
    """B184."""

    async def main():
        body = {"error": {"message": f"Incorrect key {PLANTED}", "type": "authentication_error"}}
        async with ProtocolServer(error_reply(401, body)) as server:
            model = models.openai("gpt-6-sol", api_key=PLANTED, base_url=f"{server.url}/v1")
            handle = DeferredHandle(provider="openai", api="openai-responses", model_id="gpt-6-sol", id="resp_1")
            with pytest.raises(RuntimeError, match="Incorrect key \\[hidden\\]") as raised:
                await model.cancel(handle)
            await model.aclose()
        assert PLANTED not in "".join(traceback.format_exception(raised.value))

    go(main)
