"""One classification of provider failures: same cause, same kind, whichever provider or SDK reported it.

Structure decides where there is any: the provider's error code or type, then the HTTP status. The phrases further down
serve servers that give neither; they are matched without regard to case. Overflow is looked for before anything else,
since servers report it under every status and code, and only shrinking the request helps.

Kinds, and what they ask of the caller:

| kind | retry | |
|---|---|---|
| auth, billing, invalid_request, refusal | no | somebody must change something |
| overflow | no | the context is too long: compact, then ask again |
| rate_limit, overloaded, server, transport, timeout, malformed | yes | after `retry_after_ms`, or a backoff |
| aborted, unknown | no | |

This module imports no SDK: exceptions are read by the names of their classes and attributes.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from .messages import ErrorInfo, ErrorKind

_T = TypeVar("_T")

MAX_MESSAGE = 4_000
"""Characters of a provider's error text that are kept; a whole HTML page may stand there."""

_RETRYABLE: frozenset[ErrorKind] = frozenset(
    {"rate_limit", "overloaded", "server", "transport", "timeout", "malformed"}
)

# Error codes and types of both vendors and of servers that speak their protocols (llama.cpp's own among them).
_CODES: dict[str, ErrorKind] = {
    "authentication_error": "auth",
    "permission_error": "auth",
    "invalid_api_key": "auth",
    "billing_error": "billing",
    "insufficient_quota": "billing",
    "enforced_spend_limit_reached": "billing",
    "contract_spend_limit_reached": "billing",
    "subscription_sharing_usage_limit_exceeded": "billing",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "overloaded_error": "overloaded",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "compaction_unavailable": "overloaded",
    "api_error": "server",
    "server_error": "server",
    "unavailable_error": "server",
    "vector_store_timeout": "server",
    "timeout_error": "timeout",
    "request_too_large": "overflow",
    "context_length_exceeded": "overflow",
    "exceed_context_size_error": "overflow",
    "model_context_window_exceeded": "overflow",
    "invalid_request_error": "invalid_request",
    "not_found_error": "invalid_request",
    "conflict_error": "invalid_request",
    "model_not_found": "invalid_request",
    "invalid_prompt": "refusal",
    "bio_policy": "refusal",
    "cyber_policy": "refusal",
    "misalignment_policy_violation": "refusal",
    "content_filter": "refusal",
    "content_policy_violation": "refusal",
}

_STATUSES: dict[int, ErrorKind] = {
    401: "auth",
    402: "billing",
    403: "auth",
    408: "timeout",
    413: "overflow",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    524: "timeout",
    529: "overloaded",
}

_OVERFLOW = (
    r"prompt (is )?too long",
    r"prompt exceeds max length",
    r"input is too long for requested model",
    r"exceeds? the context window",
    r"exceeds? (the )?(model'?s )?maximum context length",
    r"context window exceed",
    r"exceeds the maximum number of tokens|input token count.*exceeds the maximum",
    r"maximum prompt length is \d",
    r"reduce the length of the messages",
    r"maximum context length is \d+ tokens",
    r"exceeds the maximum allowed input length",
    r"input \(\d+ tokens\) is longer than the model's context",
    r"exceeds the limit of \d",
    r"exceeds the available context size",
    r"greater than the context length",
    r"exceeded model token limit",
    r"too large for model with \d+ maximum context",
    r"prompt has \d+ tokens, but the configured context size",
    r"model_context_window_exceeded|context_length_exceeded|request_too_large",
    r"exceeded (max )?context length",
    r"range of input length should be",
    r"too many tokens|token limit exceeded|exceed context limit",
)
_NOT_OVERFLOW = (r"throttling error:", r"service unavailable:", r"rate limit", r"too many requests")

_BILLING = (
    r"GoUsageLimitError|FreeUsageLimitError",
    r"monthly usage limit reached",
    r"available balance",
    r"credit balance is too low",
    r"insufficient_quota|out of budget|quota exceeded|billing",
    r"subscription_sharing_(workplace_)?usage_limit_exceeded",
    r"\"?code\"?\s*[:=]\s*\"?1308\b",
)

_PHRASES: tuple[tuple[ErrorKind, tuple[str, ...]], ...] = (
    ("auth", (r"could not resolve authentication", r"missing credentials|api_key client option must be set")),
    (
        "overloaded",
        (
            r"overloaded|server_busy|servers are currently busy|experiencing high demand|model is at capacity",
            r"service (is |temporarily )*unavailable|resourceexhausted|\b(503|529)\b",
            r"subscription_sharing_(usage|user)_unavailable",
        ),
    ),
    ("rate_limit", (r"rate.?limit|too many requests|throttl|\b429\b|retry delay",)),
    ("timeout", (r"timed? ?out|etimedout|\b(504|524)\b|did not get a response",)),
    (
        "transport",
        (
            r"network error|connection error|connection (was )?(refused|lost|closed|reset)|other side closed",
            r"fetch failed|request to \S+ failed, reason|getaddrinfo|enotfound|eai_again|upstream connect",
            r"econnreset|econnaborted|econnrefused|epipe|reset before headers|socket hang up",
            r"socket connection was closed|websocket (closed|error|connection limit reached)|http2 stream failed",
            r"peer closed connection|incomplete chunked read|terminated|ended without|stream was interrupted",
            r"stream (ended|disconnected) before|cut short after the reply had begun|upstream_stream_read_error",
        ),
    ),
    (
        "server",
        (
            r"server error|internal error|\b(500|502|520)\b|provider returned (an )?error|exceeded request buffer",
            r"unable to forward upstream|upstream request failed|pending stream has been canceled",
            r"(you can |please )?retry your request|try your request again",
        ),
    ),
)

