"""What is refused is told apart by a code; what went wrong inside is not told."""

import perdure
import pytest
from perdure.actors.gateway.refusals import Refused, refusal


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Refused("too_many", "no", 429, retry_after_s=2.0), 429, "too_many"),
        (perdure.UnknownRecord("conversation", 7), 404, "unknown_record"),
        (perdure.InvalidValue("no"), 400, "invalid_value"),
        (perdure.InboxFull("s", "conversation", 1, 5), 429, "inbox_full"),
        (perdure.RequestIdReused("no"), 409, "request_id_reused"),
        (perdure.SessionFailed("s", OSError("/secret")), 503, "session_failed"),
        (perdure.SessionClosed("no"), 503, "session_closed"),
        (perdure.StorageFull("/secret is full"), 503, "storage_full"),
        (RuntimeError("/secret"), 500, "internal"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_every_error_has_a_status_and_a_code(error, status, code):
    """B185: what was not said on purpose stays inside."""
    told, body = refusal(error)
    assert (told, body["code"]) == (status, code)
    assert "secret" not in body["message"]


def test_who_should_come_again_is_told_when():
    assert refusal(Refused("rate_limited", "slowly", 429, retry_after_s=0.5))[1]["retryAfter"] == 0.5
    assert "retryAfter" not in refusal(perdure.InvalidValue("no"))[1]
