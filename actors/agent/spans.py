"""The span of a model request, by OpenTelemetry's conventions for generative AI. Proved by tests/actors/agent/test_tracing.py."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..models import AssistantMessage, Model, ModelRequest
from ..session.tracing import client_span, describe, failed
from ..task.run import Run
from ..task.spans import conversation


@contextmanager
def request(run: Run[Any], model: Model, asked: ModelRequest) -> Iterator[Callable[[AssistantMessage], None]]:
    """Span a request; what the block gives takes the answer. Being told to stop leaves the span without one."""
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": model.provider,
        "gen_ai.request.model": model.id,
        "gen_ai.request.stream": True,
        **conversation(run.session, run.conversation_id),
    }
    if asked.max_tokens is not None:
        said["gen_ai.request.max_tokens"] = asked.max_tokens
    with client_span(f"chat {model.id}", said) as span:
        yield (lambda message: None) if span is None else (lambda message: _answered(span, message))


def _answered(span: Any, message: AssistantMessage) -> None:
    spent = message.usage
    said = {
        "gen_ai.response.model": message.response_model or message.model,
        "gen_ai.response.id": message.response_id,
        "gen_ai.response.finish_reasons": [message.raw_stop_reason or message.stop_reason],
        "gen_ai.usage.input_tokens": spent.input + spent.cache_read + spent.cache_write,
        "gen_ai.usage.output_tokens": spent.output,
        "gen_ai.usage.cache_read.input_tokens": spent.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": spent.cache_write,
        "gen_ai.usage.reasoning.output_tokens": spent.reasoning,
    }
    describe(span, {name: value for name, value in said.items() if value is not None})
    if message.error is not None:
        failed(span, message.error.kind)
