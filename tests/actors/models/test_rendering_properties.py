"""Any transcript at all becomes a request that its provider accepts, and longer ones begin as shorter ones did."""

import json
from itertools import pairwise

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
)
from perdure.actors.models.anthropic_profile import profile_of
from perdure.actors.models.anthropic_render import render_request
from perdure.actors.models.testing_messages import problems
from perdure.actors.models.turns import ModelTurn, ResultsTurn, arrange

OWN_SIGNATURE = "own=="
IDENTITIES = {
    "own": {"provider": "anthropic", "api": "anthropic-messages", "model": "claude-opus-5-5"},
    "other model": {"provider": "anthropic", "api": "anthropic-messages", "model": "claude-haiku-4-5"},
    "other server": {"provider": "elsewhere", "api": "openai-completions", "model": "gpt"},
}

# Few ids, so that they collide; among them those of B095 and B149.
ids = st.sampled_from(["a", "b", "x", "", "functions.bash:0", "a.b", "a_b", "é", "y" * 64, "y" * 64 + "z", "y" * 446])
names = st.sampled_from(["read", "write", "", "not a name!", "n" * 90])
texts = st.sampled_from(["", " ", "\n", "hello", "wörld 😀", "x" * 50])
images = st.sampled_from([Image(data="aGk=", mime_type="image/png"), Image(data="", mime_type="image/tiff")])
contents = st.lists(texts.map(lambda t: Text(text=t)) | images, max_size=3)
tools = st.lists(names, max_size=2).map(lambda n: [ToolSpec(name=x, description="", parameters={}) for x in n] or None)


def thinking(signature):
    signed = Thinking(thinking="hm", provider_data={"signature": signature})
    redacted = Thinking(thinking="", redacted=True, provider_data={"data": "x"})
    return st.sampled_from([signed, redacted, Thinking(thinking="unsigned"), Thinking(thinking="", redacted=True)])


opaque = st.sampled_from(
    [
        Opaque(provider="p", api="a", data={"type": "server_tool_use", "id": "s1", "name": "search", "input": {}}),
        Opaque(provider="p", api="a", data={"type": "search_result", "tool_use_id": "s1", "content": []}),
        Opaque(provider="p", api="a", data="odd"),
    ]
)
calls = st.builds(lambda i, n: ToolCall(id=i, name=n, arguments={"p": 1}), ids, names)
stops = st.sampled_from(["stop", "stop", "stop", "toolUse", "length", "error", "aborted", "deferred", "pending"])


@st.composite
def answers(draw):
    whose = draw(st.sampled_from(sorted(IDENTITIES)))
    signature = OWN_SIGNATURE if whose == "own" else "foreign=="
    said = texts.map(lambda t: Text(text=t, provider_data={"citations": []}))
    blocks = draw(st.lists(said | calls | calls | thinking(signature) | opaque | images, max_size=4))
    return AssistantMessage(content=blocks, stop_reason=draw(stops), **IDENTITIES[whose])


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


def taking(profile):
    """A model whose own messages are those of the strategy, with the abilities of another."""
    model = anthropic("claude-opus-5-5")
    model.profile = profile_of(profile)
    return model


MODELS = {
    "changes in place": taking("claude-opus-5-5"),
    "changes told": taking("claude-haiku-4-5"),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def rendered(messages, model):
    return render_request(ModelRequest(messages=messages), model, model.profile, cache_ttl=None)


@each_model
@given(messages=transcripts)
def test_no_service_can_refuse_it(model, messages):
    body = rendered(messages, model)
    assert problems(body, signatures=[OWN_SIGNATURE]) == []
    assert "foreign==" not in json.dumps(body)


@each_model
@given(messages=transcripts)
def test_an_answered_request_is_a_prefix_of_every_later_one(model, messages):
    whole = rendered(messages, model)
    for end, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and says_something(messages, end, model):
            before = rendered(messages[:end], model)
            count = len(before["messages"])
            assert whole["messages"][:count] == before["messages"]
            assert whole["messages"][count]["role"] == "assistant"
            assert whole.get("system") == before.get("system")


def says_something(messages, end, model):
    """Whether message `end` is part of what is sent; one that failed or said nothing binds nobody."""
    before, after = (rendered(messages[:cut], model)["messages"] for cut in (end, end + 1))
    return [m["role"] for m in after].count("assistant") > [m["role"] for m in before].count("assistant")


@given(messages=transcripts)
def test_with_changes_in_place_the_tools_at_the_top_never_change(messages):
    model = taking("claude-opus-5-5")
    begun = next((n for n, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    start = rendered(messages[:begun], model)
    assert rendered(messages, model).get("tools") == start.get("tools")


@each_model
@given(messages=transcripts)
def test_calls_and_results_pair_one_to_one(model, messages):
    """B095, B149: unique ids on the wire, stored ones unchanged where they are valid."""
    turns = arrange(messages, model).turns
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
