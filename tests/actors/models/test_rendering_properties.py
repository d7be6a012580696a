"""Any transcript at all becomes a request that its provider accepts, and longer ones begin as shorter ones did."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.models import (
    AssistantMessage,
    Image,
    ModelRequest,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolRef,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
    anthropic,
    openai,
    openai_chat,
)
from perdure.actors.models.anthropic_profile import profile_of
from perdure.actors.models.anthropic_render import render_request
from perdure.actors.models.chat_render import render_chat_request
from perdure.actors.models.openai_profile import OpenAIProfile
from perdure.actors.models.responses_render import render_responses_request
from perdure.actors.models.testing_chat import chat_problems
from perdure.actors.models.testing_messages import problems as messages_problems
from perdure.actors.models.testing_responses import responses_problems
from perdure.actors.models.turns import ModelTurn, ResultsTurn

from .support import arranged

OWN_SIGNATURE = "own=="
FOREIGN = "foreign=="

# Few ids, so that they collide; among them those of B095 and B149.
ids = st.sampled_from(["a", "b", "x", "", "functions.bash:0", "a.b", "a_b", "é", "y" * 64, "y" * 64 + "z", "y" * 446])
names = st.sampled_from(["read", "write", "", "not a name!", "n" * 90])
texts = st.sampled_from(["", " ", "\n", "hello", "wörld 😀", "x" * 50])
images = st.sampled_from([Image(data="aGk=", mime_type="image/png"), Image(data="", mime_type="image/tiff")])
contents = st.lists(texts.map(lambda t: Text(text=t)) | images, max_size=3)
tools = st.lists(names, max_size=2).map(lambda n: [ToolSpec(name=x, description="", parameters={}) for x in n] or None)


opaque = st.sampled_from(
    [
        Opaque(provider="p", api="a", data={"type": "server_tool_use", "id": "s1", "name": "search", "input": {}}),
        Opaque(provider="p", api="a", data={"type": "search_result", "tool_use_id": "s1", "content": []}),
        Opaque(provider="p", api="a", data="odd"),
    ]
)


def thoughts(mark):
    """Thinking as every provider leaves it, with and without what makes it valid."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    return st.sampled_from(
        [
            Thinking(thinking="hm", provider_data={"signature": mark}),
            Thinking(thinking="", redacted=True, provider_data={"data": mark}),
            Thinking(thinking="hm", provider_data={**reasoning, "encrypted_content": mark}),
            Thinking(thinking="hm", provider_data=reasoning),
            Thinking(thinking="hm", provider_data={"field": "reasoning_content"}),
            Thinking(thinking="unsigned"),
            Thinking(thinking="", redacted=True),
        ]
    )


added = st.sampled_from([None, {"id": "msg_1", "phase": "commentary"}])
said = st.builds(lambda value, data: Text(text=value, provider_data=data), texts, added)
calls = st.builds(
    lambda call_id, name, data: ToolCall(id=call_id, name=name, arguments={"p": 1}, provider_data=data),
    ids,
    names,
    added,
)
stops = st.sampled_from(["stop", "stop", "stop", "toolUse", "length", "error", "aborted", "deferred", "pending"])


@st.composite
def answers(draw):
    """A model's message: the asked model's own, of another model there, or from elsewhere."""
    whose = draw(st.sampled_from(["own", "own", "other", "elsewhere"]))
    mark = OWN_SIGNATURE if whose == "own" else FOREIGN
    blocks = draw(st.lists(said | calls | calls | thoughts(mark) | opaque | images, max_size=4))
    return AssistantMessage(content=blocks, stop_reason=draw(stops), model=whose)


system = st.builds(
    SystemMessage,
    content=texts,
    sections=st.none() | st.dictionaries(st.sampled_from(["cwd", "mode"]), st.none() | texts, max_size=2),
    tools_added=tools,
    tools_removed=st.none() | st.just([ToolRef(name="read")]),
)
user = st.builds(UserMessage, content=texts | contents)
result = st.builds(ToolResultMessage, tool_call_id=ids, tool_name=names, content=contents, is_error=st.booleans())
transcripts = st.lists(system | user | answers() | answers() | result | result, max_size=14)


def claude(profile):
    model = anthropic("claude-opus-5-5")
    return model, lambda request: render_request(request, model, profile_of(profile), cache_ttl=None)


