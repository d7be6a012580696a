"""What a provider would refuse in a request: one judge for all protocols that the adapters speak."""

from collections.abc import Iterable
from typing import Any

from .testing_chat import chat_problems
from .testing_messages import problems
from .testing_responses import responses_problems


def request_problems(api: str, body: dict[str, Any], *, signatures: Iterable[str] = ()) -> list[str]:
    """What a strict provider would refuse the body of a request for, in words; empty when nothing.

    `api` is "anthropic-messages", "openai-responses" or "openai-completions", as a model's; `body` is what the SDK's
    `create` is called with, or what a `ProtocolServer` received. `signatures` are those of thinking that the asked model
    made (the first API only): any other is refused. Raises KeyError for another API.
    """
    if api == "anthropic-messages":
        return problems(body, signatures=signatures)
    return {"openai-responses": responses_problems, "openai-completions": chat_problems}[api](body)
