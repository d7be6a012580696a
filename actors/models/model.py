"""What a model is, and the register that finds one by name."""

import difflib
from collections.abc import AsyncGenerator, Callable
from typing import Protocol, TypeAlias, runtime_checkable

from ...chord import PerdureError
from .events import Event
from .messages import AssistantMessage, DeferredHandle
from .request import ModelRequest


class ModelUnavailable(PerdureError):
    """No registered model has this name, and no provider can make one of it. `name` is the name asked for."""

    def __init__(self, name: str, hint: str = "") -> None:
        super().__init__(name, hint)
        self.name = name
        self.hint = hint

    def __str__(self) -> str:
        return f"Model {self.name} is not available" + (f" (did you mean {self.hint}?)" if self.hint else "")


class Model(Protocol):
    """A model at a provider, able to answer requests. Safe for concurrent requests from several event loops."""

    @property
    def name(self) -> str:
        """`provider/id`: how agents and the register call it."""

    @property
    def provider(self) -> str:
        """Who serves it; with `api` and `id`, the border that signatures and opaque blocks never cross."""

    @property
    def id(self) -> str:
        """The provider's name of the model."""

    @property
    def api(self) -> str:
        """The wire protocol."""

    @property
    def context_window(self) -> int:
        """Tokens that prompt and answer together may have; 0 when unknown."""

    @property
    def max_tokens(self) -> int:
        """Tokens that one answer may have."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Event, None]:
        """Answer a request (events.py says in which order).

        Failures do not raise: the stream ends with `Done` whose message has stop reason `error`, its `ErrorInfo`, the
        content so far and the usage known by then. Nothing is retried here. Cancelling the task that consumes the
        stream, or `aclose()` on it, closes the connection at once; who leaves the loop early must `aclose()`.
        """

    async def aclose(self) -> None:
        """Close the connections that the running loop keeps open; a later request opens new ones."""


@runtime_checkable
class DeferringModel(Protocol):
    """A model whose provider can compute responses in the background, beside being a `Model`.

    Its stream ends such a request (`ModelRequest.deferred`) at once, with stop reason `deferred` and a handle.
    """

    async def fetch(self, handle: DeferredHandle) -> AssistantMessage:
        """The response so far: final, or deferred still. A retrieval that failed for now counts as deferred still."""

    async def cancel(self, handle: DeferredHandle) -> None:
        """Tell the provider to stop computing a response. May raise whatever the SDK raises."""


Factory: TypeAlias = Callable[[str], Model]
"""Makes the model with this id at a provider; called once per id, on first use."""


class Models:
    """The models that a system knows, by name (`provider/id`).

    Providers added with `provide` make their models on demand, so that naming a model costs nothing until it is used.
    """

    def __init__(self, *models: Model) -> None:
        self._models: dict[str, Model] = {}
        self._factories: dict[str, Factory] = {}
        for model in models:
            self.add(model)

    def add(self, model: Model) -> None:
        """Register a model under its name; the last one added wins."""
        self._models[model.name] = model

    def provide(self, provider: str, factory: Factory) -> None:
        """Let `factory` make the models of a provider as they are asked for."""
        self._factories[provider] = factory

    def get(self, name: str) -> Model | None:
        """The model of this name, made now if its provider can; None when there is none."""
        if name not in self._models:
            provider, _, model_id = name.partition("/")
            factory = self._factories.get(provider)
            if factory is None or not model_id:
                return None
            self._models[name] = factory(model_id)
        return self._models[name]

    def resolve(self, ref: "str | Model") -> Model:
        """The model that `ref` names, or `ref` itself when it is one.

        Raises `ModelUnavailable` when there is none of this name; the error suggests a near one.
        """
        if not isinstance(ref, str):
            return ref
        model = self.get(ref)
        if model is None:
            near = difflib.get_close_matches(ref, self._models, n=1)
            raise ModelUnavailable(ref, near[0] if near else "")
        return model

    async def aclose(self) -> None:
        """Close the connections that the models keep open on the running loop."""
        for model in self._models.values():
            await model.aclose()

    def names(self) -> list[str]:
        """The names of the models registered or made so far, sorted."""
        return sorted(self._models)
