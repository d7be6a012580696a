"""Spans: one tree for a run, whatever dies while it goes on, and no cost where nobody traces."""

import json
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager

import opentelemetry.trace as api
import perdure
import pytest
from opentelemetry.sdk.trace import Span, SpanProcessor, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes
from perdure.actors.models import call, error_info
from perdure.actors.session import tracing
from structlog.testing import capture_logs

from ..conversation.support import answering, echo, go, scene
from .compacting import SUMMARY, both, fill, small

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
KNOWN = {
    value for names in (gen_ai_attributes, error_attributes) for value in vars(names).values() if isinstance(value, str)
}


@perdure.tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@perdure.tool
async def twice(ctx: perdure.ToolContext, a: int) -> int:
    """Double."""
    return (await ctx.call("add", {"a": a, "b": a})).content


@contextmanager
def traced(monkeypatch, **options):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(**options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(api, "get_tracer_provider", lambda *_: provider)
    yield exporter.get_finished_spans


def tree(spans):
    """The spans as lines, indented by depth; every parent but a foreign one must be among them."""
    children = {}
    ids = {span.context.span_id for span in spans}
    assert len(ids) == len(spans)
    for span in sorted(spans, key=lambda one: one.start_time // 1_000_000):  # those of durable work are in ms
        above = span.parent.span_id if span.parent is not None and span.parent.span_id in ids else None
        children.setdefault(above, []).append(span)

    def lines(above, depth):
        for span in children.get(above, ()):
            yield "  " * depth + span.name
            yield from lines(span.context.span_id, depth + 1)

    return list(lines(None, 0))


def test_a_run_is_a_tree_of_turns_requests_and_tools(monkeypatch):
    async def main():
        async with scene(answering([call("twice", a=2)], "4"), tools=[add, twice]) as s:
            assert (await s.ask("double 2")).text == "4"

    with traced(monkeypatch) as finished:
        go(main)
        spans = finished()
    assert tree(spans) == [
        "invoke_agent",
        "  turn",
        "    chat model",
        "    execute_tool twice",
        "      execute_tool add",
        "  turn",
        "    chat model",
    ]
    assert len({span.context.trace_id for span in spans}) == 1
    names = {name for span in spans for name in span.attributes} - {"perdure.task"}
    assert names <= KNOWN
    [run] = [span for span in spans if span.name == "invoke_agent"]
    assert run.attributes["gen_ai.conversation.id"] == "s/1"
    assert not any("error.type" in span.attributes for span in spans)
    chat = next(span for span in spans if span.name == "chat model")
    assert chat.kind is api.SpanKind.CLIENT
    assert chat.attributes["gen_ai.usage.output_tokens"] > 0
    assert chat.attributes["gen_ai.provider.name"] == "scripted"
    assert min(span.start_time for span in spans if span.name == "turn") >= run.start_time


def test_a_run_hangs_below_the_span_that_it_was_submitted_in_also_when_it_had_to_wait(monkeypatch):
    async def main():
        async with scene(echo, tokens_per_second=400) as s:
            tracer = api.get_tracer_provider().get_tracer("host")
            with tracer.start_as_current_span("first"):
                first = await s.root.submit("x " * 20)
            with tracer.start_as_current_span("second"):
                second = await s.root.submit("y")
            assert [item["id"] for item in (await s.session.snapshot(perdure.InboxDoc, 1))["items"]] == [second.id]
            await first.wait()
            await second.wait()

    with traced(monkeypatch) as finished:
        go(main)
        run = ["  invoke_agent", "    turn", "      chat model"]
        assert tree(finished()) == ["first", *run, "second", *run]


def test_what_a_subagent_does_hangs_below_its_call(monkeypatch):
    async def main():
        brain = answering([call("subagent", task="look")], "found", "it is there")
        async with scene(brain, tools=[perdure.subagent(name="subagent")]) as s:
            assert (await s.ask("x")).text == "it is there"

    with traced(monkeypatch) as finished:
        go(main)
        run = ["invoke_agent", "  turn", "    chat model"]
        call_ = ["    execute_tool subagent", *("      " + line for line in run)]
        assert tree(finished()) == [*run, *call_, "  turn", "    chat model"]


def test_a_compaction_is_a_span_with_its_requests(monkeypatch):
    async def main():
        async with scene(**small(both(answering(SUMMARY)))) as s:
            await fill(s.root, *[400] * 5)
            await s.root.compact()

    with traced(monkeypatch) as finished:
        go(main)
        assert tree(finished())[-2:] == ["compact", "  chat small"]


def test_a_run_that_fails_says_what_kind_of_failure_it_was_and_nothing_that_was_said(monkeypatch):
    async def main():
        async with scene(answering(error_info("auth", "key sk-123 is wrong"))) as s:
            assert (await s.ask("x")).reason == "model_error"

    with traced(monkeypatch) as finished:
        go(main)
        errors = {span.name: span.attributes.get("error.type") for span in finished()}
        assert errors == {"invoke_agent": "model_error", "turn": "failed", "chat model": "auth"}
        assert all(not span.status.is_ok for span in finished())
        assert "sk-123" not in "".join(span.to_json() for span in finished())


def test_what_is_not_sampled_is_not_exported_and_nothing_suffers(monkeypatch):
    async def main():
        async with scene(answering([call("add", a=1, b=2)], "3"), tools=[add]) as s:
            assert (await s.ask("x")).text == "3"

    with traced(monkeypatch, sampler=ALWAYS_OFF) as finished:
        go(main)
        assert not finished()


@pytest.mark.parametrize("broken", ["on_start", "on_end"])
def test_a_provider_that_raises_ends_nothing(monkeypatch, broken):
    class Broken(SpanProcessor):
        pass

    def fail(self, *_, **__):
        raise RuntimeError("no collector")

    async def main():
        async with scene(answering([call("add", a=1, b=2)], "3"), tools=[add]) as s:
            for _ in range(2):
                assert (await s.ask("x")).text == "3"

    setattr(Broken, broken, fail)
    with traced(monkeypatch), capture_logs() as logs:
        api.get_tracer_provider().add_span_processor(Broken())
        go(main)
    assert {log["event"] for log in logs if log["log_level"] != "debug"} == {"tracing_failed"}


def raises(*_, **__):
    raise RuntimeError("no collector")


def raise_in(monkeypatch, broken):
    """Have one thing of a provider raise from now on."""
    if broken == "get_tracer":
        monkeypatch.setattr(TracerProvider, broken, raises)
    elif broken == "id_generator":
        monkeypatch.setattr(Tracer, "__setattr__", raises)
    elif broken == "get_current_span":
        monkeypatch.setattr(api, broken, raises)
    else:
        monkeypatch.setattr(Span, broken, raises)


@pytest.mark.parametrize(
    "broken",
    ["get_tracer", "id_generator", "get_current_span", "get_span_context", "set_attributes", "set_attribute", "end"],
)
def test_whatever_a_provider_raises_it_ends_nothing(monkeypatch, broken):
    """A failed request tells its span so; a provider may begin to fail at any time."""
    answers = answering("1", error_info("overloaded", "busy"), [call("twice", a=1)], "3")
    settings = perdure.Settings(retry=perdure.RetryPolicy(base_delay_ms=0))

    async def main():
        async with scene(answers, tools=[add, twice], settings=settings) as s:
            assert (await s.ask("x")).text == "1"
            raise_in(monkeypatch, broken)
            assert (await s.ask("y")).text == "3"

    with traced(monkeypatch), capture_logs() as logs:
        go(main)
    assert {log["event"] for log in logs if log["log_level"] != "debug"} <= {"tracing_failed"}


def test_without_a_provider_nothing_is_stored(monkeypatch):
    async def main():
        async with scene(answering([call("add", a=1, b=2)], "3"), tools=[add]) as s:
            await s.ask("x")
            tasks = await s.session.tasks()
            assert all(task.trace is None for task in tasks)

    assert tracing.tracer() is None
    assert tracing.here() is None
    go(main)


def test_perdure_itself_imports_no_opentelemetry():
    code = """
        import asyncio, sys, perdure
        async def main():
            async with perdure.System.open(perdure.MemoryStorage(), models=[perdure.ScriptedModel(lambda _: "ok")]) as system:
                root = await (await system.session("s")).root(agent=perdure.Agent(model="scripted/model"))
                assert (await (await root.submit("x")).wait()).text == "ok"
        asyncio.run(main())
        assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=50)


def test_the_same_work_has_the_same_place_and_other_work_another():
    assert tracing.below(TRACE, "s", "task", 1) == tracing.below(TRACE, "s", "task", 1)
    places = {tracing.below(TRACE, key, kind, n) for key in "st" for kind in ("task", "run") for n in (1, 2)}
    assert len(places) == 8
    assert all(place.startswith(TRACE[:36]) and place.endswith("-01") and len(place) == len(TRACE) for place in places)


# --- across restarts

WORKER = """
    import asyncio, json, sys, perdure
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
    from perdure.actors.models import UserMessage, call, error_info

    store, out, life = sys.argv[1:]

    class ToFile(SpanExporter):
        def export(self, spans):
            with open(out, "a") as file:
                for span in spans:
                    file.write(span.to_json(indent=None) + "\\n")
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ToFile()))
    trace.set_tracer_provider(provider)

    @perdure.tool(replay="safe")
    async def slow(ctx: perdure.ToolContext) -> str:
        "Take long in the first life."
        result = await ctx.call("quick", {}, key="q")
        with trace.get_tracer("tool").start_as_current_span("inside"):
            if life == "1":
                print("in the tool", flush=True)
                await asyncio.sleep(60)
        return result.text

    @perdure.tool(replay="safe")
    async def quick() -> str:
        "Be quick."
        return "done"

    def brain(request):
        if isinstance(request.messages[-1], UserMessage):
            return [call("slow")]
        if life == "2":
            return error_info("overloaded", "busy", retry_after_ms=1_500)
        return "all done"

    async def main():
        kit = perdure.Extension(name="kit", tools=[slow, quick])
        settings = perdure.Settings(retry=perdure.RetryPolicy(base_delay_ms=1, jitter=0.0))
        models = [perdure.ScriptedModel(brain)]
        async with perdure.System.open(store, models=models, extensions=[kit], settings=settings) as system:
            root = await (await system.session("s")).root(agent=perdure.Agent(model="scripted/model"))
            answer = await root.submit("go", request_id="one")
            if life == "2":
                async with await root.watch() as watch:
                    async for value, _ in watch:
                        if "retry" in str(value):
                            print("waiting", flush=True)
                            break
            print((await answer.wait()).text, flush=True)

    asyncio.run(main())
