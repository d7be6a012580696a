"""Policies of a system, read anew at every decision and never stored."""

from typing import Literal

import msgspec

QueueMode = Literal["one-at-a-time", "all"]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Durable retries of model requests: at most ``max_retries`` after the first attempt, with doubling delays in ms."""

    enabled: bool = True
    max_retries: int = 3
    base_delay_ms: int = 2_000
    max_delay_ms: int = 60_000


class ProgressPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often streamed partials and running tool output are committed, in ms."""

    partial_interval_ms: int = 100
    output_interval_ms: int = 100


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set for a whole system. Replace the object to change it while running.

    ``extensions`` is the default selection by name (None: all installed). The queue modes say how many queued items of
    one kind a boundary takes. ``max_queued_*`` bound what waits in one conversation's inbox. A session that nobody has used
    for ``idle_after_s`` seconds, and that has nothing to do before a deadline, leaves memory until it is needed again (None:
    it never does). Sizes are in bytes of UTF-8, times in ms.
    """

    extensions: tuple[str, ...] | None = None
    retry: RetryPolicy = RetryPolicy()
    progress: ProgressPolicy = ProgressPolicy()
    tool_execution: Literal["parallel", "sequential"] = "parallel"
    steering_mode: QueueMode = "one-at-a-time"
    follow_up_mode: QueueMode = "one-at-a-time"
    request_timeout_ms: int | None = None
    idle_timeout_ms: int | None = None
    max_submission_bytes: int = 1_048_576
    max_queued_submissions: int = 1_000
    max_queued_bytes: int = 16_777_216
    idle_after_s: float | None = 60.0
