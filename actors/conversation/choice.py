"""What someone chooses for a conversation: its model, prompt, extensions and tools, by name.

Stored in ``pi.agent``. Names are looked up when they are used, so one that is not installed now takes effect when it is.
Proved by tests/actors/conversation/test_choice.py.
"""

from typing import Any

import msgspec

from ...chord import copy_json
from ..models import ThinkingLevel
from ..session.errors import InvalidValue
from ..session.tx import BaseTx
from .builtin import AgentDoc


class Agent(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Choices for a conversation. A field left out changes nothing, None clears it.

    ``model`` is "provider/id" (stored as the pair); ``extensions`` and ``tools`` select by name, in order (cleared: all
    that are installed, all that they bring); ``instructions`` are the last part of the system prompt. ``fallbacks`` are
    models to ask, in order, when the one before has failed a run for good; ``deferred`` has providers that can compute
    responses in the background, which takes longer and costs less.
    """

    model: str | msgspec.UnsetType | None = msgspec.UNSET
    thinking_level: ThinkingLevel | msgspec.UnsetType | None = msgspec.UNSET
    extensions: list[str] | msgspec.UnsetType | None = msgspec.UNSET
    tools: list[str] | msgspec.UnsetType | None = msgspec.UNSET
    instructions: str | msgspec.UnsetType | None = msgspec.UNSET
    fallbacks: list[str] | msgspec.UnsetType | None = msgspec.UNSET
    deferred: bool | msgspec.UnsetType | None = msgspec.UNSET


async def configure(tx: BaseTx, conversation_id: int, agent: Agent) -> None:
    """Apply choices to a conversation in any commit, also in the one that creates it. Raises InvalidValue."""
    given = _checked(agent)
    draft = await tx.doc(AgentDoc, conversation_id)
    if given.get("model") is not None:
        given["model"] = model_ref(given["model"])
    if given.get("fallbacks") is not None:
        given["fallbacks"] = [model_ref(name) for name in given["fallbacks"]]
    for name, value in given.items():
        if value is None:
            draft.pop(name, None)
        else:
            draft[name] = value


def _checked(agent: Agent) -> dict[str, Any]:
    try:
        given: dict[str, Any] = copy_json(msgspec.to_builtins(agent))
        msgspec.convert(given, Agent)
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise InvalidValue(f"this is no Agent: {error}") from None
    return given


def model_ref(name: str) -> dict[str, str]:
    """Split "provider/id" into what is stored. Raises InvalidValue."""
    provider, slash, model = name.partition("/")
    if not (provider and slash and model):
        raise InvalidValue(f'name a model as "provider/id", not {name!r}')
    return {"provider": provider, "modelId": model}


def model_name(ref: dict[str, str]) -> str:
    """Give a stored model's name as "provider/id"."""
    return f"{ref['provider']}/{ref['modelId']}"