"""


def life(tmp_path, number, until):
    """Run the worker until it says something, then kill it; the last one ends by itself."""
    arguments = [sys.executable, "-c", textwrap.dedent(WORKER), tmp_path / "store.db", tmp_path / "spans", str(number)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as worker:
        for line in worker.stdout:
            if line.strip() == until:
                break
        else:
            raise AssertionError(f"life {number} never said {until!r}")
        worker.send_signal(signal.SIGKILL)


def test_one_trace_and_one_tree_over_two_kills(tmp_path):
    life(tmp_path, 1, "in the tool")
    life(tmp_path, 2, "waiting")
    life(tmp_path, 3, "all done")
    spans = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    assert len({span["context"]["trace_id"] for span in spans}) == 1
    ids = [span["context"]["span_id"] for span in spans]
    assert len(ids) == len(set(ids))
    above = {span["context"]["span_id"]: span["parent_id"] for span in spans}
    names = {span["context"]["span_id"]: span["name"] for span in spans}
    assert [names[one] for one, parent in above.items() if parent is None] == ["invoke_agent"]
    assert all(parent is None or parent in names for parent in above.values())
    chain = {(names[one], names.get(parent)) for one, parent in above.items()}
    assert chain >= {
        ("execute_tool quick", "execute_tool slow"),
        ("inside", "execute_tool slow"),
        ("execute_tool slow", "turn"),
        ("turn", "invoke_agent"),
        ("chat model", "turn"),
    }