def chat(**profile):
    model = openai_chat("gpt")
    return model, lambda request: render_chat_request(request, model, OpenAIProfile(**profile))


def responses(**profile):
    model = openai("gpt")
    return model, lambda request: render_responses_request(request, model, OpenAIProfile(**profile))


def claude_problems(body):
    return messages_problems(body, signatures=[OWN_SIGNATURE])


def roles(body):
    return [message["role"] for message in body["messages"]]


def kinds(body):
    return [item.get("role") or ("result" if "output" in item else "assistant") for item in body["input"]]


# name: (model and how it renders, what its service refuses, where messages stand, who said them)
CASES = {
    "claude, changes in place": (claude("claude-opus-5-5"), claude_problems, "messages", roles),
    "claude, changes told": (claude("claude-haiku-4-5"), claude_problems, "messages", roles),
    "chat, vendor": (chat(vendor=True), chat_problems, "messages", roles),
    "chat, other server": (chat(reasoning_field="reasoning_content"), chat_problems, "messages", roles),
    "responses, vendor": (responses(vendor=True, reasons=True), responses_problems, "input", kinds),
    "responses, other server": (responses(), responses_problems, "input", kinds),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def owned(messages, model):
    """The transcript with the model's own messages marked as its own."""
    identity = {
        "own": {"provider": model.provider, "api": model.api, "model": model.id},
        "other": {"provider": model.provider, "api": model.api, "model": "other"},
        "elsewhere": {"provider": "elsewhere", "api": "other", "model": model.id},
    }
    return [
        msgspec.structs.replace(message, **identity[message.model])
        if isinstance(message, AssistantMessage)
        else message
        for message in messages
    ]


def rendered(render, messages):
    return render(ModelRequest(messages=messages))


@each_case
@given(messages=transcripts)
def test_no_service_can_refuse_it(case, messages):
    (model, render), problems, *_ = case
    body = rendered(render, owned(messages, model))
    assert problems(body) == []
    assert FOREIGN not in json.dumps(body)


@each_case
@given(messages=transcripts)
def test_an_answered_request_is_a_prefix_of_every_later_one(case, messages):
    (model, render), _, field, speakers = case
    messages = owned(messages, model)
    whole = rendered(render, messages)
    for end, message in enumerate(messages):
        before, after = (rendered(render, messages[:cut]) for cut in (end, end + 1))
        # A message that failed or said nothing is not sent, and binds nobody. Tools that are withdrawn or redefined have
        # to be rewritten where that cannot be told in place; then the prefix is gone in any case.
        if before.get("tools") != whole.get("tools") or rewritten(added_in_place(before), added_in_place(whole)):
            continue
        if isinstance(message, AssistantMessage) and answers_in(after, speakers) > answers_in(before, speakers):
            count = len(before[field])
            assert whole[field][:count] == before[field]
            assert speakers(whole)[count] == "assistant"
            assert [whole.get(key) for key in ("system", "instructions")] == [
                before.get(key) for key in ("system", "instructions")
            ]


def added_in_place(body):
    """The tools that a Responses request adds where its transcript does."""
    return [item for item in body.get("input", ()) if item.get("type") == "additional_tools"]


def rewritten(before, after):
    return after[: len(before)] != before


def answers_in(body, speakers):
    return speakers(body).count("assistant")


@given(messages=transcripts)
def test_with_changes_in_place_the_tools_at_the_top_never_change(messages):
    model, render = claude("claude-opus-5-5")
    begun = next((n for n, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    start = rendered(render, messages[:begun])
    assert rendered(render, owned(messages, model)).get("tools") == start.get("tools")


@given(messages=transcripts, length=st.sampled_from([40, 64]))
def test_calls_and_results_pair_one_to_one(messages, length):
    """B095, B149: unique ids on the wire."""
    model, _ = claude("claude-opus-5-5")
    turns = arranged(owned(messages, model), model, id_length=length).turns
    seen = set()
    for turn, following in pairwise([*turns, None]):
        if isinstance(turn, ModelTurn):
            asked = [block.id for block in turn.content if isinstance(block, ToolCall)]
            assert not seen & set(asked)
            assert len(set(asked)) == len(asked)
            seen |= set(asked)
            assert isinstance(following, ResultsTurn) == bool(asked)
            if asked:
                assert [answer.id for answer in following.results] == asked
