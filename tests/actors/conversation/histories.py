"""Random histories: what crashes, aborts, forks, edits, changes of model and old data may leave in a transcript."""

from hypothesis import strategies as st
from perdure.actors.models import (
    AssistantMessage,
    Image,
    Opaque,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolRef,
    ToolResultMessage,
    ToolSpec,
    UserMessage,
    to_json,
)
from perdure.storage.records import ContextEdit, EntryRecord

MODELS = {
    "claude": ("anthropic", "anthropic-messages", "claude-opus-5-5"),
    "haiku": ("anthropic", "anthropic-messages", "claude-haiku-4-5"),
    "gpt": ("openai", "openai-responses", "gpt-6-sol"),
    "chat": ("local", "openai-completions", "llama"),
    "gone": ("elsewhere", "other", "model"),
}
"""Provider, API and id of those who have answered."""


def mark(model):
    """What a model signs its thinking with."""
    return f"signed-by-{model}=="


# Few ids, so that they are used again; among them those that some provider refuses.
ids = st.sampled_from(["a", "b", "c", "", "functions.bash:0", "a.b", "a_b", "é", "y" * 64, "y" * 64 + "z"])
names = st.sampled_from(["read", "write", "", "not a name!", "n" * 90])
texts = st.sampled_from(["", " ", "\n\t", "hello", "wörld 😀", r"\ud800", "\x00", "x" * 50])
images = st.sampled_from([Image(data="aGk=", mime_type="image/png"), Image(data="", mime_type="image/tiff")])
contents = st.lists(st.builds(Text, text=texts) | images, max_size=2)
added = st.none() | st.lists(names, max_size=2).map(
    lambda chosen: [ToolSpec(name=f"t{len(name)}", description="", parameters={"type": "object"}) for name in chosen]
)
users = st.builds(UserMessage, content=texts | contents, timestamp=st.integers(0, 9))
systems = st.builds(
    SystemMessage,
    content=texts,
    sections=st.none() | st.dictionaries(st.sampled_from(["cwd", "mode"]), st.none() | texts, max_size=2),
    tools_added=added,
    tools_removed=st.none() | st.just([ToolRef(name="t4")]),
)


def results(of=ids):
    return st.builds(ToolResultMessage, tool_call_id=of, tool_name=names, content=contents, is_error=st.booleans())


def thoughts(model):
    """Thinking as the model's provider leaves it, with and without what makes it valid."""
    signed = {
        "anthropic-messages": [{"signature": mark(model)}, None],
        "openai-responses": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": mark(model)},
            {"type": "reasoning", "id": "rs_1", "summary": []},
        ],
        "openai-completions": [{"field": "reasoning_content"}, None],
        "other": [{"signature": mark(model)}, {"encrypted_content": mark(model)}],
    }[MODELS[model][1]]
    redacted = Thinking(thinking="", redacted=True, provider_data={"data": mark(model)})
    return st.sampled_from([*(Thinking(thinking="hm", provider_data=data) for data in signed), redacted])


def opaque(model):
    provider, api, _ = MODELS[model]
    data = [
        {"type": "server_tool_use", "id": "s1", "name": "search", "input": {}},
        {"type": "search_result", "tool_use_id": "s1", "content": [], "mark": mark(model)},
    ]
    kept = data if api == "anthropic-messages" else ["odd"]
    return st.sampled_from([Opaque(provider=provider, api=api, data=one) for one in kept])


@st.composite
def answers(draw, stop=None):
    model = draw(st.sampled_from(sorted(MODELS)))
    item = {"id": "msg_1"} if MODELS[model][1] == "openai-responses" else None
    blocks = st.one_of(
        st.builds(Text, text=texts, provider_data=st.sampled_from([None, item])),
        st.builds(
            ToolCall, id=ids, name=names, arguments=st.just({"p": 1}), provider_data=st.sampled_from([None, item])
        ),
        st.builds(ToolCall, id=ids, name=names, arguments=st.just({})),
        thoughts(model),
        opaque(model),
    )
    provider, api, name = MODELS[model]
    endings = st.sampled_from(["stop", "stop", "stop", "toolUse", "length", "error", "aborted", "deferred", "pending"])
    return AssistantMessage(
        content=draw(st.lists(blocks, max_size=4)),
        provider=provider,
        api=api,
        model=name,
        stop_reason=stop or draw(endings),
        timestamp=draw(st.integers(0, 9)),
    )


@st.composite
def rounds(draw):
    """An answer and what came of its calls: all results or some, in any order, twice, late, or with something between."""
    answer = draw(answers(stop="toolUse"))
    asked = [block.id for block in answer.content if isinstance(block, ToolCall)]
    after = draw(st.lists(results(st.sampled_from(asked)) if asked else results(), max_size=4))
    between = draw(st.lists(users | systems | answers(), max_size=1))
    at = draw(st.integers(0, len(after)))
    return [answer, *after[:at], *between, *after[at:]]


spoken = st.one_of(
    users.map(lambda one: [one]),
    systems.map(lambda one: [one]),
    answers().map(lambda one: [one]),
    results().map(lambda one: [one]),
    rounds(),
    rounds(),
)


@st.composite
def histories(draw, *, heads=True, edits=True, size=8):
    """Entries of one conversation, in the order of their ids."""
    entries: list[EntryRecord] = []

    def add(*messages, head=None, changes=None):
        model = [to_json(message) for message in messages] or None
        number = len(entries) + 1
        entries.append(EntryRecord(id=number, conversation_id=1, kind="x", model=model, head=head, edits=changes))

    for _ in range(draw(st.integers(0, size))):
        kind = draw(st.sampled_from(["said"] * 8 + ["note", "two"] + ["head"] * heads + ["edit"] * 2 * edits))
        anywhere = st.integers(1, len(entries) + 2)
        match kind:
            case "said":
                for message in draw(spoken):
                    add(message)
            case "two":
                add(*draw(spoken))
            case "note":
                add()
            case "head":
                target = draw(st.integers(1, len(entries) + 1))
                add(*draw(st.lists(users, max_size=1)), head=target)
            case "edit":
                new = draw(st.none() | spoken)
                stored = None if new is None else [to_json(message) for message in new]
                action = "omit" if new is None else "replace"
                add(changes=[ContextEdit(target=draw(anywhere), action=action, messages=stored)])
    return entries
