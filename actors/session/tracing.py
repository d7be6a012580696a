"""OpenTelemetry spans of work that outlives processes: one trace, whoever goes on with it.

A span has its place in a trace before it begins. What may outlive a process (a run, a task) stores the place above its
own; its own follows from that and from what it is, so every process knows it. Such a span is made as a whole once its
end is durable, by the process that ended it: a kill leaves none that never ends, and none that somebody else hangs
below in vain. Only a kill between that commit and the export loses one. What lives in one process only (a model request)
is an ordinary span, and is made again when the work is.

Nothing here imports OpenTelemetry: a host that has configured a tracer provider has done so. Without one, every function
costs a look-up and gives None. What a provider raises is reported, and ends nothing. Proved by
tests/actors/agent/test_tracing.py.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any

import msgspec
import structlog

log = structlog.get_logger("perdure.session")

SCOPE = "perdure"
NONE = "0" * 16
"""The place above a trace's first span."""

_ids: ContextVar[tuple[int, int] | None] = ContextVar("perdure_span_ids", default=None)


class EndedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span whose work has ended: ``above`` and ``place`` are W3C traceparents, times are ms since the epoch."""

    name: str
    above: str
    place: str
    started_at: int
    ended_at: int
    attributes: dict[str, Any]
    error: str | None = None
    """The ``error.type`` of work that failed."""


class _Ids:
    """Gives a span the ids of its place, if it has one, else those of the provider's own generator."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def generate_trace_id(self) -> int:
        given = _ids.get()
        return int(self._own.generate_trace_id()) if given is None else given[0]

    def generate_span_id(self) -> int:
        given = _ids.get()
        return int(self._own.generate_span_id()) if given is None else given[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def tracer() -> Any:
    """Give perdure's tracer; None when nobody has configured a provider."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is not None:
        with _quietly("tracer"):
            return _tracer(api)
    return None


def _tracer(api: Any) -> Any:
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    found = provider.get_tracer(SCOPE)
    own = getattr(found, "id_generator", None)
    if own is not None and not isinstance(own, _Ids):
        found.id_generator = _Ids(own)
    return found


def here() -> str | None:
    """Give the place that new work is put under: the current span, or else a new trace. None without a provider."""
    found = tracer()
    if found is not None:
        with _quietly("trace"):
            return _here(found)
    return None


def _here(found: Any) -> str:
    current = _api().get_current_span().get_span_context()
    if current.is_valid:
        return _traceparent(current.trace_id, f"{current.span_id:016x}", current.trace_flags)
    # The provider begins a trace: its id, and whether it is sampled. The span itself is never ended.
    unused = found.start_span("trace").get_span_context()
    return _traceparent(unused.trace_id, NONE, unused.trace_flags)


def below(above: str, *what: object) -> str:
    """Give the place of a piece of work under another place. The same work has the same place in every process."""
    version, trace_id, _, flags = above.split("-")
    name = "\0".join([trace_id, *map(str, what)])
    return f"{version}-{trace_id}-{blake2b(name.encode(), digest_size=8).hexdigest()}-{flags}"


@contextmanager
def under(place: str | None) -> Iterator[None]:
    """Have spans and work that begin inside the block hang below a place."""
    if place is None or tracer() is None:
        yield
        return
    context: Any = sys.modules["opentelemetry.context"]
    token = context.attach(_context(place))
    try:
        yield
    finally:
        context.detach(token)


def emit(span: EndedSpan) -> None:
    """Make a span of work that has ended."""
    found = tracer()
    if found is not None and _flags(span.place) & 1:
        with _quietly(span.name):
            _emit(found, span)


def _emit(found: Any, span: EndedSpan) -> None:
    _, trace_id, span_id, _ = span.place.split("-")
    token = _ids.set((int(trace_id, 16), int(span_id, 16)))
    try:
        made = found.start_span(
            span.name, _context(span.above), attributes=span.attributes, start_time=_ns(span.started_at)
        )
    finally:
        _ids.reset(token)
    if span.error is not None:
        failed(made, span.error)
    made.end(_ns(span.ended_at))


@contextmanager
def client_span(name: str, attributes: Mapping[str, Any]) -> Iterator[Any]:
    """Give the current span of a request to somebody else while the block runs; None without a provider."""
    found = tracer()
    if found is None:
        yield None
        return
    context: Any = sys.modules["opentelemetry.context"]
    span: Any = None
    token: Any = None
    with _quietly(name):
        span = found.start_span(name, kind=_api().SpanKind.CLIENT, attributes=attributes)
        token = context.attach(_api().set_span_in_context(span))
    if token is None:
        yield None
        return
    try:
        yield span
    except BaseException as error:
        failed(span, type(error).__name__)
        raise
    finally:
        context.detach(token)
        with _quietly(name):
            span.end()


@contextmanager
def _quietly(span: str) -> Iterator[None]:
    """Report what a provider raises: what is traced matters more."""
    try:
        yield
    except Exception:
        log.exception("tracing_failed", span=span)


def failed(span: Any, error: str) -> None:
    """Mark a span as failed, by what kind of failure it was: messages may say what is not for everybody."""
    with _quietly("failed"):
        span.set_attribute("error.type", error)
        span.set_status(_api().StatusCode.ERROR)


def describe(span: Any, attributes: Mapping[str, Any]) -> None:
    """Say more of a span that has begun."""
    with _quietly("attributes"):
        span.set_attributes(attributes)


def _api() -> Any:
    return sys.modules["opentelemetry.trace"]


def _context(place: str) -> Any:
    """Make the context of whatever hangs below a place."""
    api, context = _api(), sys.modules["opentelemetry.context"].Context()
    _, trace_id, span_id, _ = place.split("-")
    if span_id == NONE:
        return context
    flags = api.TraceFlags(_flags(place))
    above = api.SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=flags)
    return api.set_span_in_context(api.NonRecordingSpan(above), context)


def _traceparent(trace_id: int, span_id: str, flags: int) -> str:
    return f"00-{trace_id:032x}-{span_id}-{flags:02x}"


def _flags(place: str) -> int:
    return int(place.rpartition("-")[2], 16)


def _ns(ms: int) -> int:
    return ms * 1_000_000
