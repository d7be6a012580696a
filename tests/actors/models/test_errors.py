import json
import sys

import pytest
from perdure.actors.models import classify, error_info, from_exception
from perdure.actors.models.errors import MAX_MESSAGE, ProviderFailure, retry_after_ms

NOW = 1_800_000_000_000

# (message, what is known beside it, kind); B155 asks for one table for all providers.
CASES = [
    ("invalid x-api-key", {"status": 401, "codes": ["authentication_error"]}, "auth"),
    ("Forbidden", {"status": 403}, "auth"),
    ("Bad key", {"status": 401}, "auth"),
    ("No funds", {"status": 402}, "billing"),
    ("limit", {"status": 429, "codes": ["enforced_spend_limit_reached", "rate_limit_error"]}, "billing"),
    ("You exceeded your current quota", {"status": 429, "codes": ["insufficient_quota"]}, "billing"),
    (
        "Your credit balance is too low to access the API",
        {"status": 400, "codes": ["invalid_request_error"]},
        "billing",
    ),
    ("Monthly usage limit reached", {"status": 429}, "billing"),
    ("slow down", {"status": 429}, "rate_limit"),
    ("Too many requests", {}, "rate_limit"),
    ("too many tokens per minute, rate limit reached", {"status": 429}, "rate_limit"),
    ("too many tokens in the last minute", {"status": 429}, "rate_limit"),
    ("token limit exceeded for your account", {"status": 403}, "auth"),
    ("Throttling error: too many tokens", {}, "rate_limit"),
    ("Overloaded", {"status": 529}, "overloaded"),
    ("Overloaded", {"status": 200, "codes": ["overloaded_error"]}, "overloaded"),
    ("Loading model", {"status": 503, "codes": ["unavailable_error"]}, "server"),
    ("busy", {"status": 503}, "overloaded"),
    ("model is at capacity", {}, "overloaded"),
    ("Internal", {"status": 500}, "server"),
    ("<html>Bad gateway</html>", {"status": 502}, "server"),
    ("it broke", {"status": 200, "codes": ["api_error"]}, "server"),
    ("The server had an error", {"codes": ["server_error"]}, "server"),
    ("Provider returned error", {"status": 200}, "server"),
    ("timeout", {"status": 408}, "timeout"),
    ("gateway", {"status": 504}, "timeout"),
    ("request timed out", {}, "timeout"),
    ("peer closed connection without sending complete message body", {}, "transport"),
    ("socket hang up", {}, "transport"),
    ("prompt is too long: 1 tokens > 0 maximum", {"status": 400, "codes": ["invalid_request_error"]}, "overflow"),
    ("request exceeds the available context size", {"status": 400, "codes": ["exceed_context_size_error"]}, "overflow"),
    ("This model's maximum context length is 8192 tokens", {"status": 400}, "overflow"),
    ("Your input exceeds the context window", {"codes": ["context_length_exceeded"]}, "overflow"),
    ("input length and `max_tokens` exceed context limit", {"status": 400}, "overflow"),
    ("Payload", {"status": 413}, "overflow"),
    ("server error: too many tokens in prompt", {"status": 500}, "overflow"),
    ("messages.3: unexpected role", {"status": 400, "codes": ["invalid_request_error"]}, "invalid_request"),
    ("value 'timeout' is not allowed", {"status": 400}, "invalid_request"),
    ("no such model", {"status": 404, "codes": ["not_found_error"]}, "invalid_request"),
    ("conflict", {"status": 409}, "invalid_request"),
    ("unprocessable", {"status": 422}, "invalid_request"),
    ("flagged", {"codes": ["content_filter"]}, "refusal"),
    ("policy", {"codes": ["bio_policy"]}, "refusal"),
    ("what is this", {}, "unknown"),
    ("what is this", {"status": 200, "codes": ["brand_new_error"]}, "unknown"),
]

RETRYABLE = {"rate_limit", "overloaded", "server", "transport", "timeout", "malformed"}


@pytest.mark.parametrize(("message", "known", "kind"), CASES)
def test_every_failure_has_one_kind(message, known, kind):
    info = classify(message, **known)
    assert info.kind == kind
    assert info.retryable == (kind in RETRYABLE)
    assert info.message == message


# The wordings that servers use for a full context.
OVERFLOWS = """
prompt is too long: 210000 tokens > 200000 maximum
Prompt too long
prompt exceeds max length
Input is too long for requested model.
Your input exceeds the context window of this model
The input (5 tokens) exceeds the model's maximum context length of 4 tokens
exceeds the maximum context length (4096)
ContextWindowExceededError: context window exceeded
input token count (99) exceeds the maximum number of tokens allowed (9)
This model's maximum prompt length is 131072 but the request contains 150000 tokens
Please reduce the length of the messages or completion
maximum context length is 128000 tokens. However, you requested 130000
exceeds the maximum allowed input length of 100 tokens
The input (300 tokens) is longer than the model's context length (200 tokens)
prompt token count of 9 exceeds the limit of 8
the request exceeds the available context size, try increasing it
tokens to keep from the initial prompt is greater than the context length
context window exceeds limit
exceeded model token limit: 100
Prompt contains 9 tokens, too large for model with 8 maximum context length
prompt has 9 tokens, but the configured context size is 8
model_context_window_exceeded
prompt too long; exceeded max context length by 3 tokens
Range of input length should be [1, 100]
context_length_exceeded
too many tokens
token limit exceeded
""".strip().splitlines()


