"""For every history: no provider can refuse its request, a longer one begins with the shorter one, byte for byte, and
what is derived and written down step by step is what is derived and written down at once."""

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.actors.conversation.context import Derivation, active_range, decode, derive
from perdure.actors.conversation.rounds import late_news, missing_result
from perdure.actors.models import (
    AssistantMessage,
    Image,
    ModelRequest,
    SystemMessage,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
    anthropic,
    call,
    context_tokens,
    from_json,
    openai,
    openai_chat,
    text,
    tool_calls,
)
from perdure.actors.models.anthropic_profile import profile_of
from perdure.actors.models.anthropic_render import render_request
from perdure.actors.models.chat_render import render_chat_request
from perdure.actors.models.growing import Growing
from perdure.actors.models.openai_profile import OpenAIProfile
from perdure.actors.models.responses_render import render_responses_request
from perdure.testing import request_problems

from .histories import MODELS, histories, mark
from .support import entry, problems

EXAMPLES = settings(derandomize=True, deadline=None, max_examples=40)


class Case(NamedTuple):
    """A model as it is asked over its protocol."""

    model: str
    field: str
    render: Callable


def claude(name):
    model = anthropic(MODELS[name][2])
    return lambda request: render_request(request, model, profile_of(model.id), cache_ttl="5m")


def responses(**profile):
    model = openai("gpt-6-sol")
    return lambda request: render_responses_request(request, model, OpenAIProfile(**profile))


def chat(**profile):
    model = openai_chat("llama", provider="local")
    return lambda request: render_chat_request(request, model, OpenAIProfile(**profile))


