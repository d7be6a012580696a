import pytest
from perdure import EntryRecord
from perdure.actors.chaos import requests
from perdure.actors.chaos.requests import bodies, transcript_problems
from perdure.actors.models import AssistantMessage, ModelRequest, UserMessage, call, text, to_json
from perdure.actors.models.testing_requests import request_problems


def entries(*said):
    return [
        EntryRecord(id=number, conversation_id=1, kind="x", model=[to_json(message)])
        for number, message in enumerate(said, 2)
    ]


def test_a_transcript_is_rendered_in_every_protocol():
    request = ModelRequest(messages=[UserMessage(content="go")])
    assert [api for api, _ in bodies(request)] == ["anthropic-messages", "openai-responses", "openai-completions"]
    assert all(request_problems(api, body) == [] for api, body in bodies(request))


@pytest.mark.parametrize(
    "said",
    [
        [],
        [UserMessage(content="go")],
        [UserMessage(content="go"), AssistantMessage(content=[call("look", "c1")], stop_reason="toolUse")],
        [UserMessage(content=" "), AssistantMessage(content=[text("")], stop_reason="stop")],
    ],
)
def test_whatever_is_stored_makes_a_valid_request(said):
    """An open call is answered, and what is blank is left out, when the context is derived."""
    assert list(transcript_problems(entries(*said))) == []


def test_a_problem_is_named_with_the_protocol_that_has_it(monkeypatch):
    broken = [EntryRecord(id=2, conversation_id=1, kind="x", model=[{"role": "nobody"}])]
    (problem,) = transcript_problems(broken)
    assert problem.startswith("no context can be derived")
    monkeypatch.setattr(requests, "bodies", lambda request: [("openai-responses", {"model": "gpt", "input": []})])
    found = list(transcript_problems(entries(UserMessage(content="go"))))
    assert found
    assert all(one.startswith("openai-responses: ") for one in found)