@pytest.mark.parametrize("message", OVERFLOWS)
def test_every_wording_of_a_full_context_is_overflow(message):
    assert classify(message, status=400).kind == "overflow"


# Wordings of failures that pass.
PASSING = """
overloaded_error: Overloaded
server_busy
Our servers are currently busy
We are currently experiencing high demand
rate limit exceeded
got status 429
HTTP 500
error 524 from upstream
Service is temporarily unavailable
service unavailable
Internal error encountered
provider returned an error
exceeded request buffer limit while retrying upstream
unable to forward upstream
upstream request failed
upstream_stream_read_error
stream was interrupted
http2 stream failed
network error
connection refused
connection lost
Other side closed
fetch failed
request to https://x/ failed, reason: y
getaddrinfo ENOTFOUND
read ECONNRESET
connect ETIMEDOUT
write EPIPE
Connection reset by peer
EAI_AGAIN
upstream connect error
reset before headers
socket connection was closed unexpectedly
terminated
websocket closed
websocket connection limit reached
stream ended without a result
stream ended before message_stop
http2 request did not get a response
stream disconnected before completion
cut short after the reply had begun
pending stream has been canceled
please retry your request
ResourceExhausted
incomplete chunked read
""".strip().splitlines()


@pytest.mark.parametrize("message", PASSING)
def test_every_wording_of_a_passing_failure_is_retryable(message):
    assert classify(message).retryable


def test_messages_are_bounded_and_never_empty():
    assert len(classify("x" * 50_000, status=502).message) == MAX_MESSAGE
    assert classify("", status=502).message == "server"
    assert error_info("refusal", "no").message == "no"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "59"}, 59_000),
        ({"retry-after": "0.5"}, 500),
        ({"retry-after": "3600"}, 3_600_000),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1_500),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:10 GMT"}, 10_000),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "x"}, None),
        ({"retry-after-ms": "inf"}, None),
    ],
)
def test_the_wait_that_a_server_asks_for_is_read(headers, wait):
    """B077."""
    assert retry_after_ms(headers, now=NOW) == wait


class APIStatusError(Exception):
    """Shaped like the SDKs' error of this name."""

    def __init__(self, message, status, body=None, headers=None):
        super().__init__(message)
        self.status_code = status
        self.body = body
        self.request_id = "req_1"
        self.response = type("Response", (), {"headers": headers or {}})()


def test_an_sdk_error_is_read_by_its_attributes():
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    info = from_exception(APIStatusError(str(body), 200, body, {"retry-after": "2"}), now=NOW)
    assert (info.kind, info.message, info.code) == ("overloaded", "Overloaded", "overloaded_error")
    assert (info.status, info.request_id, info.retry_after_ms) == (200, "req_1", 2_000)


def test_a_body_without_the_wrapper_is_read_as_well():
    info = from_exception(APIStatusError("x", 400, {"code": "context_length_exceeded", "message": "too big"}), now=NOW)
    assert (info.kind, info.message) == ("overflow", "too big")


def test_a_status_in_place_of_a_code_is_no_code():
    """llama.cpp: the type says what it is."""
    body = {"code": "400", "message": "too big", "type": "exceed_context_size_error"}
    info = from_exception(APIStatusError("x", 400, body), now=NOW)
    assert (info.kind, info.code) == ("overflow", "exceed_context_size_error")


@pytest.mark.parametrize("body", [None, "text", [], {"error": "plain"}, {"error": {"message": 3, "type": None}}])
def test_odd_bodies_are_survived(body):
    assert from_exception(APIStatusError("odd", 500, body), now=NOW).kind == "server"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), "timeout"),
        (ConnectionResetError("reset"), "transport"),
        (json.JSONDecodeError("bad", "{", 1), "malformed"),
        (TypeError("Could not resolve authentication method"), "auth"),
        (RuntimeError("surprise"), "unknown"),
        (ProviderFailure(error_info("refusal", "no")), "refusal"),
    ],
)
def test_other_exceptions_are_told_by_their_class(error, kind):
    assert from_exception(error, now=NOW).kind == kind


def test_an_exception_without_text_is_called_by_its_class():
    assert from_exception(TimeoutError(), now=NOW).message == "TimeoutError"


def test_the_http_library_of_the_sdks_is_known_by_name():
    """B142: the anthropic SDK lets its transport errors through as they are."""
    httpx2 = pytest.importorskip("httpx2")
    assert from_exception(httpx2.ReadTimeout(""), now=NOW).kind == "timeout"
    assert from_exception(httpx2.RemoteProtocolError("x"), now=NOW).kind == "transport"
    assert from_exception(httpx2.ConnectError("x"), now=NOW).kind == "transport"
    assert "httpx2" in sys.modules
