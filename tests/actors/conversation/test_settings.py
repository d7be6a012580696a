"""Settings that no system could work by are refused where they are made."""

import perdure
import pytest


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (perdure.Settings, "max_nested_calls", 0),
        (perdure.Settings, "max_nested_calls", -1),
        (perdure.Settings, "max_outgoing_messages", -1),
        (perdure.Settings, "max_queued_submissions", -1),
        (perdure.Settings, "request_timeout_ms", -1),
        (perdure.Settings, "idle_after_s", -0.5),
        (perdure.Settings, "idle_after_s", float("nan")),
        (perdure.Settings, "idle_after_s", float("inf")),
        (perdure.Settings, "steering_mode", "some"),
        (perdure.Settings, "follow_up_mode", "some"),
        (perdure.Settings, "tool_execution", "both"),
        (perdure.RetryPolicy, "base_delay_ms", -1),
        (perdure.RetryPolicy, "jitter", float("nan")),
        (perdure.ProgressPolicy, "partial_interval_ms", -1),
        (perdure.CompactionPolicy, "keep_recent_tokens", -1),
    ],
)
def test_settings_that_nobody_could_work_by_are_refused(kind, field, value):
    """P11: with room for no nested call, for one, a tool that calls another would wait for ever."""
    with pytest.raises(perdure.InvalidValue, match=field):
        kind(**{field: value})


def test_nothing_is_a_setting_where_it_means_something():
    settings = perdure.Settings(
        max_queued_submissions=0, max_outgoing_messages=0, idle_after_s=0, request_timeout_ms=None
    )
    assert settings.idle_after_s == 0
    assert perdure.CompactionPolicy(background_tokens=0).background_tokens == 0