# Classes of httpx, of both SDKs and of Python, by name: the SDKs take seconds to import, and a bare transport error of
# their HTTP library reaches us as well as their own wrapper around it.
_CLASSES: tuple[tuple[ErrorKind, frozenset[str]], ...] = (
    ("timeout", frozenset({"TimeoutException", "APITimeoutError", "TimeoutError"})),
    ("malformed", frozenset({"JSONDecodeError", "APIResponseValidationError", "UnicodeDecodeError", "DecodingError"})),
    ("auth", frozenset({"CredentialsError"})),
    ("transport", frozenset({"TransportError", "APIConnectionError", "StreamError", "OSError"})),
)


class ProviderFailure(Exception):
    """Ends a stream with a failure that is classified already; never leaves an adapter."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


def classify(
    message: str,
    *,
    codes: Iterable[str | None] = (),
    status: int | None = None,
    retry_after_ms: int | None = None,
    request_id: str | None = None,
) -> ErrorInfo:
    """Classify a failure by what is known of it.

    `codes` are the provider's own words for it, the most exact one first; `status` is the HTTP status (200 when the
    failure came inside a stream); the wait and the request id are passed on.
    """
    known = [code for code in codes if code]
    kind = _kind(message, known, status)
    return error_info(
        kind, message, status=status, code=_first(known), retry_after_ms=retry_after_ms, request_id=request_id
    )


def error_info(kind: ErrorKind, message: str, **details: Any) -> ErrorInfo:
    """An `ErrorInfo` of a kind that is already known; the message is bounded, the rest passed on."""
    return ErrorInfo(kind=kind, message=message[:MAX_MESSAGE] or kind, retryable=kind in _RETRYABLE, **details)


def from_exception(error: BaseException, *, now: int) -> ErrorInfo:
    """Classify what an SDK, its HTTP library or Python raised. `now` (ms since 1970) dates a `retry-after` date."""
    if isinstance(error, ProviderFailure):
        return error.info
    status = getattr(error, "status_code", None)
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    codes = list(_codes_of(error))
    if status is None and not codes and (kind := _class_kind(error)) is not None:
        return error_info(kind, _describe(error))
    return classify(
        _describe(error),
        codes=codes,
        status=status,
        retry_after_ms=retry_after_ms(headers, now=now),
        request_id=getattr(error, "request_id", None),
    )


def retry_after_ms(headers: Mapping[str, str], *, now: int) -> int | None:
    """The wait that a server asks for, from `retry-after-ms`, or `retry-after` in seconds or as a date."""
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            return max(0, round(float(milliseconds)))
        value = headers.get("retry-after", "")
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
            return round(float(value) * 1000)
        return max(0, _date_ms(value) - now) if value else None
    except (ValueError, OverflowError):
        return None


def _date_ms(value: str) -> int:
    from email.utils import parsedate_to_datetime  # costs 20 ms to import and is hardly ever needed

    return round(parsedate_to_datetime(value).timestamp() * 1000)


def _kind(message: str, codes: list[str], status: int | None) -> ErrorKind:
    by_code = _first(_CODES[code] for code in codes if code in _CODES)
    if by_code == "overflow" or (status not in (401, 402, 403, 429) and _is_overflow(message)):
        return "overflow"
    if by_code == "billing" or _matches(_BILLING, message):
        return "billing"
    return by_code or _by_status(status) or _by_phrase(message)


def _is_overflow(message: str) -> bool:
    return _matches(_OVERFLOW, message) and not _matches(_NOT_OVERFLOW, message)


def _by_status(status: int | None) -> ErrorKind | None:
    if status is None or status < 400:
        return None
    return _STATUSES.get(status) or ("server" if status >= 500 else "invalid_request")


def _by_phrase(message: str) -> ErrorKind:
    return _first(kind for kind, phrases in _PHRASES if _matches(phrases, message)) or "unknown"


def _matches(phrases: Iterable[str], message: str) -> bool:
    return any(re.search(phrase, message, re.IGNORECASE) for phrase in phrases)


def _class_kind(error: BaseException) -> ErrorKind | None:
    names = {cls.__name__ for cls in type(error).__mro__}
    return _first(kind for kind, classes in _CLASSES if names & classes)


def _codes_of(error: BaseException) -> Iterable[str]:
    """The words of an SDK error, most exact first; a server may wrap its error once more than the protocol says."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    places = [getattr(error, "error_code", None), getattr(error, "code", None), getattr(error, "type", None)]
    if isinstance(inner, dict):
        places += [inner.get("code"), inner.get("type")]
    # llama.cpp puts the HTTP status where the code belongs.
    return (place for place in places if isinstance(place, str) and not place.isdigit())


def _describe(error: BaseException) -> str:
    """The error's own text, or its class where it has none (a read timeout's message is empty)."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(inner, dict) and isinstance(inner.get("message"), str):
        return inner["message"] or type(error).__name__
    if isinstance(error, json.JSONDecodeError):
        return f"The server sent broken JSON: {error}"
    return str(error) or type(error).__name__


def _first(values: Iterable[_T]) -> _T | None:
    return next(iter(values), None)