CASES = {
    "claude, changes in place": Case("claude", "messages", claude("claude")),
    "claude, changes told": Case("haiku", "messages", claude("haiku")),
    "responses, vendor": Case("gpt", "input", responses(vendor=True, reasons=True)),
    "responses, other server": Case("gpt", "input", responses()),
    "chat, vendor": Case("chat", "messages", chat(vendor=True)),
    "chat, other server": Case("chat", "messages", chat(reasoning_field="reasoning_content")),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
LEVELS = st.sampled_from(["off", "low", "high"])


def requested(case, messages, level="off"):
    return case.render(ModelRequest(messages=messages, thinking_level=level))


def speakers(body):
    """Who says what of a request, in order."""
    items = body.get("messages") or body["input"]
    return [item.get("role") or ("result" if "output" in item else "assistant") for item in items]


@each_case
@EXAMPLES
@given(entries=histories(), level=LEVELS)
def test_no_provider_can_refuse_it(case, entries, level):
    """B119, B151, CX-08: whatever crash, abort, fork, compaction, edit or change of model came before."""
    body = requested(case, derive(entries).messages, level)
    api = MODELS[case.model][1]
    assert request_problems(api, body, signatures=[mark(case.model)]) == []
    sent = json.dumps(body)
    assert [other for other in MODELS if other != case.model and mark(other) in sent] == []


@EXAMPLES
@given(entries=histories())
def test_the_neutral_context_is_in_order_too(entries):
    """CX-02, CX-09: for adapters that users write."""
    assert problems(derive(entries).messages) == []


@each_case
@EXAMPLES
@given(entries=histories(), level=LEVELS)
def test_a_longer_request_begins_with_the_shorter_one_byte_for_byte(case, entries, level):
    """B140, B055: between heads and edits, from each answered request on, late results and all."""
    for at, one in enumerate(entries):
        quiet = next((n for n in range(at, len(entries)) if entries[n].head or entries[n].edits), len(entries))
        if quiet > at and answers(one):
            before, after, later = (
                requested(case, derive(entries[:end]).messages, level) for end in (at, at + 1, quiet)
            )
            if binds(before, after, later):
                sent = json.dumps(before[case.field], ensure_ascii=False)
                assert json.dumps(later[case.field], ensure_ascii=False).startswith(sent[:-1])
                assert speakers(later)[len(before[case.field])] == "assistant"
                tops = [[body.get(key) for key in ("system", "instructions", "tools")] for body in (before, later)]
                assert tops[0] == tops[1]


def answers(one):
    """Whether a request was answered here."""
    return len(one.model or ()) == 1 and one.model[0]["role"] == "assistant"


def binds(before, after, later):
    """Whether a request was answered so that it is sent again, by services that can be told of changed tools in place.

    An answer that failed or said nothing is not sent, and binds nobody. Tools that are withdrawn or redefined have to be
    rewritten where that cannot be told in place; then the prefix is gone in any case.
    """
    rewritten = before.get("tools") != later.get("tools") or added(later)[: len(added(before))] != added(before)
    return not rewritten and speakers(after).count("assistant") > speakers(before).count("assistant")


def added(body):
    """The tools that a Responses request adds where its transcript does."""
    return [item for item in body.get("input", ()) if item.get("type") == "additional_tools"]


@each_case
def test_a_golden_transcript_is_in_order_on_every_wire(case):
    """B151, B104, B107: parallel calls, an error, pictures good and bad, a steer behind results, a change of model."""
    provider, api, name = MODELS[case.model]
    own = {"provider": provider, "api": api, "model": name}
    good, empty, odd = (
        Image(data=data, mime_type=f"image/{kind}") for data, kind in (("aGk=", "png"), ("", "png"), ("aGk=", "tiff"))
    )
    transcript = [
        SystemMessage(content="Be brief.", tools_added=[ToolSpec(name="read", description="", parameters={})]),
        UserMessage(content=[text("What is this?"), good, odd]),
        AssistantMessage(
            content=[call("read", "1"), call("read", "2"), call("read", "3")], stop_reason="toolUse", **own
        ),
        ToolResultMessage(tool_call_id="2", tool_name="read", content=[text("no"), good], is_error=True),
        ToolResultMessage(tool_call_id="1", tool_name="read", content=[good, empty]),
        ToolResultMessage(tool_call_id="3", tool_name="read", content=[text(r"\ud800")]),
        UserMessage(content="Stop."),
        AssistantMessage(content=[text("Well.")], provider="elsewhere", model="other"),
        UserMessage(content="Go on."),
    ]
    entries = [entry(number, message) for number, message in enumerate(transcript, start=1)]
    body = requested(case, derive(entries).messages)
    assert request_problems(api, body) == []
    sent = json.dumps(body[case.field])
    assert sent.count("aGk=") == 3
    assert sent.count("picture left out") == 2
    assert sent.count(r"\\ud800") == 1
    assert [sent.index(word) for word in ("Stop.", "Well.", "Go on.")] == sorted(
        sent.index(word) for word in ("Stop.", "Well.", "Go on.")
    )


# --- step by step and at once


class Kept:
    """A range that grows entry by entry, as conversations keep it."""

    def __init__(self):
        self.all = []
        self.begin([])

    def begin(self, entries):
        self.active = Growing(entries)
        self.derivation = Derivation(self.active, decode)

    def add(self, entry):
        self.all.append(entry)
        if entry.head is None:
            self.active.items.append(entry)
        else:
            self.begin(active_range(self.all, entry))


@EXAMPLES
@given(entries=histories(), data=st.data())
def test_what_is_derived_step_by_step_is_what_is_derived_at_once(entries, data):
    """CX-12, P10; and both are what the rules say, written down in another way."""
    kept, shown = Kept(), []
    for at, one in enumerate(entries):
        kept.add(one)
        if data.draw(st.booleans()):
            view = kept.derivation.view()
            assert view == derive(entries[: at + 1])
            assert view.messages == expected(entries[: at + 1])
            assert view.newest == one.id
            shown.append((view, list(view.messages)))
    assert all(view.messages == then for view, then in shown)  # nothing that was handed out has changed


@each_case
@settings(EXAMPLES, max_examples=20)
@given(entries=histories(size=6), level=LEVELS)
def test_what_is_written_down_step_by_step_is_what_is_written_down_at_once(case, entries, level):
    """P10: requests, and the weight of a context."""
    kept = Kept()
    for one in entries:
        kept.add(one)
        messages = kept.derivation.view().messages
        assert requested(case, messages, level) == requested(case, list(messages), level)
        assert context_tokens(messages) == context_tokens(list(messages))


def expected(entries):
    """The context of entries by the rules, without any state: rounds are looked up in the list of what was said."""
    marker = max((entry for entry in entries if entry.head is not None), key=lambda entry: entry.id, default=None)
    active = [entry for entry in entries if entry.head is None and (marker is None or entry.id >= marker.head)]
    if marker is not None:
        active.insert(0, marker)
    edits = {edit.target: edit for entry in sorted(active, key=lambda entry: entry.id) for edit in entry.edits or ()}
    stored = [edits[entry.id].messages if entry.id in edits else entry.model for entry in active]
    said = [from_json(value) for values in stored for value in values or ()]
    return prompt_first(in_rounds([one for one in said if getattr(one, "stop_reason", "stop") not in UNFINISHED]))


UNFINISHED = ("error", "aborted", "deferred", "pending")


def in_rounds(said):
    arranged, missing = [], set()
    while said:
        message = said.pop(0)
        if isinstance(message, ToolResultMessage):
            arranged += news(message, missing)
            continue
        arranged.append(message)
        calls = tool_calls(message) if isinstance(message, AssistantMessage) else []
        answers, held = [None] * len(calls), []
        while None in answers and said and isinstance(said[0], ToolResultMessage | SystemMessage):
            following = said.pop(0)
            places = [i for i, call in enumerate(calls) if answers[i] is None and call.id == answered(following)]
            if places:
                answers[places[0]] = following
            else:
                held += news(following, missing) if isinstance(following, ToolResultMessage) else [following]
        missing |= {call.id for call, answer in zip(calls, answers, strict=True) if answer is None}
        pairs = zip(calls, answers, strict=True)
        arranged += [answer or missing_result(call.id, call.name, message.timestamp) for call, answer in pairs]
        arranged += held
    return arranged


def answered(message):
    return getattr(message, "tool_call_id", None)


def news(result, missing):
    if result.tool_call_id not in missing:
        return []
    missing.discard(result.tool_call_id)
    return [late_news(result)]


def prompt_first(messages):
    first = next((i for i, message in enumerate(messages) if isinstance(message, SystemMessage)), 0)
    if all(isinstance(message, UserMessage) for message in messages[:first]):
        return [messages[first], *messages[:first], *messages[first + 1 :]] if messages else []
    return messages
